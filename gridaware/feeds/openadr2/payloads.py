"""What each signal of OpenADR 2.0b means here: it acts, it informs, or it is refused.

By the names and types of the profile's schema (oadr_ei_20b.xsd). Only what asks for less power at
the site's meter acts, and only in a unit that is known; a signal that is not known never acts.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gridaware.domain.errors import InvalidInput
from gridaware.domain.eventjson import printable
from gridaware.domain.signal import Quantity, TargetSpec
from gridaware.feeds.kind import Disposition
from gridaware.feeds.openadr2.reading_settings import ANY, Rules
from gridaware.feeds.openadr2.xmltree import Node

__all__ = ["SCALES", "Meaning", "Unit", "meaning_of", "unit_of"]

INFORMING = {
    "electricity_price",
    "energy_price",
    "demand_charge",
    "bid_price",
    "bid_load",
    "bid_energy",
    "charge_state",
}
SCALES = {
    "p": 1e-12, "n": 1e-9, "micro": 1e-6, "m": 1e-3, "c": 1e-2, "d": 1e-1, "none": 1.0, "k": 1e3,
    "M": 1e6, "G": 1e9, "T": 1e12,
}  # fmt: skip
"""The schema's SI scale codes; upper and lower case differ."""
_NUMBER = re.compile(
    r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?"
)
_ABSURD = 1e12


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the value of one interval means."""

    value: float | str | None
    disposition: Disposition
    reason: str
    code: str = ""
    """Of a refusal."""
    target: TargetSpec | None = None
    """What an acting one asks for."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a signal's item base says of its values."""

    item: str = ""
    """``powerReal``, ``currencyPerKWh``, ``customUnit``, ...; "" = there is none."""
    unit: str = ""
    scale: str = "none"

    @property
    def shown(self) -> str:
        """For people."""
        scale = "" if self.scale == "none" else self.scale
        return printable(f"{scale}{self.unit}", 32)


def unit_of(signal: Node) -> Unit:
    """The unit of a signal's values."""
    for child in signal.children:
        said = child.said("itemUnits")
        if said is not None:
            return Unit(child.name, said, child.said("siScaleCode") or "none")
    return Unit()


def meaning_of(kind: str, text: str | None, unit: Unit, rules: Rules) -> Meaning:
    """What a value means. Never raises: what cannot be read is a refusal.

    Args:
        kind: ``SIGNAL_NAME/signalType``.
        text: the value as it was sent.
        unit: of the signal.
        rules: of the feed.
    """
    try:
        return _read(kind.lower(), _number(text), unit, rules)
    except InvalidInput as error:
        shown = None if text is None else printable(text)
        return Meaning(shown, Disposition.REFUSED, error.message, error.code)


def _read(kind: str, value: float, unit: Unit, rules: Rules) -> Meaning:
    reader = _READERS.get(kind)
    if reader is not None:
        return reader(value, unit, rules)
    known = rules.meanings.get(kind)
    if known is not None:
        return _mapped(kind, value, known)
    name, _, kind_type = kind.partition("/")
    if name in {"simple", "load_dispatch", "load_control"}:
        return _refused(value, "signal-type", f"no map says what {kind_type} means for {name}")
    if name in INFORMING:
        return _informs(value, "informs, and asks for nothing")
    return _informs(value, "not a signal of OpenADR, and no map says what it means")


def _simple(value: float, unit: Unit, rules: Rules) -> Meaning:
    del unit
    if value not in {0, 1, 2, 3}:
        raise InvalidInput("payload-level", f"SIMPLE is {value:g}, not 0 to 3")
    level = int(value)
    if level == 0:
        return _informs(value, "normal operation")
    target = rules.levels.get(level)
    if target is None:
        return _refused(value, "payload-unmapped", f"the settings map no level {level}")
    return Meaning(value, Disposition.ACT, f"level {level}, as the settings map it", target=target)


def _set_point(value: float, unit: Unit, rules: Rules) -> Meaning:
    watts = value * _watts(unit, rules)
    return _acts(value, "a limit at the site's meter", Quantity.LIMIT_WATTS, watts)


def _delta(value: float, unit: Unit, rules: Rules) -> Meaning:
    return _less(value, rules, Quantity.REDUCTION_WATTS, _watts(unit, rules))


def _multiplier(value: float, unit: Unit, rules: Rules) -> Meaning:
    del unit, rules
    if value > 1:
        return _refused(value, "payload-more-load", "it asks for more load")
    return _acts(value, "a share of the baseline", Quantity.LIMIT_FRACTION, value)


def _capacity(value: float, unit: Unit, rules: Rules) -> Meaning:
    del unit
    if not 0 <= value <= 1:
        raise InvalidInput("signal-range", f"it is {value:g}, not 0.0 to 1.0")
    if rules.capacity_watts is None:
        return _refused(value, "signal-capacity", "capacity_kw does not say of how much")
    watts = value * rules.capacity_watts
    return _acts(value, "a share of the site's greatest load", Quantity.LIMIT_WATTS, watts)


def _percent_offset(value: float, unit: Unit, rules: Rules) -> Meaning:
    del unit
    if rules.percent is None:
        told = "percent_offset_unit does not say whether it is a share or percent"
        return _refused(value, "signal-percent", told)
    if abs(value) * rules.percent > 1:
        raise InvalidInput("signal-range", f"it is {value:g}, more than the whole")
    return _less(value, rules, Quantity.REDUCTION_FRACTION, rules.percent)


_READERS: Mapping[str, Callable[[float, Unit, Rules], Meaning]] = {
    "simple/level": _simple,
    "load_dispatch/setpoint": _set_point,
    "load_dispatch/delta": _delta,
    "load_dispatch/multiplier": _multiplier,
    "load_control/x-loadcontrolcapacity": _capacity,
    "load_control/x-loadcontrolpercentoffset": _percent_offset,
    "load_control/x-loadcontrolsetpoint": _set_point,
}


# ----------------------------------------------------------------------------------------------


def _mapped(kind: str, value: float, known: Mapping[str, TargetSpec | None]) -> Meaning:
    key = f"{value:g}"
    if key not in known and ANY not in known:
        return _refused(value, "payload-unmapped", f"the map of {printable(kind)} has no {key}")
    target = known.get(key, known.get(ANY))
    if target is None:
        return _informs(value, "asks for nothing, as the map says")
    return Meaning(value, Disposition.ACT, "as the map says", target=target)


def _less(value: float, rules: Rules, quantity: Quantity, factor: float) -> Meaning:
    """A change of the load that acts where it is less."""
    less = value * rules.less
    if less == 0:
        return _informs(value, "normal operation")
    if less < 0:
        return _refused(value, "payload-more-load", "it asks for more load")
    return _acts(value, "a reduction below the baseline", quantity, less * factor)


def _acts(value: float, reason: str, quantity: Quantity, amount: float) -> Meaning:
    # Adding zero turns -0.0 into 0.0.
    return Meaning(value, Disposition.ACT, reason, target=TargetSpec(quantity, amount + 0.0))


def _informs(value: float, reason: str) -> Meaning:
    return Meaning(value, Disposition.ADVISORY, reason)


def _refused(value: float, code: str, reason: str) -> Meaning:
    return Meaning(value, Disposition.REFUSED, reason, code)


def _watts(unit: Unit, rules: Rules) -> float:
    """Watts of one unit of a signal that acts."""
    scale = SCALES.get(unit.scale)
    worth = rules.watts.get(unit.unit)
    if unit.item == "powerReal" and unit.unit in {"W", "J/s"}:
        worth = 1.0
    if not unit.item:
        raise InvalidInput("signal-unit", "the signal says no unit")
    if worth is None or scale is None:
        shown = printable(f"{unit.scale} {unit.unit}", 40)
        raise InvalidInput("signal-unit", f"its unit, {unit.item[:40]} {shown}, is none of power")
    return worth * scale


def _number(text: str | None) -> float:
    if text is None or not _NUMBER.fullmatch(text):
        raise InvalidInput("payload-number", "its value is not a number")
    value = float(text)
    if not math.isfinite(value) or abs(value) > _ABSURD:
        raise InvalidInput("payload-absurd", "its value is beyond 10^12")
    return value
