"""The sections of a site's settings: what an operator may write, in which units.

Every quantity ends with its unit. Each section turns itself into the value that the rooms below
know; its own checks are theirs, so a rule stands in one place.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from gridaware.domain.catalogue import SiteProgramme
from gridaware.domain.errors import GridawareError
from gridaware.domain.frequency import FREQUENCY_RULES, FrequencyRule
from gridaware.domain.obligation import Obligation
from gridaware.domain.programme import Authority, FeedSpec, Programme, SignalLoss
from gridaware.domain.signal import WATTS_ABSURD, check_id
from gridaware.domain.target import HardLimit, Overhead, Ramp
from gridaware.feeds.secrets import REFERENCE_PATTERN
from gridaware.settlement.baselines import BASELINES
from gridaware.wiring.catalogue import inherited, named

__all__ = [
    "DEVICE_SUM",
    "METER_SUM",
    "AgentsSection",
    "ControlSection",
    "FeedSection",
    "MeterSection",
    "ProgrammeSection",
    "RaySection",
    "SiteSection",
    "StoreSection",
    "WebSection",
]


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is wanted, not true or false")  # noqa: TRY004 - pydantic's way
    return value


_Number = Annotated[float, BeforeValidator(_no_boolean), Field(allow_inf_nan=False)]
Watts = Annotated[_Number, Field(ge=0, le=WATTS_ABSURD)]
PositiveWatts = Annotated[_Number, Field(gt=0, le=WATTS_ABSURD)]
Seconds = Annotated[_Number, Field(ge=0, le=10 * 366 * 86400)]
Share = Annotated[_Number, Field(ge=0, le=1)]
Port = Annotated[int, BeforeValidator(_no_boolean), Field(ge=0, le=65535)]
"""0 takes any free port."""


def _holding(make: Callable[[], object]) -> None:
    """Let a rule of the domain speak as a rule of the settings."""
    try:
        make()
    except GridawareError as error:
        raise ValueError(error.message) from error


class _Section(BaseModel):
    """Unknown keys are refused; nothing changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class OverheadSection(_Section):
    """Meter watts as a straight line of GPU watts."""

    fixed_watts: Watts = 0.0
    """Drawn at the meter while every GPU is off: fans, CPUs, losses, cooling."""
    slope: Annotated[_Number, Field(ge=1, le=10)] = 1.0
    """Meter watts for each further GPU watt."""
    quality: Literal["assumed", "measured"] = "assumed"
    """Whether the line was measured at this site."""

    def value(self) -> Overhead:
        """As the planner knows it."""
        return Overhead(self.fixed_watts, self.slope, self.quality)


class HardLimitSection(_Section):
    """The connection agreement or the breaker: never exceeded."""

    watts: PositiveWatts
    """At the site meter."""
    averaging_seconds: Annotated[_Number, Field(gt=0, le=86400)] = 10.0
    """The period over which the limit is judged."""
    margin: Annotated[_Number, Field(ge=0, lt=1)] = 0.02
    """Kept free below it, as a share of it."""

    def value(self) -> HardLimit:
        """As control knows it."""
        return HardLimit(self.watts, self.averaging_seconds, self.margin)


class RampSection(_Section):
    """How fast the site may move; leave a key out for no limit."""

    down_watts_per_minute: PositiveWatts | None = None
    """Steepest fall at the meter."""
    up_watts_per_minute: PositiveWatts | None = None
    """Steepest rise at the meter, also when agents come back alone."""

    def value(self) -> Ramp:
        """As control knows it."""
        return Ramp(self.down_watts_per_minute, self.up_watts_per_minute)


DEVICE_SUM = "device_sum"
"""The module that is none: the sum of the GPUs' sensors, through the overhead model."""
METER_SUM = "meter_sum"
"""The module of a meter that is the sum of its parts."""
OLD_DEVICE_SUM = "gridaware.devices.device_sum"
"""Its name while a site could have one meter."""


def _text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class MeterPartSection(_Section):
    """One of the meters that enclose the site together."""

    module: str = Field(min_length=1, max_length=256)
    """Import path of a module with `open_meter`."""
    options: dict[str, Annotated[str, BeforeValidator(_text)]] = {}
    """Handed to `open_meter`; docs/devices.md lists those of each module."""


class MeterSection(_Section):
    """One meter of the site. The first in the order that is well is believed."""

    name: str = Field(min_length=1, max_length=32, pattern=r"^[a-z0-9][a-z0-9_-]*$")
    """Shown in status, alarms and reports."""
    module: str = Field(min_length=1, max_length=256)
    """Import path of a module with `open_meter`, `device_sum` or, with `parts`, `meter_sum`."""
    options: dict[str, Annotated[str, BeforeValidator(_text)]] = {}
    """Handed to `open_meter`; docs/devices.md lists those of each module."""
    parts: tuple[MeterPartSection, ...] = Field(default=(), max_length=64)
    """Of a `meter_sum`: meters that enclose the site together, such as two feeds or every PDU."""
    accuracy_share: Annotated[_Number, Field(gt=0, lt=1)] | None = None
    """The truth lies within ± this share of a reading; unset: what the meter says of itself."""
    stale_seconds: Annotated[_Number, Field(ge=1, le=3600)] = 5.0
    """An older reading is none; for a meter that is scraped, more than twice the interval."""

    @model_validator(mode="after")
    def _has_parts(self) -> "MeterSection":
        if (self.module == METER_SUM) != bool(self.parts):
            raise ValueError("parts are those of a meter_sum, and it has at least one")
        return self


class SiteSection(_Section):
    """The site and its connection to the grid."""

    name: str = Field(default="site", min_length=1, max_length=64)
    """Shown on reports and in the ledger."""
    time_zone: str = "UTC"
    """Of schedules and programme hours, as in the tz database; times are stored in UTC."""
    overhead: OverheadSection = OverheadSection()
    hard_limit: HardLimitSection | None = None
    ramp: RampSection = RampSection()
    rating_watts: PositiveWatts | None = None
    """The most that the site can draw; a meter that shows far more is not believed."""
    meters: tuple[MeterSection, ...] = Field(default=(), max_length=16)
    """Where its power is read: the first that is well is believed, the sum of devices last."""
    reference_window_seconds: Annotated[_Number, Field(gt=0, le=86400)] = 60.0
    """Meter before: the mean over this long before an event's first notice is its reference."""
    settle_after_seconds: Seconds = 60.0
    """Watched after the restore, so that a report sees a rebound."""

    @model_validator(mode="before")
    @classmethod
    def _one_meter(cls, given: Any) -> Any:
        """``meter``, of which there could be one, is read as an order of one."""
        if not isinstance(given, dict) or "meter" not in given:
            return given
        if "meters" in given:
            raise ValueError("give meters, the order, or meter, which is one of them, not both")
        rest = {key: value for key, value in given.items() if key != "meter"}
        one = given["meter"]
        if not isinstance(one, dict) or one.get("module", OLD_DEVICE_SUM) == OLD_DEVICE_SUM:
            return rest
        return {**rest, "meters": [{"name": "site", **one}]}

    @field_validator("meters")
    @classmethod
    def _named_once(cls, meters: tuple[MeterSection, ...]) -> tuple[MeterSection, ...]:
        names = [meter.name for meter in meters]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the meter {twice[0]!r} is given twice")
        if sum(meter.module == DEVICE_SUM for meter in meters) > 1:
            raise ValueError("there is one sum of devices")
        return meters

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                f"there is no time zone {name!r}; write one like Europe/Berlin"
            ) from None
        return name


class ControlSection(_Section):
    """The loop, and where its state and its listeners are."""

    act: bool = False
    """Until this is true every plan is shown and nothing is touched."""
    tick_seconds: Annotated[_Number, Field(ge=0.1, le=60)] = 1.0
    """How often the world is read again; ten times a second around a command."""
    policy: str = Field(default="default", min_length=1, max_length=64)
    """Name of a file in policies/."""
    policy_dir: str | None = None
    """Folder of your own policies; those that come with gridaware where unset."""
    stall_seconds: Annotated[_Number, Field(gt=0, le=86400)] = 120.0
    """A job without a step for this long is called stalled."""
    silence_seconds: Annotated[_Number, Field(ge=1, le=3600)] = 5.0
    """An agent without a frame for this long counts as lost, and it counts the controller so."""
    signals_host: str = "127.0.0.1"
    """Where signed signals are heard."""
    signals_port: Port = 8781
    agents_host: str = "127.0.0.1"
    """Where the agents dial in, with TLS and an identity of their own."""
    agents_port: Port = 8782
    after_epoch: Annotated[int, Field(ge=0, lt=2**53)] = 0
    """Where the store was lost: the epoch that the agents obeyed, so that they obey this one."""
    state_dir: str = "state"
    """Ledger, series and control's socket; a relative path starts at this file's folder."""
    tls_dir: str = "tls"
    """The CA and the controller's certificate, as `gridaware init` writes them."""


class StoreSection(_Section):
    """The ledger and the series."""

    url: str | None = None
    """SQLAlchemy URL; SQLite in state_dir where unset."""


class RaySection(_Section):
    """The cluster that runs the jobs."""

    address: str = Field(default="http://127.0.0.1:8265", pattern=r"^https?://[^\s]+$")
    """Ray's dashboard, which serves the Jobs REST API."""
    token: str | None = None
    """Ray's token by reference, `env:NAME` or `file:/path`; never the token itself."""

    @field_validator("token")
    @classmethod
    def _by_reference(cls, token: str | None) -> str | None:
        if token is not None and not re.fullmatch(REFERENCE_PATTERN, token):
            raise ValueError("must name the token as env:NAME or file:/path, not hold it")
        return token


class WebSection(_Section):
    """The HTTP API and its pages."""

    host: str = "127.0.0.1"
    port: Port = 8780
    api_key_file: str = "api-keys"
    """Hashes of the API keys, as `gridaware init` writes them."""


class SignalLossSection(_Section):
    """What the agents do when an event without an end loses its controller."""

    hold_seconds: Seconds | None = 14400.0
    """The last limits are held for this long; null holds until a person releases them."""
    fallback_fraction: Annotated[_Number, Field(gt=0, le=1)] | None = None
    """Then each GPU goes to this share of its found limit; null restores the found limits."""


class FrequencySection(_Section):
    """The local frequency that fires a programme's armed responses on each node with a meter."""

    rule: str
    """`ercot-ffr`, `gb-dc-low`, `nordic-ffr-49.7`, `nordic-ffr-49.6` or `nordic-ffr-49.5`."""
    least_hold_seconds: Seconds | None = None
    """Nothing is given back before; as the rule has it where unset, like all that follows."""
    hold_seconds: Seconds | None = None
    """A response ends after it."""
    return_hz: _Number | None = None
    """At or above it a response may end."""
    return_seconds: Seconds | None = None
    """For so long it must stay there."""
    rearm_seconds: Seconds | None = None
    """From the end of a response to the next, at least."""

    @model_validator(mode="after")
    def _holds(self) -> "FrequencySection":
        if self.rule not in FREQUENCY_RULES:
            raise ValueError(f"rule must be one of {', '.join(FREQUENCY_RULES)}")
        _holding(self.value)
        return self

    def value(self) -> FrequencyRule:
        """The named rule with what the contract changes of it."""
        return replace(
            FREQUENCY_RULES[self.rule], **self.model_dump(exclude={"rule"}, exclude_none=True)
        )


class ProgrammeSection(_Section):
    """A contract with the grid."""

    id: str
    catalogue: str | None = None
    """Its entry in the catalogue (`gridaware programme list`); what is unset is as there."""
    deadline_seconds: Seconds = 60.0
    """From the start of an event to the full response."""
    settlement_interval_seconds: Annotated[_Number, Field(gt=0, le=86400)] = 60.0
    """The mean over this long must be at or below the target."""
    paid_band: tuple[Share, Annotated[_Number, Field(ge=1, le=10)]] = (1.0, 1.05)
    """Delivered over owed that is paid in full."""
    baseline: str = "meter_before_after"
    """Name of the function that settles it."""
    mandatory: bool = True
    """Whether the site must serve its events."""
    max_duration_seconds: Seconds | None = None
    """The longest event of the contract."""
    ramp_exempt: bool = False
    """Whether the connection agreement frees its events of `site.ramp.down` (fast reserve)."""
    signal_loss: SignalLossSection = SignalLossSection()
    obligation_hours: tuple[str, ...] | None = Field(default=None, max_length=64)
    """When an event is owed, local time: `Jun-Sep Mon-Fri 13:00-19:00`; others are voluntary."""
    armed_depths: tuple[Annotated[_Number, Field(gt=0, lt=1)], ...] | None = None
    """Reductions, as shares of the reference, that every node holds ready to be fired at once; [] =
    none; 0.1, 0.2, 0.3 and 0.4 where unset and the deadline is under a minute."""
    frequency: FrequencySection | None = None
    """The local frequency that fires them; needs a frequency meter in the agents' settings."""

    @model_validator(mode="after")
    def _holds(self) -> "ProgrammeSection":
        _holding(lambda: check_id("programme", self.id))
        _holding(lambda: BASELINES.get(self.baseline))
        _holding(self.values)
        return self

    def values(self, time_zone: str = "UTC") -> tuple[Programme, ...]:
        """As control and settlement know it: one for each version of its entry, the oldest first.

        ``time_zone``: of its obligation hours, where no entry of the catalogue says one.
        """
        loss, hours = self.signal_loss, self.obligation_hours
        stated: dict[str, Any] = {
            "programme_id": self.id,
            "deadline_seconds": self.deadline_seconds,
            "settlement_interval_seconds": self.settlement_interval_seconds,
            "paid_band": self.paid_band,
            "baseline": self.baseline,
            "mandatory": self.mandatory,
            "signal_loss": SignalLoss(loss.hold_seconds, loss.fallback_fraction),
            "max_duration_seconds": self.max_duration_seconds,
            "ramp_exempt": self.ramp_exempt,
            "armed_depths": self.armed_depths,
            "frequency": None if self.frequency is None else self.frequency.value(),
            "obligation": None if hours is None else Obligation.of(time_zone, hours),
        }
        if self.catalogue is None:
            return (Programme(**stated),)
        return inherited(stated, named(self.catalogue), self.given())

    def given(self) -> frozenset[str]:
        """The settings that its operator gave; of ``signal_loss``, key by key."""
        loss = (f"signal_loss.{key}" for key in self.signal_loss.model_fields_set)
        return frozenset(self.model_fields_set).union(loss)

    def shown(self, time_zone: str) -> SiteProgramme:
        """As people are shown it."""
        entry = None if self.catalogue is None else named(self.catalogue)
        return SiteProgramme(self.id, entry, self.values(time_zone), self.given())


class AuthoritySection(_Section):
    """The most a feed may ask for; beyond it a request is clamped and waits for a person."""

    least_watts: Watts = 0.0
    """The lowest site limit it may set, at the meter."""
    greatest_depth: Share = 1.0
    """The largest share of the reference it may take away."""
    hours_per_day: Annotated[_Number, Field(ge=0, le=24)] = 24.0
    """How long a day its events may last, together."""
    least_notice_seconds: Seconds = 0.0
    """The shortest notice it may give."""

    def value(self) -> Authority:
        """As control knows it."""
        return Authority(
            self.least_watts, self.greatest_depth, self.hours_per_day, self.least_notice_seconds
        )


class FeedSection(_Section):
    """A source of signals that is there from the start; others are added with `feed add`."""

    id: str
    kind: str = Field(min_length=1, max_length=64)
    """webhook, schedule or file."""
    programme: str = Field(min_length=1, max_length=64)
    """The id of the programme it speaks for."""
    authority: AuthoritySection = AuthoritySection()
    settings: dict[str, Any] = {}
    """The kind's own settings; secrets by reference (`env:NAME` or `file:/path`)."""

    @model_validator(mode="after")
    def _holds(self) -> "FeedSection":
        _holding(lambda: check_id("feed", self.id))
        return self

    def value(self, settings_json: str) -> FeedSpec:
        """As control knows it, with the kind's settings as canonical JSON."""
        return FeedSpec(self.id, self.kind, self.programme, self.authority.value(), settings_json)


class AgentsSection(_Section):
    """The nodes that should report."""

    expected: tuple[str, ...] = ()
    """Node ids; `gridaware doctor` names those that are absent."""
