"""The settings that say how events of OpenADR 3 are read, and the rules made of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import Field

from gridaware.domain.errors import ConfigError
from gridaware.domain.eventjson import printable, target_from_mapping
from gridaware.domain.signal import WATTS_ABSURD, TargetSpec
from gridaware.feeds.kind import FeedSettings
from gridaware.feeds.levels import LEVELS

__all__ = ["ANY", "MAPPED_TYPES", "ReadingSettings", "Rules", "rules_of"]

ANY = "*"
"""In a map: whatever the value."""
MAPPED_TYPES = ("CONTROL_SETPOINT", "DISPATCH_INSTRUCTION")
"""What asks for something that only the programme knows; ``meanings`` says it."""
READ_BY_THEMSELVES = (
    "SIMPLE",
    "DISPATCH_SETPOINT",
    "DISPATCH_SETPOINT_RELATIVE",
    "CONTROL_LEVEL_OFFSET_PERCENT",
    "IMPORT_CAPACITY_LIMIT",
    "IMPORT_CAPACITY_SUBSCRIPTION",
    "IMPORT_CAPACITY_RESERVATION",
)
_KW = 1e3
Sign = Literal["positive_is_less", "positive_is_more"]
Text = Annotated[str, Field(min_length=1, max_length=128)]
Target = Mapping[str, float]


class ReadingSettings(FeedSettings):
    """How events are read."""

    version: Literal["3.0.1", "3.1"] = "3.1"
    """Of the server. A default period without length from "now" on is a cancellation in 3.1; in
    3.0.1 its intervals last until they are taken back."""
    naive_timezone: Text | None = None
    """Where a time without a zone is read, such as America/Chicago; unset = it is refused."""
    levels: Mapping[Literal["1", "2", "3"], Target] = Field(default=LEVELS)
    """What the levels of SIMPLE ask for. By default the depths to which the tiers flex-1 to flex-3
    may be slowed."""
    meanings: Mapping[Text, Mapping[Text, Target | None]] = Field(default={}, max_length=100)
    """Payload type → value → target, for what only the programme's papers explain: instructions,
    control set points, level offsets, alerts, private types. ``*`` is any value, null asks for
    nothing."""
    relative_sign: Sign | None = None
    """Of DISPATCH_SETPOINT_RELATIVE; unset = it is refused, because senders disagree."""
    offset_percent_sign: Sign | None = None
    """Of CONTROL_LEVEL_OFFSET_PERCENT; unset = it is refused: its definition says both."""
    units: Mapping[Text, float] = Field(default={}, max_length=20)
    """Watts of each private unit of power, such as {"MW": 1000000}; KW is known."""
    default_unit: Text | None = None
    """Of power, where no descriptor says one; unset = such a value is refused."""
    targets: tuple[Text, ...] = Field(default=(), max_length=100)
    """The names that events for us carry; an event that names others alone is left to them."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings, checked and ready to read by."""

    version: str
    zone: tzinfo | None
    levels: Mapping[int, TargetSpec]
    meanings: Mapping[str, Mapping[str, TargetSpec | None]]
    relative_sign: int
    """1 = a positive change is less load, -1 = it is more; 0 = unknown."""
    offset_percent_sign: int
    watts: Mapping[str, float]
    default_unit: str | None
    ours: frozenset[str]


def rules_of(settings: ReadingSettings) -> Rules:
    """The rules that ``settings`` say.

    Raises:
        ConfigError: ``openadr3-timezone``, ``openadr3-units`` or ``openadr3-meanings``.
        InvalidInput: a target is wrong.
    """
    units = {unit.upper(): watts for unit, watts in settings.units.items()}
    if not all(0 < watts <= WATTS_ABSURD for watts in units.values()):
        raise ConfigError("openadr3-units", "a unit of power is not worth a number of watts")
    return Rules(
        version=settings.version,
        zone=_zone(settings.naive_timezone),
        levels={int(level): target_from_mapping(each) for level, each in settings.levels.items()},
        meanings=_meanings(settings.meanings),
        relative_sign=_SIGNS[settings.relative_sign],
        offset_percent_sign=_SIGNS[settings.offset_percent_sign],
        watts={"KW": _KW, **units},
        default_unit=settings.default_unit,
        ours=frozenset(settings.targets),
    )


_SIGNS = {None: 0, "positive_is_less": 1, "positive_is_more": -1}


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise ConfigError(
            "openadr3-timezone", f"there is no time zone {printable(name)!r}"
        ) from None


def _meanings(
    said: Mapping[str, Mapping[str, Target | None]],
) -> dict[str, dict[str, TargetSpec | None]]:
    for kind in said:
        if kind in READ_BY_THEMSELVES:
            raise ConfigError(
                "openadr3-meanings", f"{kind} has a meaning of its own, which no map replaces"
            )
    return {
        kind: {
            value: None if target is None else target_from_mapping(target)
            for value, target in values.items()
        }
        for kind, values in said.items()
    }
