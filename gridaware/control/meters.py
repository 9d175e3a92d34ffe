"""Which of the site's meters speaks: the best that is well, in the order the settings declare.

When the meter in use falls ill the next in the order takes over at once. A better one takes over
again when it has been well for a while, and for longer the more often it has failed, so that one
that comes and goes moves nothing. The sum of devices stands at the end of every order: a site is
never without a figure, and every figure says whose it is and how far it can be trusted.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gridaware.control.meter_watch import Devices, DeviceWindow, MeterSpec, MeterWatch
from gridaware.domain.moment import Moment
from gridaware.domain.reading import (
    Boundary,
    EnergyReading,
    MeterState,
    Method,
    Quality,
    Reading,
)

__all__ = ["Choice", "Devices", "MeterOrder", "MeterSpec"]

DEVICE_SUM = MeterSpec("device_sum", device_sum=True)
METER_ACCURACY = 0.01
"""Of a meter that nobody says anything of: class 1 of IEC 62053-21."""
DEVICE_SUM_ACCURACY = 0.02
"""Of a sum of devices that stands in for a meter: that one has shown what lies between."""
RETURN_SECONDS = 10.0
"""A better meter must have been well for this long before it is used again."""
LONGEST_RETURN_SECONDS = 300.0
FORGIVEN_SECONDS = 600.0
"""A meter that fails again within this time is waited for twice as long."""


class Choice(NamedTuple):
    """What stands for the site's power at one tick."""

    reading: Reading
    energy: EnergyReading | None
    states: tuple[MeterState, ...]
    """Of every meter, in their order; none where only devices are summed."""


class _Place:
    """One place of the order: a meter under watch, or the sum of devices."""

    def __init__(self, spec: MeterSpec, rating_watts: float | None) -> None:
        self.spec = spec
        self.watch = None if spec.device_sum else MeterWatch(spec, rating_watts)
        self.usable = False
        self.well_since: float | None = None
        self.wait_seconds = 0.0
        self._fell_seconds = -1e9

    @property
    def accuracy_share(self) -> float:
        if self.watch is None:
            share, usual = self.spec.accuracy_share, DEVICE_SUM_ACCURACY
        else:
            share, usual = self.watch.accuracy_share, METER_ACCURACY
        return usual if share is None else share

    def look(self, now: float, window: DeviceWindow, devices: Devices) -> None:
        if self.watch is not None:
            self.watch.look(now, window)
        state = self._state(devices)
        self.usable = state in {"well", "held"}
        if state != "well":
            self.well_since = None
        elif self.well_since is None:
            self.well_since = now
        if state == "ill":
            self.wait_seconds = max(self.wait_seconds, RETURN_SECONDS)

    def ready(self, now: float) -> bool:
        """Whether it has been well for long enough to take over from a worse one."""
        return self.well_since is not None and now - self.well_since >= self.wait_seconds

    def fall(self, now: float) -> None:
        """It failed while it was in use."""
        again = now - self._fell_seconds < FORGIVEN_SECONDS
        self.wait_seconds = (
            min(2 * self.wait_seconds, LONGEST_RETURN_SECONDS) if again else RETURN_SECONDS
        )
        self._fell_seconds = now

    def state(self, devices: Devices) -> MeterState:
        name, share = self.spec.name, self.accuracy_share
        if self.watch is None:
            return MeterState(name, self._state(devices), share, round(devices.meter_watts, 1))
        watch, good = self.watch, self.watch.good
        watts = None if good is None else round(good[0].watts, 1)
        return MeterState(name, watch.state, share, watts, watch.problem, watch.detail)

    def _state(self, devices: Devices) -> str:
        if self.watch is not None:
            return self.watch.state
        return "well" if devices.whole else "ill"


class MeterOrder:
    """A site's meters, the best first.

    Args:
        specs: as declared; the sum of devices is appended where it is not among them.
        rating_watts: the most the site can draw; None = what it was seen to draw.
    """

    def __init__(
        self, specs: Sequence[MeterSpec] = (), *, rating_watts: float | None = None
    ) -> None:
        whole = [*specs] if any(spec.device_sum for spec in specs) else [*specs, DEVICE_SUM]
        self._places = [_Place(spec, rating_watts) for spec in whole]
        self._by_name = {place.spec.name: place.watch for place in self._places if place.watch}
        self._window = DeviceWindow()
        self._current: int | None = None

    def take(
        self, name: str, reading: Reading, energy: EnergyReading | None, seconds: float
    ) -> None:
        """A meter was read."""
        if energy is not None:  # another meter's counter is another counter
            energy = replace(energy, epoch=f"{name}/{energy.epoch}")
        self._by_name[name].take(reading, energy, seconds)

    def fail(self, name: str, message: str) -> None:
        """A meter could not be read, and why."""
        self._by_name[name].fail(message)

    def choose(self, now: Moment, devices: Devices) -> Choice:
        """Who speaks now, and what is said."""
        self._window.add(now.seconds, devices)
        for place in self._places:
            place.look(now.seconds, self._window, devices)
        self._move(now.seconds)
        states: tuple[MeterState, ...] = ()
        if self._by_name:
            states = tuple(place.state(devices) for place in self._places)
        place = self._places[self._current] if self._current is not None else self._last_resort()
        if place.watch is None or place.watch.good is None:
            return Choice(self._sum(place, now, devices), None, states)
        reading, energy = place.watch.good
        held = place.watch.state == "held"
        return Choice(
            replace(
                reading,
                meter=place.spec.name,
                accuracy_share=place.accuracy_share,
                age_seconds=round(place.watch.age_seconds(now.seconds), 3),
                quality=Quality.HELD if held else reading.quality,
            ),
            energy,
            states,
        )

    def _move(self, now: float) -> None:
        """Stay, fall to the best that is usable, or go back to a better one that lasts."""
        if self._current is not None and not self._places[self._current].usable:
            self._places[self._current].fall(now)
            self._current = None
        for index, place in enumerate(self._places):
            if index == self._current:
                return
            if place.ready(now) or (self._current is None and place.usable):
                self._current = index
                return

    def _last_resort(self) -> _Place:
        return next(place for place in self._places if place.watch is None)

    def _sum(self, place: _Place, now: Moment, devices: Devices) -> Reading:
        quality = Quality.GOOD if place is self._places[0] else Quality.SUSPECT
        # Until the meters were read for the first time nobody has been chosen.
        chosen = self._by_name and all(
            other.watch is None or other.watch.state != "unread" for other in self._places
        )
        return Reading(
            watts=round(devices.meter_watts, 1),
            at=now.wall,
            boundary=Boundary.SITE,
            method=Method.DEVICE_SUM,
            quality=quality if devices.whole else Quality.MISSING,
            meter=place.spec.name if chosen else "",
            accuracy_share=place.accuracy_share if self._by_name else None,
        )
