"""Messages of other agents that inform: breach alerts, and outcomes of enforcement. Pure.

Shed hints and infrastructure actions are recommendations to whoever runs the infrastructure; none
of them is carried out here.
"""

from collections.abc import Mapping
from datetime import datetime

from gridaware.domain.advisory import Advisory, AdvisoryQuality
from gridaware.domain.errors import InvalidInput
from gridaware.domain.eventjson import instant, printable
from gridaware.feeds.dsx.messages import POWER_BREACH, POWER_ENFORCEMENT, UNITS

__all__ = ["advisory_of"]

WATTS_ABSURD = 1e11


def advisory_of(
    kind: str, data: Mapping[str, object], feed_id: str, received_at: datetime
) -> Advisory:
    """What a breach alert or an enforcement outcome says to a person.

    Raises:
        InvalidInput: ``dsx-inform-malformed`` or a code of a time; ``dsx-type`` where it is neither
            of the two.
    """
    if kind == POWER_BREACH:
        return _breach(data, feed_id, received_at)
    if kind == POWER_ENFORCEMENT:
        return _enforcement(data, feed_id, received_at)
    raise InvalidInput("dsx-type", f"{kind} does not inform")


def _breach(data: Mapping[str, object], feed_id: str, received_at: datetime) -> Advisory:
    breach = _object(data, "breach")
    detected = instant(breach.get("detected_at"), "detected_at")
    resolved = breach.get("resolved_at")
    end = None if resolved is None else instant(resolved, "resolved_at")
    watts = _watts(data, "measured_load")
    limit = _watts(_object(data, "target"), "load_constraint")
    return Advisory(
        feed_id=feed_id,
        source_id=_text(breach, "breach_id"),
        quantity="power_breach",
        value=watts,
        unit="W",
        text=(
            f"{_text(data, 'feed_tag')}: {_text(data, 'status')}, {_text(data, 'severity')}; "
            f"{watts / 1e3:g} kW against {limit / 1e3:g} kW"
        ),
        start=detected,
        end=end if end is not None and end > detected else None,
        quality=AdvisoryQuality.MEASURED,
        received_at=received_at,
    )


def _enforcement(data: Mapping[str, object], feed_id: str, received_at: datetime) -> Advisory:
    results = data.get("results")
    count = len(results) if isinstance(results, list) else 0
    said = f"{_text(data, 'feed_tag')}: {_text(data, 'action')}, {_text(data, 'code')}"
    more = f"; {_text(data, 'diag_msg')}" if data.get("diag_msg") else ""
    return Advisory(
        feed_id=feed_id,
        source_id=_text(data, "breach_id"),
        quantity="power_breach_enforcement",
        value=None,
        unit="",
        text=f"{said}; {count} resources{more}",
        start=instant(data.get("timestamp"), "timestamp"),
        end=None,
        quality=AdvisoryQuality.PUBLISHED,
        received_at=received_at,
    )


def _object(data: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise InvalidInput("dsx-inform-malformed", f"{key} is no object")
    return value


def _text(data: Mapping[str, object], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidInput("dsx-inform-malformed", f"{key} is no text")
    return printable(value, 100)


def _watts(data: Mapping[str, object], key: str) -> float:
    power = _object(data, key)
    value, unit = power.get("value"), power.get("unit")
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not isinstance(unit, str) or unit not in UNITS:
        raise InvalidInput("dsx-inform-malformed", f"{key} is no power")
    assert isinstance(value, int | float)
    if not 0 <= value <= WATTS_ABSURD / UNITS[unit]:  # NaN too
        raise InvalidInput("dsx-inform-malformed", f"{key} is no power of at most 100 GW")
    return value * UNITS[unit]
