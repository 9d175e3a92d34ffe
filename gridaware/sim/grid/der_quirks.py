"""Ways in which servers of IEEE 2030.5 deviate, or are simply down."""

from enum import StrEnum

__all__ = ["Quirk"]


class Quirk(StrEnum):
    """One deviation; any number may be on at a time, and be switched while the server runs."""

    TRUNCATED = "truncated"
    """A list of more than one item holds one less than it says, and no page has the rest."""
    SMALL_PAGES = "small-pages"
    """A page holds two items at most, whatever was asked."""
    REPEATED_PAGE = "repeated-page"
    """Pages of two, and always the first."""
    CLOCK_OFF = "clock-off"
    """Its clock is an hour ahead, and its controls are in that time."""
    CLOCK_RESET = "clock-reset"
    """Its clock began anew in 1970."""
    NO_TIME = "no-time"
    ERRORS = "errors"
    """Lists of controls are answered 500."""
    HTML = "html"
    """A proxy's error page, with 200."""
    SLOW = "slow"
    """Each answer takes three seconds."""
    DRIPPING = "dripping"
    """An answer comes a byte every fifth of a second."""
    NO_MULTIPLIER = "no-multiplier"
    """Powers have a value and no multiplier."""
    UNVERSIONED = "unversioned"
    """The vocabulary of CSIP-AUS without its version."""
    OTHER_VOCABULARY = "other-vocabulary"
    """A version of CSIP-AUS that is yet to come."""
    OLD_VOCABULARY = "old-vocabulary"
    """The vocabulary of SEP 2.0, before it became IEEE 2030.5."""
    LINKS_ELSEWHERE = "links-elsewhere"
    """The controls are on another host."""
    NO_SUBSCRIPTIONS = "no-subscriptions"
    RESPONSES_FAIL = "responses-fail"
    """A response is answered 500."""
    RESPONSES_REFUSED = "responses-refused"
    """A response is answered 400."""
