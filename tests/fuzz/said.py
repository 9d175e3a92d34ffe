"""What an event request says, read a second time and otherwise than by the product."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from gridaware.domain.signal import Quantity, Signal

__all__ = ["assert_as_said", "numbers_in"]

UNITS = {
    "limit_kw": (Quantity.LIMIT_WATTS, 1000),
    "limit_percent_of_baseline": (Quantity.LIMIT_FRACTION, 0.01),
    "reduce_kw": (Quantity.REDUCTION_WATTS, 1000),
    "reduce_percent": (Quantity.REDUCTION_FRACTION, 0.01),
}


def assert_as_said(signal: Signal, values: Mapping[str, Any], now: datetime) -> None:
    """A signal asks for no more and nothing else than its event request says."""
    assert signal.source_id == values["id"]
    assert signal.revision == values.get("revision", 0)
    assert len(signal.raw.encode()) <= 64 * 1024
    request = signal.request
    if request is None:
        assert values["cancel"] is True
        return
    assert values.get("cancel", False) is False
    assert request.kind == values.get("kind", "live")
    ((key, amount),) = values["target"].items()
    quantity, unit = UNITS[key]
    assert not isinstance(amount, bool)
    assert 0 <= amount <= (100 if unit < 1 else 1e8)
    assert request.target.quantity is quantity
    assert math.isclose(request.target.value, amount * unit)
    start = now if values["start"] == "now" else at(values["start"])
    assert request.start == start
    assert (request.end is None) == (values.get("open_end") is True)
    if request.end is not None:
        assert timedelta(0) < request.end - request.start <= timedelta(days=3660)
        assert "end" not in values or request.end == at(values["end"])
        assert request.end.utcoffset() == timedelta(0)


def at(text: str) -> datetime:
    """An instant as the standard library reads it."""
    return datetime.fromisoformat(text.upper().replace(" ", "T")).astimezone(UTC)


def numbers_in(value: Any) -> set[float]:
    """Every number of a document, wherever it stands."""
    found, waiting = set[float](), [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict | list):
            waiting.extend(each.values() if isinstance(each, dict) else each)
        elif isinstance(each, int | float) and not isinstance(each, bool) and abs(each) < 1e300:
            found.add(float(each))
    return found
