"""The JSON of an event request: what a webhook, a file or the API may say, and nothing else.

::

    {"id": "dr-1", "revision": 0, "kind": "live",
     "start": "2026-11-30T14:00:00Z",        or "now"
     "end": "2026-11-30T15:00:00Z",          or "duration": "PT1H", or "open_end": true
     "target": {"reduce_percent": 40},       or limit_kw, limit_percent_of_baseline, reduce_kw
     "priority": 1}
    {"id": "dr-1", "revision": 1, "cancel": true}

Times are RFC 3339 with an offset; durations are ISO 8601 in weeks, days (24 h), hours, minutes and
seconds. Everything else is refused with a stable code: unknown or repeated keys, wrong types,
numbers that are not finite, naive times, calendar months and years, bodies above 64 KiB.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import NoReturn

from gridaware.domain.errors import InvalidInput
from gridaware.domain.signal import (
    SECONDS_ABSURD,
    WATTS_ABSURD,
    EventKind,
    EventRequest,
    Quantity,
    Signal,
    TargetSpec,
    check_id,
)

__all__ = [
    "BODY_BYTES_AT_MOST",
    "duration_seconds",
    "event_from_json",
    "event_from_mapping",
    "event_to_json",
    "instant",
    "json_fault",
    "json_object",
    "printable",
    "refuse_unknown_keys",
    "target_from_mapping",
    "target_to_mapping",
]

BODY_BYTES_AT_MOST = 64 * 1024
KEYS = (
    "id",
    "revision",
    "kind",
    "start",
    "end",
    "duration",
    "open_end",
    "target",
    "priority",
    "cancel",
)
TARGETS = {
    "limit_kw": (Quantity.LIMIT_WATTS, 1000.0),
    "limit_percent_of_baseline": (Quantity.LIMIT_FRACTION, 0.01),
    "reduce_kw": (Quantity.REDUCTION_WATTS, 1000.0),
    "reduce_percent": (Quantity.REDUCTION_FRACTION, 0.01),
}
"""Key of a target → its quantity and what one unit of it is in watts or as a fraction."""

_YEARS = range(2000, 2200)
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_DURATION = re.compile(
    r"P(?:(?P<weeks>[0-9]{1,6})W)?(?:(?P<days>[0-9]{1,6})D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,9})H)?(?:(?P<minutes>[0-9]{1,9})M)?"
    r"(?:(?P<seconds>[0-9]{1,9}(?:[.,][0-9]{1,6})?)S)?)?"
)
_CALENDAR = re.compile(r"P[0-9.,]*[YM]|P[^T]*[0-9][YM]")


def event_from_json(
    body: bytes | str, *, feed_id: str, received_at: datetime, received_seconds: float
) -> Signal:
    """Read one event request from JSON text.

    Args:
        body: the message as it came, UTF-8.
        feed_id: where it came from.
        received_at: when, a UTC instant; it is what ``"start": "now"`` means.
        received_seconds: when, on the monotonic clock.

    Raises:
        InvalidInput: with a code that names what was wrong.
    """
    values = json_object(body)
    raw = body if isinstance(body, str) else body.decode("utf-8")
    return event_from_mapping(
        values,
        feed_id=feed_id,
        received_at=received_at,
        received_seconds=received_seconds,
        raw=raw,
    )


def event_from_mapping(
    values: Mapping[str, object],
    *,
    feed_id: str,
    received_at: datetime,
    received_seconds: float,
    raw: str = "",
) -> Signal:
    """Read one event request from decoded JSON; otherwise as :func:`event_from_json`."""
    refuse_unknown_keys(values, KEYS, "event")
    request = None if _cancelled(values) else _request(values, received_at)
    return Signal(
        feed_id=feed_id,
        source_id=_id(values),
        revision=_revision(values),
        received_at=received_at,
        received_seconds=received_seconds,
        request=request,
        raw=raw,
    )


def event_to_json(signal: Signal) -> dict[str, object]:
    """The request of a signal as :func:`event_from_mapping` reads it, ``now`` made an instant."""
    shown: dict[str, object] = {"id": signal.source_id, "revision": signal.revision}
    request = signal.request
    if request is None:
        return {**shown, "cancel": True}
    shown |= {"kind": request.kind.value, "start": _rfc3339(request.start)}
    shown |= {"open_end": True} if request.end is None else {"end": _rfc3339(request.end)}
    shown["target"] = target_to_mapping(request.target)
    if request.priority is not None:
        shown["priority"] = request.priority
    return shown


def json_object(body: bytes | str) -> dict[str, object]:
    """Decode one JSON object, strictly: UTF-8, at most 64 KiB, no repeated key, no NaN.

    Raises:
        InvalidInput: ``event-too-large``, ``event-not-utf8``, ``event-not-json``,
            ``event-nested``, ``event-key-repeated``, ``number-not-finite`` or
            ``event-not-object``.
    """
    data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    if len(data) > BODY_BYTES_AT_MOST:
        raise InvalidInput(
            "event-too-large", f"the message has {len(data)} bytes, more than 64 KiB"
        )
    try:
        values = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse_constant,
        )
    except UnicodeDecodeError as error:
        raise InvalidInput(
            "event-not-utf8", f"the message is not UTF-8 at byte {error.start}"
        ) from None
    except RecursionError:
        raise InvalidInput("event-nested", "the message is nested too deeply") from None
    except ValueError as error:
        raise InvalidInput(
            "event-not-json", f"the message is not JSON: {json_fault(error)}"
        ) from None
    if not isinstance(values, dict):
        raise InvalidInput("event-not-object", "the message is not a JSON object")
    return values


def json_fault(error: Exception) -> str:
    """Why a text could not be read as JSON, in words for its sender."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 at byte {error.start}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "int_max_str_digits" in str(error):  # advice for programmers of Python
        return "a number has thousands of digits"
    return str(error)


def refuse_unknown_keys(values: Mapping[str, object], known: tuple[str, ...], what: str) -> None:
    """Refuse a key that is not in ``known``, naming the nearest.

    Raises:
        InvalidInput: ``<what>-key-unknown``.
    """
    for key in values:
        if key not in known:
            name = printable(key)
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
            raise InvalidInput(
                f"{what}-key-unknown", f"the {what} has no key {name!r}{hint}", key=name
            )


def instant(value: object, field: str) -> datetime:
    """The UTC instant of an RFC 3339 time with an offset.

    Raises:
        InvalidInput: ``time-type``, ``time-malformed``, ``time-naive`` or ``time-absurd``.
    """
    if not isinstance(value, str):
        raise InvalidInput("time-type", f"{field} is not a string", field=field)
    match = _TIME.fullmatch(value)
    if match is None:
        raise InvalidInput(
            "time-malformed",
            f"{field} {printable(value)!r} is not an RFC 3339 time such as 2026-11-30T14:00:00Z",
            field=field,
        )
    if match[3] is None:
        raise InvalidInput("time-naive", f"the {field} has no time zone", field=field)
    offset = "+00:00" if match[3] in "Zz" else match[3]
    try:
        local = datetime.fromisoformat(f"{match[1]}T{match[2]}{offset}")
    except ValueError as error:
        raise InvalidInput(
            "time-malformed", f"{field} {printable(value)!r}: {error}", field=field
        ) from None
    if local.year not in _YEARS:
        raise InvalidInput("time-absurd", f"the {field} lies in the year {local.year}", field=field)
    return local.astimezone(UTC)


def duration_seconds(value: object, field: str = "duration") -> float:
    """Seconds of an ISO 8601 duration above zero; days are 24 h, months and years are refused.

    Raises:
        InvalidInput: ``duration-type``, ``duration-calendar``, ``duration-malformed``,
            ``duration-zero`` or ``duration-absurd``.
    """
    if not isinstance(value, str):
        raise InvalidInput("duration-type", f"{field} is not a string such as PT1H", field=field)
    text = printable(value)
    if _CALENDAR.match(value):
        raise InvalidInput(
            "duration-calendar",
            f"{field} {text!r} counts calendar months or years, which have no fixed length",
            field=field,
        )
    match = _DURATION.fullmatch(value)
    if match is None or not any(match.groups()):
        raise InvalidInput(
            "duration-malformed",
            f"{field} {text!r} is not an ISO 8601 duration such as PT1H30M",
            field=field,
        )
    part = {
        name: float((text or "0").replace(",", ".")) for name, text in match.groupdict().items()
    }
    seconds = (
        part["weeks"] * 604800
        + part["days"] * 86400
        + part["hours"] * 3600
        + part["minutes"] * 60
        + part["seconds"]
    )
    if seconds == 0:
        raise InvalidInput("duration-zero", f"{field} {text!r} is zero", field=field)
    if seconds > SECONDS_ABSURD:
        raise InvalidInput("duration-absurd", f"{field} {text!r} is more than ten years")
    return seconds


def target_from_mapping(value: object) -> TargetSpec:
    """Read a target: an object with exactly one of the keys of ``TARGETS``.

    Raises:
        InvalidInput: ``target-type``, ``target-key-unknown``, ``target-count``, or one of the
            codes of :class:`TargetSpec`.
    """
    if not isinstance(value, Mapping):
        raise InvalidInput("target-type", "the target is not an object")
    refuse_unknown_keys(value, tuple(TARGETS), "target")
    if len(value) != 1:
        raise InvalidInput(
            "target-count", f"the target has {len(value)} of {', '.join(TARGETS)}; give one"
        )
    ((key, number),) = value.items()
    quantity, unit = TARGETS[key]
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise InvalidInput("target-type", f"{key} is not a number", key=key)
    if isinstance(number, int) and abs(number) > WATTS_ABSURD:
        raise InvalidInput("target-absurd", f"{key} is beyond 100 GW", key=key)
    if unit < 1 and number > 100:
        raise InvalidInput("target-percent-range", f"{key} is {number:g}, above 100 %", key=key)
    # Dividing keeps 40 % exactly 0.4; adding zero turns -0.0 into 0.0.
    amount = number * unit if unit > 1 else number / 100
    return TargetSpec(quantity, amount + 0.0)


def target_to_mapping(target: TargetSpec) -> dict[str, float]:
    """A target as :func:`target_from_mapping` reads it."""
    for key, (quantity, unit) in TARGETS.items():
        if quantity is target.quantity:
            return {key: target.value / unit if unit > 1 else target.value * 100}
    raise AssertionError(target.quantity)


def printable(value: str, at_most: int = 80) -> str:
    """``value`` in ASCII and clipped, so that it can be shown and stored wherever it came from."""
    return value[:at_most].encode("ascii", "backslashreplace").decode("ascii")[:at_most]


def _request(values: Mapping[str, object], received_at: datetime) -> EventRequest:
    if "start" not in values:
        raise InvalidInput("event-key-missing", "the event has no start", key="start")
    if "target" not in values:
        raise InvalidInput("event-key-missing", "the event has no target", key="target")
    now = values["start"] == "now"
    start = received_at if now else instant(values["start"], "start")
    return EventRequest(
        start=start,
        end=_end(values, start),
        target=target_from_mapping(values["target"]),
        kind=_kind(values),
        priority=_priority(values),
        immediate=now,
    )


def _end(values: Mapping[str, object], start: datetime) -> datetime | None:
    open_end = _flag(values, "open_end")
    given = [key for key in ("end", "duration") if key in values] + ["open_end"] * open_end
    if len(given) != 1:
        said = " and ".join(given) if given else "none of them"
        raise InvalidInput(
            "event-end-count", f"the event needs one of end, duration and open_end; it has {said}"
        )
    if open_end:
        return None
    if "end" in values:
        return instant(values["end"], "end")
    return start + timedelta(seconds=duration_seconds(values["duration"]))


def _id(values: Mapping[str, object]) -> str:
    if "id" not in values:
        raise InvalidInput("event-key-missing", "the event has no id", key="id")
    value = values["id"]
    # Made printable first: what is refused is quoted in answers and in the ledger.
    return check_id("event", printable(value, 100) if isinstance(value, str) else "")


def _revision(values: Mapping[str, object]) -> int:
    value = values.get("revision", 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput("revision-type", "the revision is not a whole number")
    return value


def _kind(values: Mapping[str, object]) -> EventKind:
    value = values.get("kind", EventKind.LIVE.value)
    for kind in EventKind:
        if value == kind.value:
            return kind
    raise InvalidInput("kind-unknown", "the kind is not one of live, test and drill")


def _priority(values: Mapping[str, object]) -> int | None:
    value = values.get("priority")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput("priority-type", "the priority is not a whole number")
    if not 0 <= value <= 2**31:
        raise InvalidInput("priority-range", "the priority must be 0 to 2^31")
    return value


def _cancelled(values: Mapping[str, object]) -> bool:
    if not _flag(values, "cancel"):
        return False
    extra = [key for key in values if key not in {"id", "revision", "cancel"}]
    if extra:
        raise InvalidInput(
            "cancel-with-request",
            f"a cancellation carries only id and revision; it has {', '.join(extra)}",
        )
    return True


def _flag(values: Mapping[str, object], key: str) -> bool:
    value = values.get(key, False)
    if not isinstance(value, bool):
        raise InvalidInput("flag-type", f"{key} is neither true nor false", key=key)
    return value


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                name = printable(key)
                raise InvalidInput("event-key-repeated", f"the key {name!r} is there twice")
            seen.add(key)
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidInput("number-not-finite", f"{name} is not a number")


def _rfc3339(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
