"""The settings that say how events of OpenADR 2.0b are read, and the rules made of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from gridaware.domain.errors import ConfigError
from gridaware.domain.eventjson import target_from_mapping
from gridaware.domain.signal import WATTS_ABSURD, TargetSpec
from gridaware.feeds.kind import FeedSettings
from gridaware.feeds.levels import LEVELS

__all__ = ["ANY", "ReadingSettings", "Rules", "rules_of"]

ANY = "*"
"""In a map: whatever the value."""
Text = Annotated[str, Field(min_length=1, max_length=128)]
Target = Mapping[str, float]


class ReadingSettings(FeedSettings):
    """How events are read."""

    levels: Mapping[Literal["1", "2", "3"], Target] = Field(default=LEVELS)
    """What the levels of SIMPLE ask for. By default the depths to which the tiers flex-1 to flex-3
    may be slowed."""
    meanings: Mapping[Text, Mapping[Text, Target | None]] = Field(default={}, max_length=100)
    """``SIGNAL_NAME/signalType`` → value → target, for what only the programme's papers explain:
    level offsets, programme levels, private signals. ``*`` is any value, null asks for nothing."""
    delta_sign: Literal["negative_is_less", "positive_is_less"] = "negative_is_less"
    """Of ``delta`` and of percent offsets: by the schema they are a change of what would have been
    used, so that a reduction is below zero. What asks for more load is refused."""
    percent_offset_unit: Literal["percent", "share"] | None = None
    """Of x-loadControlPercentOffset: 20 or 0.2 for a fifth; unset = it is refused, because senders
    write both."""
    capacity_kw: float | None = Field(default=None, gt=0, le=1e8)
    """The greatest load of the site, of which x-loadControlCapacity is a share; unset = it is
    refused."""
    units: Mapping[Text, float] = Field(default={}, max_length=20)
    """Watts of each private unit of power, such as {"MW": 1000000}; W with its scale is known."""
    targets: tuple[Text, ...] = Field(default=(), max_length=100)
    """Our names of groups and resources; an event that names others alone is left to them. Unset =
    every event that the server gives us is for us, unless it names other VENs alone."""
    device_classes: tuple[Text, ...] = Field(default=(), max_length=50)
    """Classes of devices that the site has: a signal for other classes alone only informs."""
    test_events: Literal["inform", "act"] = "inform"
    """What test events do; whatever is not said to be none is one (conformance rule 6)."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings, checked and ready to read by."""

    levels: Mapping[int, TargetSpec]
    meanings: Mapping[str, Mapping[str, TargetSpec | None]]
    """By lower-case name and type."""
    less: int
    """-1 = a change below zero is less load, 1 = one above zero."""
    percent: float | None
    """What a percent offset of 1 is, as a share; None = unknown."""
    capacity_watts: float | None
    watts: Mapping[str, float]
    ours: frozenset[str]
    device_classes: frozenset[str]
    tests_act: bool


def rules_of(settings: ReadingSettings) -> Rules:
    """The rules that ``settings`` say.

    Raises:
        ConfigError: ``openadr2-units``.
        InvalidInput: a target is wrong.
    """
    if not all(0 < watts <= WATTS_ABSURD for watts in settings.units.values()):
        raise ConfigError("openadr2-units", "a unit of power is not worth a number of watts")
    return Rules(
        levels={int(level): target_from_mapping(each) for level, each in settings.levels.items()},
        meanings={
            kind.lower(): {
                value: None if target is None else target_from_mapping(target)
                for value, target in known.items()
            }
            for kind, known in settings.meanings.items()
        },
        less=-1 if settings.delta_sign == "negative_is_less" else 1,
        percent={None: None, "percent": 0.01, "share": 1.0}[settings.percent_offset_unit],
        capacity_watts=None if settings.capacity_kw is None else settings.capacity_kw * 1000,
        watts=settings.units,
        ours=frozenset(settings.targets),
        device_classes=frozenset(name.lower() for name in settings.device_classes),
        tests_act=settings.test_events == "act",
    )
