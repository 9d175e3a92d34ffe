"""What each payload type of OpenADR 3 events means here: it acts, it informs, or it is refused.

By the enumeration of 3.1.1 (Definition, table 1). Only what asks for less power at the site's meter
acts, and only in a unit that is known; a type that is not known never acts. Where a definition
contradicts itself or leaves the meaning to the programme, a setting decides, and without it the
payload is refused.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gridaware.domain.errors import InvalidInput
from gridaware.domain.eventjson import printable
from gridaware.domain.signal import Quantity, TargetSpec
from gridaware.feeds.kind import Disposition
from gridaware.feeds.openadr3.reading_settings import ANY, MAPPED_TYPES, Rules

__all__ = ["RESERVATION", "SUBSCRIPTION", "Meaning", "Units", "Value", "meanings_of"]

Value = float | int | str | bool | None

SUBSCRIPTION = "IMPORT_CAPACITY_SUBSCRIPTION"
RESERVATION = "IMPORT_CAPACITY_RESERVATION"
SPLIT = {"PRICE", "EXPORT_PRICE", "GHG"}
"""Several values are the values of equal parts of the interval (User Guide 7.3)."""
NUMERIC = SPLIT | {
    "PRICE_ALTERNATE",
    "CHARGE_STATE_SETPOINT",
    "IMPORT_CAPACITY_RESERVATION_FEE",
    "IMPORT_CAPACITY_AVAILABLE",
    "IMPORT_CAPACITY_AVAILABLE_PRICE",
    "EXPORT_CAPACITY_LIMIT",
    "EXPORT_CAPACITY_SUBSCRIPTION",
    "EXPORT_CAPACITY_RESERVATION",
    "EXPORT_CAPACITY_RESERVATION_FEE",
    "EXPORT_CAPACITY_AVAILABLE",
    "EXPORT_CAPACITY_AVAILABLE_PRICE",
}
"""Informs, by one number."""
OTHERS = {"OLS", "CURVE", "CTA2045_REBOOT", "CTA2045_SET_OVERRIDE_STATUS"}
"""Informs, and is for devices that a site of this kind has not."""
VALUES_AT_MOST = 1000
SHOWN_AT_MOST = 400
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")
_ABSURD = 1e12


@dataclass(frozen=True, slots=True)
class Units:
    """What a payload descriptor says of a type's values."""

    unit: str | None = None
    currency: str | None = None


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one payload, or one of its values where they share the interval, means."""

    value: Value
    disposition: Disposition
    reason: str
    code: str = ""
    """Of a refusal."""
    target: TargetSpec | None = None
    """What an acting one asks for."""


def meanings_of(kind: str, values: object, units: Units, rules: Rules) -> tuple[Meaning, ...]:
    """What a payload means; several of a type that shares its interval into equal parts.

    Never raises: what cannot be read is a refusal.
    """
    if not isinstance(values, list) or not 0 < len(values) <= VALUES_AT_MOST:
        return (_refused(None, "payload-values", "it has no list of 1 to 1000 values"),)
    reader = _READERS.get(kind)
    try:
        if kind in SPLIT:
            return tuple(_informing_number(value) for value in values)
        if reader is not None:
            return (reader(_single(values), units, rules),)
        if kind in NUMERIC:
            return (_informing_number(_single(values)),)
        return (_by_map(kind, values, rules),)
    except InvalidInput as error:
        return (_refused(_shown(values), error.code, error.message),)


def _by_map(kind: str, values: Sequence[object], rules: Rules) -> Meaning:
    """Whatever the programme's papers explain, or nobody."""
    shown = _shown(values)
    known = rules.meanings.get(kind)
    if known is not None:
        return _mapped(kind, values, known)
    if kind in MAPPED_TYPES:
        return _refused(shown, "payload-unmapped", f"no map says what {kind} means here")
    if kind.startswith("ALERT_"):
        return _informs(shown, "an alert, which no map lets act")
    if kind in OTHERS:
        return _informs(shown, "not for a load")
    return _informs(shown, "not a type of OpenADR, and no map says what it means")


def _mapped(kind: str, values: Sequence[object], known: Mapping[str, TargetSpec | None]) -> Meaning:
    shown = _shown(values)
    unknown = [value for value in map(_key, values) if value not in known and ANY not in known]
    if len(unknown) == len(values):
        return _refused(shown, "payload-unmapped", f"the map of {kind} has no such value")
    found = [known.get(_key(value), known.get(ANY)) for value in values]
    asked = {target for target in found if target is not None}
    if len(asked) > 1:
        return _refused(shown, "payload-several", "its values ask for different things")
    reason = "as the map says"
    if unknown:
        reason += f"; not in it: {', '.join(printable(each, 40) for each in unknown[:5])}"
    if not asked:
        return _informs(shown, f"asks for nothing, {reason}")
    return Meaning(shown, Disposition.ACT, reason, target=asked.pop())


def _simple(value: object, units: Units, rules: Rules) -> Meaning:
    del units
    level = _whole(value)
    if level not in range(4):
        raise InvalidInput("payload-level", f"SIMPLE is {level}, not 0 to 3")
    if level == 0:
        return _informs(level, "normal operation")
    target = rules.levels.get(level)
    if target is None:
        return _refused(level, "payload-unmapped", f"the settings map no level {level}")
    return Meaning(level, Disposition.ACT, f"level {level}, as the settings map it", target=target)


def _power(value: object, units: Units, rules: Rules) -> Meaning:
    number = _number(value)
    watts = number * _watts(units, rules)
    return Meaning(
        number,
        Disposition.ACT,
        "a limit at the site's meter",
        target=TargetSpec(Quantity.LIMIT_WATTS, watts + 0.0),
    )


def _reservation(value: object, units: Units, rules: Rules) -> Meaning:
    meaning = _power(value, units, rules)
    return Meaning(
        meaning.value,
        Disposition.ADVISORY,
        "adds to a subscribed capacity, and none is known",
        target=meaning.target,
    )


def _relative(value: object, units: Units, rules: Rules) -> Meaning:
    number = _number(value)
    if not rules.relative_sign:
        return _refused(
            number, "payload-sign-unset", "relative_sign does not say which way it goes"
        )
    less = number * rules.relative_sign
    if less == 0:
        return _informs(number, "normal operation")
    if less < 0:
        return _refused(number, "payload-more-load", "it asks for more load")
    if (units.unit or "").upper() == "PERCENT":
        return _reduction(number, Quantity.REDUCTION_FRACTION, less)
    return _reduction(number, Quantity.REDUCTION_WATTS, less * _watts(units, rules))


def _offset_percent(value: object, units: Units, rules: Rules) -> Meaning:
    number = _number(value)
    if not -1 <= number <= 1:
        raise InvalidInput("payload-range", f"it is {number:g}, not -1.0 to 1.0")
    if units.unit is not None and units.unit.upper() != "PERCENT":
        raise InvalidInput("payload-unit", f"its unit is {printable(units.unit, 40)}, not PERCENT")
    if number == 0:
        return _informs(number, "normal operation")
    if not rules.offset_percent_sign:
        return _refused(
            number, "payload-sign-unset", "offset_percent_sign does not say which way it goes"
        )
    less = number * rules.offset_percent_sign
    if less < 0:
        return _refused(number, "payload-more-load", "it asks for more load")
    return _reduction(number, Quantity.REDUCTION_FRACTION, less)


def _level_offset(value: object, units: Units, rules: Rules) -> Meaning:
    del units
    kind, level = "CONTROL_LEVEL_OFFSET", _whole(value)
    if level not in range(-10, 11):
        raise InvalidInput("payload-level", f"{kind} is {level}, not -10 to 10")
    if level == 0:
        return _informs(level, "normal operation")
    if level < 0:
        return _refused(level, "payload-more-load", "it asks for more load")
    known = rules.meanings.get(kind)
    if known is None:
        return _refused(level, "payload-unmapped", f"no map says what {kind} means here")
    return _mapped(kind, [level], known)


_READERS: Mapping[str, Callable[[object, Units, Rules], Meaning]] = {
    "SIMPLE": _simple,
    "DISPATCH_SETPOINT": _power,
    "IMPORT_CAPACITY_LIMIT": _power,
    SUBSCRIPTION: _power,
    RESERVATION: _reservation,
    "DISPATCH_SETPOINT_RELATIVE": _relative,
    "CONTROL_LEVEL_OFFSET": _level_offset,
    "CONTROL_LEVEL_OFFSET_PERCENT": _offset_percent,
}


# ----------------------------------------------------------------------------------------------


def _informing_number(value: object) -> Meaning:
    try:
        return _informs(_number(value), "informs, and asks for nothing")
    except InvalidInput as error:
        return _refused(_shown([value]), error.code, error.message)


def _reduction(value: Value, quantity: Quantity, amount: float) -> Meaning:
    return Meaning(
        value,
        Disposition.ACT,
        "a reduction below the baseline",
        target=TargetSpec(quantity, amount),
    )


def _informs(value: Value, reason: str) -> Meaning:
    return Meaning(value, Disposition.ADVISORY, reason)


def _refused(value: Value, code: str, reason: str) -> Meaning:
    return Meaning(value, Disposition.REFUSED, reason, code)


def _single(values: Sequence[object]) -> object:
    if len(values) != 1:
        raise InvalidInput("payload-values", f"it has {len(values)} values where one is meant")
    return values[0]


def _number(value: object) -> int | float:
    """A finite number; servers write some as strings."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput("payload-number", "its value is not a number")
    if not (isinstance(value, int) or math.isfinite(value)):
        raise InvalidInput("number-not-finite", f"its value is {value}")
    if abs(value) > _ABSURD:
        raise InvalidInput("payload-absurd", "its value is beyond 10^12")
    return value


def _whole(value: object) -> int:
    number = _number(value)
    if number != int(number):
        raise InvalidInput("payload-level", f"its level is {number:g}, not a whole number")
    return int(number)


def _watts(units: Units, rules: Rules) -> float:
    """Watts of one unit of a payload that acts."""
    unit = units.unit or rules.default_unit
    if unit is None:
        raise InvalidInput("payload-unit", "no descriptor says its unit")
    watts = rules.watts.get(unit.upper())
    if watts is None:
        raise InvalidInput("payload-unit", f"its unit {printable(unit, 40)} is none of power")
    return watts


def _key(value: object) -> str:
    """A value as a map's key writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and math.isfinite(value) and abs(value) <= _ABSURD:
        return f"{value:g}" if value != int(value) else str(int(value))
    return value if isinstance(value, str) else ""


def _shown(values: Sequence[object]) -> Value:
    """One plain value as it is, anything else as JSON text."""
    if len(values) == 1:
        value = values[0]
        if isinstance(value, str):
            return printable(value, SHOWN_AT_MOST)
        if isinstance(value, bool):
            return value
        if isinstance(value, int | float) and math.isfinite(value) and abs(value) <= _ABSURD:
            return value
    try:
        text = json.dumps(values[:50], separators=(",", ":"))
    except (ValueError, RecursionError):
        text = "nested too deeply"
    return printable(text, SHOWN_AT_MOST)
