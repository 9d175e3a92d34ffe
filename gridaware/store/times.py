"""Instants as the store keeps them: fixed-width RFC 3339 text, or UTC epoch milliseconds."""

from datetime import UTC, datetime

from gridaware.domain.errors import InvalidInput

__all__ = ["epoch_milliseconds", "instant_of", "rfc3339"]


def rfc3339(instant: datetime) -> str:
    """UTC text with six decimals and ``Z``: it sorts as time does.

    Raises:
        InvalidInput: the instant has no time zone (``time-naive``).
    """
    return _utc(instant).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def epoch_milliseconds(instant: datetime) -> int:
    """Milliseconds since 1970, UTC, rounded down.

    Raises:
        InvalidInput: the instant has no time zone (``time-naive``).
    """
    utc = _utc(instant)
    whole = int(utc.replace(microsecond=0).timestamp())
    return whole * 1000 + utc.microsecond // 1000


def instant_of(milliseconds: int) -> datetime:
    """The instant of :func:`epoch_milliseconds`."""
    seconds, rest = divmod(milliseconds, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000)


def _utc(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise InvalidInput("time-naive", "the store keeps no time without a zone")
    return instant.astimezone(UTC)
