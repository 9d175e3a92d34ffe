"""The watch on the grid's frequency: from a meter's samples to what the lease holder fires.

No frame is needed: the meter named in the agent's settings speaks to this process, and what it
fires is armed on this node. So it works with the controller, Ray and the network down.

::

    meter ─▶ source (its own thread) ─▶ FrequencyTrigger of each armed programme ─▶ LeaseHolder.fire

The source may block, hang or fail in any way: it has a thread of its own, and silence is told once.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from importlib import import_module
from math import isfinite
from typing import Protocol, cast

from gridaware.clock import Clock
from gridaware.control.ports import FrequencySource
from gridaware.domain.errors import ConfigError, Unavailable
from gridaware.domain.frequency import FREEZE_SECONDS, FrequencyRule, FrequencyTrigger, Step
from gridaware.domain.lease import ArmedResponse
from gridaware.node.actions import Action, Fault, Firing
from gridaware.node.armed import ArmedResponses
from gridaware.node.settings import FrequencySettings

__all__ = ["CAUSE", "FrequencyWatch", "load_source"]

_log = logging.getLogger(__name__)

_SILENT_SECONDS = 2.0
"""Without a new sample for this long the meter is silent."""
_FIRST_RETRY_SECONDS = 0.2
_LAST_RETRY_SECONDS = 10.0
_DEPTH_TOLERANCE = 1e-9

CAUSE = "frequency"
"""What the controller is told of as the cause."""

_Order = tuple[str, int | None, float]
"""Programme, level (None = let go), Hz."""
_Ladder = tuple[FrequencyRule, tuple[float, ...]]
"""What a programme answers, and the depths of its levels."""


class Holder(Protocol):
    """The lease holder, as far as the watch needs it."""

    armed: ArmedResponses

    @property
    def firing(self) -> Firing | None:
        """What put the lease in force, where that was this node itself."""
        ...

    def fire(
        self, programme_id: str, level: int, now: float, wall: datetime, cause: str, measured: float
    ) -> list[Action]:
        """Put an armed response in force."""
        ...

    def let_go(self, programme_id: str, now: float) -> list[Action]:
        """What was fired for a programme is over."""
        ...


class FrequencyWatch:
    """Watches one meter for all programmes of a node.

    :meth:`start`, :meth:`look` and :meth:`stop` belong on the event loop, as do the actions that
    ``carry`` is given; the rest runs on the source's thread. The lock is held for microseconds.
    """

    def __init__(
        self,
        settings: FrequencySettings,
        holder: Holder,
        clock: Clock,
        carry: Callable[[Iterable[Action]], None],
    ) -> None:
        self._settings = settings
        self._holder = holder
        self._clock = clock
        self._carry = carry
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._heard_at = clock.boot_seconds()
        self._heard_t: float | None = None
        self._hz = 0.0
        self._blip_at = float("-inf")
        self._silent = False
        self._unwatched: frozenset[str] = frozenset()
        self._source: FrequencySource | None = None
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Listen to the meter, if the node has one."""
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._clock.boot_seconds()
        if self._settings.module:
            threading.Thread(target=self._run, name="frequency", daemon=True).start()

    def stop(self) -> None:
        """Fire nothing any more; a source that hangs is left behind."""
        self._stopped.set()
        source = self._source
        if source is not None:
            source.close()

    def look(self) -> None:
        """About once a second, and when responses were armed: watch for what is armed now.

        What has fired goes on until it lets go, whatever is armed. Time ends it, too, and a meter
        that is silent is told of.
        """
        if self._loop is None or self._stopped.is_set():
            return
        now = self._clock.boot_seconds()
        ladders = _ladders(self._holder.armed.ready(now))
        with self._lock:
            self._arm(ladders)
            hz, silent = self._hz, now - self._heard_at > _SILENT_SECONDS
            orders = [order for w in self._watched.values() if (order := w.tick(hz, now))]
        for order in orders:
            self._carry_out(*order)
        if self._settings.module and silent:
            self._fail("frequency-silent", f"no sample of the meter for {_SILENT_SECONDS:g} s")
        self._tell_unwatched(frozenset(ladders))

    def _arm(self, ladders: Mapping[str, "_Ladder"]) -> None:
        for programme_id in self._watched.keys() - ladders.keys():
            if not self._watched[programme_id].trigger.level:
                del self._watched[programme_id]
        for programme_id, (rule, depths) in ladders.items():
            known = self._watched.get(programme_id)
            if known is None or (known.trigger.rule != rule and not known.trigger.level):
                watched = _Watched(programme_id, rule, depths)
                self._watched[programme_id] = watched
                firing = self._holder.firing  # of this agent before it was started again
                if firing is not None and firing.programme_id == programme_id:
                    watched.resume(firing)
            else:
                known.depths = depths

    def _carry_out(self, programme_id: str, level: int | None, hz: float) -> None:
        now = self._clock.boot_seconds()
        if level is None:
            self._carry(self._holder.let_go(programme_id, now))
        else:
            wall = self._clock.wall()
            self._carry(self._holder.fire(programme_id, level, now, wall, CAUSE, hz))

    # The source's thread --------------------------------------------------------------------

    def _run(self) -> None:
        wait = _FIRST_RETRY_SECONDS
        while not self._stopped.is_set():
            heard = self._heard_t
            try:
                self._source = load_source(self._settings.module, self._settings.options)
                for t_seconds, hz in self._source.samples():
                    self._take(float(t_seconds), float(hz))
                    if self._stopped.is_set():
                        return
                raise Unavailable("frequency-source", "the meter's samples ended")
            except Exception as error:  # noqa: BLE001 - whatever a source of someone else raises
                if self._stopped.is_set():
                    return
                code = getattr(error, "code", "frequency-source")
                self._call(self._fail, code, f"{self._settings.module}: {error}")
            wait = _FIRST_RETRY_SECONDS if self._heard_t != heard else wait
            self._stopped.wait(wait)
            wait = min(2 * wait, _LAST_RETRY_SECONDS)

    def _take(self, t_seconds: float, hz: float) -> None:
        """One sample: decided here, carried out on the event loop."""
        now = self._clock.boot_seconds()
        orders: list[_Order] = []
        blip = False
        with self._lock:
            fresh = isfinite(t_seconds) and t_seconds != self._heard_t
            if fresh:
                self._heard_at, self._heard_t, self._hz = now, t_seconds, hz
            for watched in self._watched.values():
                order, odd = watched.hear(t_seconds, hz, now)
                blip = blip or odd
                if order is not None:
                    orders.append(order)
        for order in orders:
            self._call(self._carry_out, *order)
        if self._silent and fresh:
            self._silent = False
            _log.warning("the frequency meter is heard again")
        if blip:
            self._tell_blip(hz, now)

    def _tell_blip(self, hz: float, now: float) -> None:
        """Once for those that follow one another."""
        first, self._blip_at = now - self._blip_at > FREEZE_SECONDS, now
        if first:
            text = f"{hz:g} Hz is no frequency: nothing is given back for {FREEZE_SECONDS:g} s"
            self._call(self._tell, "frequency-blip", text)

    def _call(self, function: object, *arguments: object) -> None:
        """On the event loop, unless that is over."""
        if self._loop is not None and not self._stopped.is_set():
            try:
                self._loop.call_soon_threadsafe(cast("_Callback", function), *arguments)
            except RuntimeError:
                self._stopped.set()

    # What is told ---------------------------------------------------------------------------

    def _fail(self, code: str, message: str) -> None:
        """Once, until the meter is heard again."""
        if not self._silent:
            self._silent = True
            self._tell(code, message)

    def _tell(self, code: str, message: str) -> None:
        self._carry([Fault(code, None, message)])

    def _tell_unwatched(self, programmes: frozenset[str]) -> None:
        new = programmes - self._unwatched
        self._unwatched = programmes
        if new and not self._settings.module:
            names = ", ".join(sorted(new))
            self._tell(
                "frequency-unwatched", f"{names} must answer the frequency, and no meter is named"
            )


class _Watched:
    """One programme: its trigger, and the ladder that it is answered with."""

    def __init__(self, programme_id: str, rule: FrequencyRule, depths: tuple[float, ...]) -> None:
        self.trigger = FrequencyTrigger(rule)
        self.depths = depths
        self._programme_id = programme_id
        self._level: int | None = None
        self._fired_at = 0.0

    def resume(self, firing: Firing) -> None:
        """Take up a response of this agent before it was started again."""
        self.trigger.resume(min(firing.depth / self.depths[-1], 1.0), firing.at)
        self._level, self._fired_at = firing.level, firing.at

    def hear(self, t_seconds: float, hz: float, now: float) -> tuple[_Order | None, bool]:
        """What a sample asks for, and whether it was a blip."""
        verdict = self.trigger.sample(t_seconds, hz, now)
        return self._order(verdict.step, verdict.level, hz, now), verdict.blip

    def tick(self, hz: float, now: float) -> _Order | None:
        """What time alone asks for."""
        verdict = self.trigger.tick(now)
        return self._order(verdict.step, verdict.level, hz, now)

    def _order(self, step: Step, share: float, hz: float, now: float) -> _Order | None:
        if step is Step.RELEASE:
            self._level = None
            return (self._programme_id, None, hz)
        if step is not Step.FIRE:
            return None
        level = _level_for(share, self.depths)
        renewed = now - self._fired_at >= self.trigger.rule.hold_seconds / 2
        if level == self._level and not renewed:
            return None
        self._level, self._fired_at = level, now
        return (self._programme_id, level, hz)


class _Callback(Protocol):
    def __call__(self, *arguments: object) -> object: ...


def load_source(path: str, options: Mapping[str, str]) -> FrequencySource:
    """The meter that ``open_frequency`` of the module ``path`` gives; not yet opened.

    Raises:
        ConfigError: there is no such module, it exposes no source, or the options are wrong.
    """
    try:
        module = import_module(path)
    except ImportError as error:
        raise ConfigError("frequency-import", f"cannot import {path}: {error}") from error
    make = getattr(module, "open_frequency", None)
    if make is None:
        raise ConfigError("frequency-import", f"module {path} has no open_frequency")
    return cast("FrequencySource", make(options))


def _ladders(
    responses: Iterable[ArmedResponse],
) -> dict[str, _Ladder]:
    """By programme that answers the frequency."""
    rungs: dict[str, tuple[FrequencyRule, dict[int, float]]] = {}
    for response in responses:
        if response.frequency is not None:
            _, depths = rungs.setdefault(response.programme_id, (response.frequency, {}))
            depths[response.level] = response.depth
    return {
        programme_id: (rule, tuple(depths[level] for level in sorted(depths)))
        for programme_id, (rule, depths) in rungs.items()
        if sorted(depths) == list(range(len(depths))) and min(depths.values()) > 0
    }


def _level_for(share: float, depths: tuple[float, ...]) -> int:
    """The shallowest level that gives at least this share of the deepest."""
    owed = share * depths[-1] - _DEPTH_TOLERANCE
    return next((level for level, depth in enumerate(depths) if depth >= owed), len(depths) - 1)
