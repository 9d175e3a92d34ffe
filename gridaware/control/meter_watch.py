"""One meter under watch: whether what it says can be the site, and how long its last word stands.

A site's power is a known part, which the GPUs' own sensors show, and a rest that moves slowly. So a
reading is doubted when

* it is no power at all, or 1.5 times more than the site can draw (MangoHud#1656, xpumanager#130);
* it leapt and no GPU did. A leap that stays is a load which came or went, and is believed;
* it is less than the GPUs alone draw, for seconds: a phase is lost, or the meter encloses less;
* it has not moved while the GPUs did: it is stuck, or a gateway repeats itself.

While a reading is doubted the last good one stands, flagged, for a bounded time.
"""

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from gridaware.domain.reading import EnergyReading, Reading

__all__ = ["DeviceWindow", "Devices", "MeterSpec", "MeterWatch"]

TOO_MUCH = 1.5
"""Times what the site can draw."""
JUMP_SHARE = 0.25
"""A step by more than this share of the site that no GPU explains is doubted."""
LEARN_SECONDS = 10.0
"""A doubted level that stays for this long is the site's."""
NEAR_SHARE = 0.10
"""Two readings closer than this are the same level."""
FLOOR_SHARE = 0.9
"""A site draws at least this share of what its GPUs' sensors say: those are within 5 % each."""
FLOOR_SECONDS = 3.0
"""Sensors and meter may be this far apart in time."""
STUCK_SECONDS = 5.0
STUCK_SHARE = 0.05
"""A value that is still the same so long after the GPUs moved by this share of it is stuck."""
HOLD_SECONDS = 5.0
"""A doubted meter's last good reading stands for this long."""
WINDOW_SECONDS = 5.0
REST_SECONDS = 10.0
"""Time constant of what the meter shows beyond the GPUs."""
SLOPE_DOUBT = 0.5
"""The overhead model may be wrong by this share of what the GPUs have just moved."""
LONGEST_DETAIL = 200


@dataclass(frozen=True, slots=True)
class MeterSpec:
    """One meter of a site's order, as its settings declare it."""

    name: str
    accuracy_share: float | None = None
    """The truth lies within ± this share of a reading; None = what the meter says of itself."""
    stale_seconds: float = 5.0
    """An older reading is none."""
    device_sum: bool = False
    """No instrument: the sum of the GPUs' sensors, through the overhead model."""


class Devices(NamedTuple):
    """What the GPUs' own sensors say."""

    gpu_watts: float
    meter_watts: float
    """At the meter, through the overhead model."""
    whole: bool
    """Every node of the site is in it."""


class DeviceWindow:
    """The sums of devices of the last seconds: a meter may be ahead of them, or behind."""

    def __init__(self) -> None:
        self._sums: deque[tuple[float, Devices]] = deque()

    def add(self, now_seconds: float, devices: Devices) -> None:
        """Take one sum in; one that is not whole says nothing, and nor do those before it."""
        if not devices.whole:
            self._sums.clear()
            return
        self._sums.append((now_seconds, devices))
        while self._sums[0][0] < now_seconds - WINDOW_SECONDS:
            self._sums.popleft()

    def __bool__(self) -> bool:
        return bool(self._sums)

    @property
    def newest_watts(self) -> float:
        """At the meter, now."""
        return self._sums[-1][1].meter_watts

    @property
    def low_watts(self) -> float:
        """Least at the meter."""
        return min(devices.meter_watts for _, devices in self._sums)

    @property
    def high_watts(self) -> float:
        """Most at the meter."""
        return max(devices.meter_watts for _, devices in self._sums)

    @property
    def low_gpu_watts(self) -> float:
        """Least that the GPUs alone drew."""
        return min(devices.gpu_watts for _, devices in self._sums)


class _Word(NamedTuple):
    reading: Reading
    energy: EnergyReading | None
    seconds: float
    """When it arrived, monotonic."""


class MeterWatch:
    """Follows one meter. :meth:`look` once a tick; :attr:`state` is what came of it."""

    def __init__(self, spec: MeterSpec, rating_watts: float | None = None) -> None:
        self.spec = spec
        self.state = "unread"
        """``well``, ``held``, ``ill`` or ``unread``."""
        self.problem, self.detail = "", ""
        """Of an ill meter: its alarm, and the fact behind it."""
        self._rating_watts = rating_watts
        self._new: _Word | None = None
        self._good: _Word | None = None
        self._failure = ""
        self._heard_seconds: float | None = None
        """When it last answered; before it did, when it was first looked at."""
        self._doubt: tuple[str, str] | None = None
        self._doubted_since = 0.0
        self._leap: tuple[float, float] | None = None
        """Level and beginning of a step that no GPU explains."""
        self._below_since: float | None = None
        self._rest_watts: float | None = None
        """What it shows beyond the devices."""
        self._rest_since = self._learned_seconds = 0.0
        self._greatest_watts = 0.0
        self._same = _Same()

    @property
    def accuracy_share(self) -> float | None:
        """As declared, else as the meter says; None = neither."""
        if self.spec.accuracy_share is not None or self._good is None:
            return self.spec.accuracy_share
        return self._good.reading.accuracy_share

    @property
    def good(self) -> tuple[Reading, EnergyReading | None] | None:
        """Its last good word."""
        return None if self._good is None else (self._good.reading, self._good.energy)

    def age_seconds(self, now_seconds: float) -> float:
        """Of its last good word; infinite where it has none."""
        if self._good is None:
            return inf
        return now_seconds - self._good.seconds + self._good.reading.age_seconds

    def take(self, reading: Reading, energy: EnergyReading | None, seconds: float) -> None:
        """It was read; the next look judges it."""
        self._new, self._failure = _Word(reading, energy, seconds), ""

    def fail(self, message: str) -> None:
        """It could not be read."""
        self._failure = message[:LONGEST_DETAIL]

    def look(self, now_seconds: float, window: DeviceWindow) -> None:
        """Judge what came in since the last look, and say how the meter is."""
        new, self._new = self._new, None
        if self._heard_seconds is None:
            self._heard_seconds = now_seconds
        if new is not None:
            self._heard_seconds = new.seconds
            doubt = self._doubt_of(new.reading.watts, now_seconds, window)
            if doubt is None:
                self._good, self._doubt = new, None
                self._learn(new.reading.watts, now_seconds, window)
            else:
                if self._doubt is None:
                    self._doubted_since = now_seconds
                self._doubt = doubt
        self._settle(now_seconds)

    def _settle(self, now: float) -> None:
        stale = self.spec.stale_seconds
        assert self._heard_seconds is not None
        age, quiet = self.age_seconds(now), now - self._heard_seconds
        if quiet > stale:
            self._doubt = None
        held = self._doubt is not None and now - self._doubted_since <= HOLD_SECONDS
        if self._doubt is not None and not (held and age <= stale):
            self.state = "ill"
            self.problem, self.detail = self._doubt
        elif self._good is None and quiet <= stale:
            self.state, self.problem, self.detail = "unread", "", ""
        elif age > stale:
            self.state = "ill"
            if quiet > stale or self._failure:
                self.problem = "meter-silent"
                self.detail = self._failure or f"it has not answered for {stale:g} s"
            else:
                self.problem = "meter-stale"
                self.detail = f"its reading is older than {stale:g} s"
        else:
            doubtful = self._doubt is not None or quiet > stale / 2
            self.state, self.problem, self.detail = "held" if doubtful else "well", "", ""

    def _doubt_of(self, watts: float, now: float, window: DeviceWindow) -> tuple[str, str] | None:
        """The alarm and the fact, where the reading cannot be believed."""
        if not 0.0 <= watts < inf:  # false for NaN, too
            return "meter-implausible", f"it reads {watts:g} W"
        rating = self._rating_watts
        if rating is not None and watts >= TOO_MUCH * rating:
            return "meter-implausible", f"it reads {watts:.0f} W; the site is rated {rating:.0f} W"
        if window and self._is_below(watts, now, window):
            least = window.low_gpu_watts
            return "meter-implausible", f"it reads {watts:.0f} W; the GPUs alone draw {least:.0f} W"
        if window and self._same.is_stuck(watts, now, window.newest_watts):
            return "meter-stuck", f"it reads {watts:.0f} W whatever the GPUs draw"
        leapt = self._leapt(watts, now, window)
        if not leapt:
            self._leap = None
        elif not self._stays(watts, now):
            return "meter-implausible", leapt
        return None

    def _is_below(self, watts: float, now: float, window: DeviceWindow) -> bool:
        if watts >= FLOOR_SHARE * window.low_gpu_watts:
            self._below_since = None
            return False
        if self._below_since is None:
            self._below_since = now
        return now - self._below_since >= FLOOR_SECONDS

    def _leapt(self, watts: float, now: float, window: DeviceWindow) -> str:
        """What no GPU explains, in words; empty where everything is explained."""
        if not window:
            seen = self._greatest_watts
            if 0 < TOO_MUCH * seen <= watts:
                return f"it reads {watts:.0f} W; never more than {seen:.0f} W was seen"
            return ""
        if self._rest_watts is None or now - self._rest_since < LEARN_SECONDS:
            return ""
        low, high = window.low_watts, window.high_watts
        doubt = SLOPE_DOUBT * (high - low)
        beyond = max(
            self._rest_watts + low - doubt - watts, watts - self._rest_watts - high - doubt
        )
        if beyond <= JUMP_SHARE * (self._rest_watts + high):
            return ""
        return f"it reads {watts:.0f} W; {beyond:.0f} W of the step are no GPU's"

    def _stays(self, watts: float, now: float) -> bool:
        """Whether the level after a leap has stayed for long enough to be the site's."""
        if self._leap is None or abs(watts - self._leap[0]) > NEAR_SHARE * self._leap[0]:
            self._leap = (watts, now)
        if now - self._leap[1] < LEARN_SECONDS:
            return False
        self._leap = self._rest_watts = None
        self._greatest_watts = 0.0
        return True

    def _learn(self, watts: float, now: float, window: DeviceWindow) -> None:
        """Follow what the meter shows beyond the GPUs."""
        self._greatest_watts = max(self._greatest_watts, watts)
        if not window:
            return
        seen = watts - window.newest_watts
        if self._rest_watts is None:
            self._rest_watts, self._rest_since = seen, now
        known, step = now - self._rest_since, now - self._learned_seconds
        share = min(step / max(min(known, REST_SECONDS), step), 1.0) if known > 0 else 1.0
        self._rest_watts += share * (seen - self._rest_watts)
        self._learned_seconds = now


class _Same:
    """How long a value has stayed the same, and how far the devices moved meanwhile."""

    def __init__(self) -> None:
        self._watts = -1.0
        self._low = self._high = 0.0
        self._moved_since: float | None = None
        self._step = inf
        """The smallest step it was seen to make: its resolution."""

    def is_stuck(self, watts: float, now: float, device_watts: float) -> bool:
        """Take one reading in, and say whether it should have moved by now."""
        if watts != self._watts:
            if self._watts >= 0:
                self._step = min(self._step, abs(watts - self._watts))
            self._watts, self._moved_since = watts, None
            self._low = self._high = device_watts
            return False
        self._low, self._high = min(self._low, device_watts), max(self._high, device_watts)
        resolution = self._step if self._step < inf else 0.0
        if self._high - self._low <= max(STUCK_SHARE * watts, 2 * resolution):
            return False
        if self._moved_since is None:
            self._moved_since = now
        return now - self._moved_since >= STUCK_SECONDS
