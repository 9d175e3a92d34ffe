"""Ways in which servers of OpenADR 3 deviate. Each was seen in a real one or in its bug reports."""

from enum import StrEnum

__all__ = ["Quirk"]


class Quirk(StrEnum):
    """One deviation; any number may be on at a time, and be switched while the server runs."""

    # What it sends
    DOUBLE_ENCODED = "double-encoded"
    """A webhook's body is JSON inside a JSON string."""
    SNAKE_CASE = "snake-case"
    """Pushed objects carry snake_case keys, and null for what is absent."""
    NAIVE_TIMES = "naive-times"
    """Times without a zone, a space for the T."""
    ONE_SECOND_STAMPS = "one-second-stamps"
    """Two updates within a second look the same."""
    ONE_BAD_EVENT = "one-bad-event"
    """Every list of events holds one that nobody can read."""
    STRINGS_FOR_NUMBERS = "strings-for-numbers"

    # What it forgets
    REUSED_IDS = "reused-ids"
    """Ids are 0, 1, 2 …, also after a restart."""
    KEEPS_EVENTS = "keeps-events"
    """After a restart the events are there again, and nothing else."""
    LOSES_SUBSCRIPTIONS = "loses-subscriptions"
    """Subscriptions are accepted, and gone at once."""

    # Whom it obeys
    IGNORES_ACTIVE = "ignores-active"
    IGNORES_PROGRAM = "ignores-program"
    """A subscription for one program hears of the events of all."""
    SCOPE_LOST = "scope-lost"
    """Every list is empty, and says 200: the targets of the VEN were taken away."""
    REFUSES_NULLS = "refuses-nulls"
    FORBIDS_DELETE_REPORT = "forbids-delete-report"

    # How it answers
    STORES_THEN_500 = "stores-then-500"
    """A POST is carried out, and answered 500."""
    EXPIRED_IS_403 = "expired-is-403"
    """A token that has expired is answered 403, not 401."""
    NO_EXPIRES_IN = "no-expires-in"
    BASIC_TOKENS = "basic-tokens"
    """The token endpoint takes HTTP Basic alone; else it takes a form alone."""
    NO_AUTH_SERVER = "no-auth-server"
    """There is no /auth/server, as in 3.0.1."""
    ANONYMOUS = "anonymous"
    """No token is asked for, and none is given."""
    TRUNCATES_PAGES = "truncates-pages"
    """A page holds ten items at most, whatever was asked."""
    BROKEN_PAGE = "broken-page"
    """The second page of a list is answered 500."""
    HTML_ERRORS = "html-errors"
    """A proxy's error page, with 200."""
    SLOW = "slow"
    """Each answer takes three seconds."""
    DRIPPING = "dripping"
    """An answer comes a byte a second."""
    HALF_OPEN = "half-open"
    """A request is read, and never answered."""
    CLOCK_OFF = "clock-off"
    """Its Date header is a quarter of an hour ahead."""

    # How it challenges
    ECHO_PATH = "echo-path"
    """The challenge goes to the call-back's URL + /echo, always with the same word."""
    NO_ECHO = "no-echo"
    """A subscription is believed without any challenge."""
