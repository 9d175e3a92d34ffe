"""What a DERControlBase asks, mode by mode, and which of it a load follows. Pure.

Modes that limit what is drawn are the import limits of CSIP-AUS (``opModImpLimW``) and of the 2023
edition (``opModMaxLimWAbsorb``). Those of the 2018 edition speak of generation: ``opModMaxLimW`` is
the greatest *output* as a share of ``setMaxW``, a negative ``opModFixedW`` is a rate of charging;
what a server means by them for a load is agreed with it. One mode limits the site, by its settings;
the others inform, and move nothing.
"""

from dataclasses import dataclass

from gridaware.domain.errors import InvalidInput
from gridaware.domain.eventjson import printable
from gridaware.domain.signal import WATTS_ABSURD, Quantity, TargetSpec
from gridaware.feeds.ieee2030.numbers import boolean, child, whole
from gridaware.feeds.ieee2030.xml import CSIPAUS, SEP, Element
from gridaware.feeds.kind import Disposition

__all__ = ["LIMIT", "OFF", "Meaning", "Mode", "Rules", "modes_of"]

LIMIT, OFF = "limit", "off"
"""What a mode bears on; a newer control supersedes an older one in what both bear on."""
DISCONNECTS = ("opModEnergize", "opModConnect")
PERCENTS = {
    "opModMaxLimW": (0, 10_000),
    "opModMaxLimPctWAbsorb": (0, 10_000),
    "opModFixedW": (-10_000, 10_000),
}
"""In hundredths of a percent."""
_SIGNED, _UNSIGNED = (-(2**15), 2**15 - 1), (0, 2**16 - 1)
POWERS = {
    ("opModTargetW", SEP): _SIGNED,
    ("opModMaxLimWAbsorb", SEP): _UNSIGNED,
    ("opModMaxLimWInject", SEP): _UNSIGNED,
    ("opModImpLimW", CSIPAUS): _SIGNED,
    ("opModExpLimW", CSIPAUS): _SIGNED,
    ("opModGenLimW", CSIPAUS): _SIGNED,
    ("opModLoadLimW", CSIPAUS): _SIGNED,
}
"""Least and most of the value, before its multiplier."""
CONSUMES_BELOW_ZERO = ("opModFixedW", "opModTargetW")
"""Set points of output: a load follows them as far as they are zero or less."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What was agreed with the server."""

    limit_by: str = "opModImpLimW"
    """The mode that limits the site."""
    rated_watts: float | None = None
    """What 100 % is."""
    disconnects: bool = False
    """Whether a control that disconnects or de-energizes is a limit of 0 W."""
    device_category: int | None = None
    """The categories that we are, as bits; None = every control is for us."""
    neutral_watts: float | None = None
    """A default control at or above it asks for nothing."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What becomes of a mode."""

    disposition: Disposition
    reason: str
    target: TargetSpec | None = None
    code: str = ""
    """Of a refusal."""


@dataclass(frozen=True, slots=True)
class Mode:
    """One mode of a control."""

    name: str
    value: float | bool | None
    """Watts, percent, or on and off; None = it was not read."""
    unit: str
    meaning: Meaning

    @property
    def bears_on(self) -> str:
        """``limit`` or ``off`` of what acts and of what lets go; empty otherwise."""
        if self.meaning.disposition is not Disposition.ACT:
            return ""
        return OFF if self.name in DISCONNECTS else LIMIT


def modes_of(base: Element, rules: Rules) -> tuple[Mode, ...]:
    """Every mode of a DERControlBase; one that cannot be read is refused alone."""
    modes = []
    for element in base.children:
        name = printable(element.name, 64)
        # How fast, not what: the site ramps by its own limits. And a mark of the 2023 edition.
        if name == "rampTms" or name.endswith("_r2_3"):
            continue
        try:
            value, unit = _value(element)
            meaning = _meaning(name, value, rules)
            if element.attributes.get("disabled") in {"true", "1"}:
                meaning = _disabled(meaning)
        except InvalidInput as error:
            value, unit = None, ""
            meaning = Meaning(Disposition.REFUSED, error.message, code=error.code)
        modes.append(Mode(name, value, unit, meaning))
    return tuple(modes)


def _value(element: Element) -> tuple[float | bool | None, str]:
    name = element.name
    limits = POWERS.get((name, element.space))
    if limits is not None:
        return _watts(element, *limits), "W"
    if element.space not in {SEP, CSIPAUS}:
        raise InvalidInput("ieee2030-namespace", f"{name} is of a vocabulary that is not known")
    if element.space == SEP and name in PERCENTS:
        least, most = PERCENTS[name]
        return whole(element, least, most, "ieee2030-power") / 100, "%"
    if element.space == SEP and name in DISCONNECTS:
        return boolean(element), ""
    return None, ""


def _watts(element: Element, least: int, most: int) -> float:
    """Value times ten to the power of the multiplier, which no default stands in for."""
    code = "ieee2030-power"
    value = whole(child(element, "value", code), least, most, code)
    multiplier = whole(child(element, "multiplier", code), -9, 9, code)
    watts = float(value * 10**multiplier) if multiplier >= 0 else value / 10**-multiplier
    if abs(watts) > WATTS_ABSURD:
        raise InvalidInput(code, f"{element.name} is {watts:g} W, above 100 GW")
    return watts


def _disabled(meaning: Meaning) -> Meaning:
    """Of a mode that is switched off (2023 edition): it supersedes, and asks for nothing."""
    if meaning.disposition is not Disposition.ACT:
        return meaning
    return Meaning(Disposition.ACT, "disabled: asks for nothing")


def _meaning(name: str, value: float | bool | None, rules: Rules) -> Meaning:
    if value is None:
        return Meaning(Disposition.ADVISORY, f"{name} is not for a load to follow")
    if name in DISCONNECTS:
        if not rules.disconnects:
            return Meaning(Disposition.ADVISORY, f"{name} is followed where `disconnects` is set")
        if value:
            return Meaning(Disposition.ACT, "connected: asks for nothing")
        return Meaning(
            Disposition.ACT, f"{name} is false: 0 W", TargetSpec(Quantity.LIMIT_WATTS, 0.0)
        )
    if name != rules.limit_by:
        return Meaning(Disposition.ADVISORY, f"the site is limited by {rules.limit_by}")
    asked = value
    if name in PERCENTS:
        if rules.rated_watts is None:
            return Meaning(
                Disposition.ADVISORY, f"{name} is a share of `rated_kw`, which is not set"
            )
        asked = value * rules.rated_watts / 100
    if name in CONSUMES_BELOW_ZERO:
        asked = -asked
    if asked < 0:
        return Meaning(
            Disposition.REFUSED, f"{name} asks a load to feed in", code="ieee2030-feed-in"
        )
    return Meaning(
        Disposition.ACT, "asked for", TargetSpec(Quantity.LIMIT_WATTS, abs(float(asked)))
    )
