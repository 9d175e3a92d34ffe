"""What would become of the messages in a file, for a person who asks before anything is live."""

from dataclasses import replace
from datetime import datetime

from gridaware.domain.errors import InvalidInput
from gridaware.domain.programme import Authority
from gridaware.domain.signal import Quantity
from gridaware.feeds import check_settings, feed_kind
from gridaware.feeds.kind import Disposition, Parsed, ParsedRow, Parses

__all__ = ["parse_file", "within_authority"]


def parse_file(kind: str, body: bytes, now: datetime, settings_json: str | None) -> Parsed:
    """Read ``body`` as a message of ``kind``.

    Args:
        kind: name of a feed kind.
        body: the file's content.
        now: what is over, and what is now, is judged by it.
        settings_json: of the feed in question; None = the kind's defaults.

    Raises:
        NotFound: there is no such kind.
        InvalidInput: the kind reads no files (``feed-not-parsable``), or nothing of it can be read.
        ConfigError: the settings are wrong.
    """
    feed: object = feed_kind(kind)
    if not isinstance(feed, Parses):
        raise InvalidInput("feed-not-parsable", f"the kind {kind} reads no files")
    settings = None if settings_json is None else check_settings(kind, settings_json)
    return feed.parse(body, now, settings)


def within_authority(row: ParsedRow, authority: Authority) -> ParsedRow:
    """The row with what its feed's authority makes of it, as far as that can be told ahead.

    What depends on the site's load at the notice (a limit against a depth, a reduction against the
    least watts) is judged once it is heard.
    """
    target = row.target
    if row.disposition is not Disposition.ACT or target is None:
        return row
    beyond = []
    if target.quantity is Quantity.LIMIT_WATTS and target.value < authority.least_watts:
        beyond.append(f"not below {authority.least_watts / 1e3:g} kW")
    depth = {
        Quantity.REDUCTION_FRACTION: target.value,
        Quantity.LIMIT_FRACTION: 1 - target.value,
    }.get(target.quantity, 0.0)
    if depth > authority.greatest_depth + 1e-9:
        beyond.append(f"not deeper than {100 * authority.greatest_depth:g} %")
    hours = authority.hours_per_day
    seconds = None
    if row.start is not None and row.end is not None:
        seconds = (row.end - row.start).total_seconds()
    if hours < 24 and (seconds is None or seconds > hours * 3600):
        beyond.append(f"not longer than {hours:g} h a day")
    if not beyond:
        return row
    return replace(row, reason=f"{row.reason}; clamped to its authority: {', '.join(beyond)}")
