"""Keeps every feed going: polls on a cadence, backs off, and knows how each one is.

A feed that fails, is slow or hangs delays no other and releases nothing: from a poll that did not
succeed no conclusion is drawn. APScheduler gives the cadence, by its own reading of the machine's
clock; everything that is recorded or decided here goes by the injected clock. Should the machine's
clock be set back, APScheduler would sit still until it has caught up: a watch wakes it.
"""

import logging
import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from gridaware.clock import Clock
from gridaware.control.ports import FeedReport, FeedTelemetry
from gridaware.domain.advisory import Advisory
from gridaware.domain.errors import Bug, GridawareError, NotFound, Refused, Unavailable
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import EventRequest, Signal
from gridaware.feeds import Feed, FeedContext, open_feed
from gridaware.feeds.cadence import Cadence
from gridaware.feeds.delivery import DeliveryQueue
from gridaware.feeds.health import FeedHealth, HealthRecord
from gridaware.feeds.kind import Listens, PolledSettings, Polls, Reports, Tells, check_provenance
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.rate import Bucket

__all__ = ["Emit", "FeedRunner", "OnRefused", "OnUntold", "RunningFeed"]

log = logging.getLogger(__name__)

Emit = Callable[[Signal], object]
"""Hands a signal to control and returns once it is durable; raises what control answers."""
OnRefused = Callable[[str, str, str, str], None]
"""(feed id, code, message, raw): a message was refused at the door. Any thread; quick."""
OnUntold = Callable[[str, FeedReport, GridawareError], None]
"""(feed id, report, error): a status could not be delivered. Any thread; quick."""

FEEDS_AT_MOST = 256
BACK_OFF_SECONDS_AT_MOST = 60.0
HUNG_SECONDS = 30.0
DELIVERED_AT_MOST = 20_000
RAW_AT_MOST = 4096
REFUSALS_PER_SECOND = 5.0
REFUSALS_AT_ONCE = 50.0
WAKES_PER_SECOND = 5.0
WAKES_AT_ONCE = 5.0
"""Polls that wake-ups ask for: a flood of them is five a second."""
TELLS_AT_MOST = 256
SAMPLES_AT_MOST = 3600
"""An hour of a grid side that does not take them."""
ADVISORIES_AT_MOST = 2000
"""Of one feed; the oldest give way."""

_Key = tuple[str, int, EventRequest | None]


class RunningFeed:
    """One feed at work: what it delivered, how it is, and when it may be asked again.

    Args:
        spec: what to open.
        registered_at: when it was registered first.
        clock: for everything recorded.
        on_refused: hears of messages refused at the door.
        memory: what the feed still knows of the time before a restart.
        emit: takes signals of polls that a wake-up asked for; None = nobody takes them.
    """

    def __init__(
        self,
        spec: FeedSpec,
        registered_at: datetime,
        clock: Clock,
        on_refused: OnRefused,
        *,
        memory: FeedMemory | None = None,
        emit: Emit | None = None,
    ) -> None:
        self.spec = spec
        self.memory = memory or FeedMemory()
        self._clock = clock
        self._on_refused = on_refused
        self._emit = emit
        self._closing = threading.Event()
        self._polling = threading.Lock()
        self._woken = False
        self._wakes = Bucket(clock, WAKES_PER_SECOND, WAKES_AT_ONCE)
        self._delivered: OrderedDict[_Key, None] = OrderedDict()
        self._advisories: OrderedDict[tuple[str, str, datetime], Advisory] = OrderedDict()
        self._not_before_seconds = float("-inf")
        self._refusals = Bucket(clock, REFUSALS_PER_SECOND, REFUSALS_AT_ONCE)
        self._suppressed = 0
        self._lock = threading.Lock()
        self.feed: Feed[Any] = open_feed(
            spec,
            FeedContext(
                spec.feed_id,
                clock,
                registered_at,
                self.refused,
                self.memory,
                self._advise,
                self.wake,
            ),
        )
        settings = self.feed.settings
        polled = isinstance(self.feed, Polls) and isinstance(settings, PolledSettings)
        self.poll_seconds: float | None = settings.poll_seconds if polled else None
        hung_after = max(HUNG_SECONDS, 3 * (self.poll_seconds or 0))
        self.health = HealthRecord(spec.feed_id, spec.kind, clock, hung_after)
        if self.memory.broken:
            self.refused(Unavailable("feed-memory-broken", self.memory.broken), "")

    @property
    def reports(self) -> bool:
        """Whether its grid side wants to hear what the site draws."""
        return isinstance(self.feed, Reports)

    @property
    def closed(self) -> bool:
        """Whether it delivers nothing more."""
        return self._closing.is_set()

    def close(self) -> None:
        """Deliver nothing more, and let its connection end."""
        self._closing.set()
        if isinstance(self.feed, Listens):
            self.feed.close()

    def poll_once(self, emit: Emit) -> None:
        """Ask the feed once and hand over what is new, unless it is backing off. Never raises."""
        if self.closed or self._clock.monotonic_seconds() < self._not_before_seconds:
            return
        if not self._polling.acquire(blocking=False):
            return  # a poll that was woken is under way
        try:
            self._poll(emit)
        finally:
            self._polling.release()

    def wake(self) -> None:
        """Poll at once, on a thread of its own; a feed that does not poll is left alone."""
        if self.closed or self._emit is None or not isinstance(self.feed, Polls):
            return
        with self._lock:
            if self._woken:
                return
            self._woken = True
        threading.Thread(
            target=self._poll_woken,
            args=(self._emit,),
            name=f"feed-{self.spec.feed_id}-woken",
            daemon=True,
        ).start()

    def listen(self, emit: Emit) -> None:
        """Keep the feed's own connection until it is closed; returns then. Never raises."""
        assert isinstance(self.feed, Listens)
        times = 0

        def heard() -> None:
            nonlocal times
            times = 0
            self.health.succeeded()

        while not self.closed:
            lost: GridawareError
            try:
                self.feed.listen(lambda signal: self._deliver(signal, emit), heard)
                lost = Unavailable("feed-connection-lost", "the connection has ended")
            except GridawareError as error:
                lost = error
            except Exception as error:  # a kind of a third party may raise anything
                log.exception("feed %s failed", self.spec.feed_id)
                lost = Bug("feed-failed", f"{type(error).__name__} in the feed")
            if not self.closed:
                # Polls go on meanwhile: a lost connection says nothing of what they ask.
                self.health.failed(lost)
                wait = min(2.0**times, BACK_OFF_SECONDS_AT_MOST)
                times = min(times + 1, 10)
                self._closing.wait(wait * random.uniform(0.8, 1.2))  # noqa: S311 - no secret

    def advisories(self) -> tuple[Advisory, ...]:
        """What it heard that only informs, the newest last."""
        with self._lock:
            return tuple(self._advisories.values())

    def refused(self, error: GridawareError, raw: str) -> None:
        """Report one refused message; a flood of them is counted and reported as a number."""
        self.health.count(refused=1)
        with self._lock:
            if not self._refusals.take():
                self._suppressed += 1
                return
            suppressed, self._suppressed = self._suppressed, 0
        if suppressed:
            message = f"{suppressed} more refusals came too fast to be recorded one by one"
            self._on_refused(self.spec.feed_id, "refusals-suppressed", message, "")
        self._on_refused(self.spec.feed_id, error.code, error.message, raw[:RAW_AT_MOST])

    def _poll_woken(self, emit: Emit) -> None:
        while not (self._wakes.take() or self.closed):
            self._closing.wait(1 / WAKES_PER_SECOND)
        with self._polling:  # one under way may have asked before whatever woke this one
            with self._lock:
                self._woken = False
            if not self.closed:
                self._poll(emit)

    def _poll(self, emit: Emit) -> None:
        assert isinstance(self.feed, Polls)
        self.health.began()
        try:
            self._hand_over(self.feed.poll(), emit)
        except GridawareError as error:
            self._failed(error)
        except Exception as error:  # a kind of a third party may raise anything
            log.exception("feed %s failed", self.spec.feed_id)
            self._failed(Bug("feed-failed", f"{type(error).__name__} in the feed"))
        else:
            self.health.succeeded()

    def _advise(self, advisory: Advisory) -> None:
        if advisory.feed_id != self.spec.feed_id:
            raise Bug("feed-impostor", f"feed {self.spec.feed_id} advises as {advisory.feed_id}")
        with self._lock:
            self._advisories[advisory.key] = advisory
            self._advisories.move_to_end(advisory.key)
            while len(self._advisories) > ADVISORIES_AT_MOST:
                self._advisories.popitem(last=False)

    def _hand_over(self, signals: Sequence[Signal], emit: Emit) -> None:
        for signal in signals:
            if self.closed:
                return
            try:
                self._deliver(signal, emit)
            except GridawareError as error:
                if error.retryable or isinstance(error, Bug):
                    raise  # not durable: the next poll brings it, and all behind it, again

    def _deliver(self, signal: Signal, emit: Emit) -> object:
        """Hand one over; what control answered, or None where that was done before.

        Raises:
            GridawareError: control has refused and recorded it, so asking again would change
                nothing; or, where that is retryable, it is not durable.
        """
        key = (signal.source_id, signal.revision, signal.request)
        if key in self._delivered or self.closed:
            return None
        check_provenance(self.spec.feed_id, signal)
        refusal: GridawareError | None = None
        receipt: object = None
        try:
            receipt = emit(signal)
        except GridawareError as error:
            if error.retryable:
                raise
            refusal = error
        self.health.count(signals=refusal is None, refused=refusal is not None)
        with self._lock:
            self._delivered[key] = None
            while len(self._delivered) > DELIVERED_AT_MOST:
                self._delivered.popitem(last=False)
        if refusal is not None:
            raise refusal
        return receipt

    def _failed(self, error: GridawareError) -> None:
        """Note a failed poll, and leave the other side alone for a while."""
        failures = self.health.failed(error)
        wait = min(
            (self.poll_seconds or 1.0) * 2.0 ** min(failures - 1, 10), BACK_OFF_SECONDS_AT_MOST
        )
        self._not_before_seconds = self._clock.monotonic_seconds() + wait


class FeedRunner:
    """Every registered feed; feeds may be added and removed while it runs.

    Args:
        clock: for everything recorded and decided.
        emit: takes the signals of polls, on the poll's own thread.
        on_refused: hears of messages refused at the door, pushed or polled.
        on_untold: hears of statuses that could not be delivered.
        memory_dir: where each feed's memory is kept; None = in this process alone.
    """

    def __init__(
        self,
        clock: Clock,
        emit: Emit,
        on_refused: OnRefused,
        on_untold: OnUntold,
        memory_dir: Path | None = None,
    ) -> None:
        self._clock = clock
        self._emit = emit
        self._on_refused = on_refused
        self._on_untold = on_untold
        self._memory_dir = memory_dir
        self._started = False
        self._lock = threading.Lock()
        self._feeds: dict[str, tuple[RunningFeed, _Outward, str]] = {}
        self._serial = count(1)
        self._cadence = Cadence(clock)
        self._strangers = Bucket(clock, REFUSALS_PER_SECOND, REFUSALS_AT_ONCE)

    def start(self) -> None:
        """Begin to poll and to listen."""
        self._cadence.start()
        with self._lock:
            self._started = True
            entries = list(self._feeds.values())
        for running, _, _ in entries:
            self._listen(running)

    def stop(self) -> None:
        """Poll and tell no more; returns at once, whatever hangs."""
        self._cadence.stop()
        for feed_id in [health.feed_id for health in self.health()]:
            self.remove(feed_id)

    def add(self, spec: FeedSpec, registered_at: datetime) -> None:
        """Open a feed and begin to poll it.

        Args:
            spec: what to open.
            registered_at: when it was registered first; the same after each restart.

        Raises:
            Refused: there is one by that id (``feed-exists``), or there are 256
                (``feeds-too-many``).
            NotFound: there is no such kind.
            ConfigError: its settings are wrong.
        """
        memory = None
        if self._memory_dir is not None:
            memory = FeedMemory(self._memory_dir / f"{spec.feed_id}.json")
        running = RunningFeed(
            spec, registered_at, self._clock, self._on_refused, memory=memory, emit=self._emit
        )
        outward = _Outward(running, self._on_untold)
        # A new name each time: the old one may still be held by a poll that hangs.
        name = f"{spec.feed_id}#{next(self._serial)}"
        with self._lock:
            if spec.feed_id in self._feeds:
                raise Refused("feed-exists", f"there is a feed {spec.feed_id!r} already")
            if len(self._feeds) >= FEEDS_AT_MOST:
                raise Refused("feeds-too-many", f"there are {FEEDS_AT_MOST} feeds already")
            self._feeds[spec.feed_id] = (running, outward, name)
        if running.poll_seconds is not None:
            self._cadence.add(
                name,
                running.poll_seconds,
                lambda: running.poll_once(self._emit),
                lambda: running.health.busy,
            )
        if self._started:
            self._listen(running)

    def _listen(self, running: RunningFeed) -> None:
        if isinstance(running.feed, Listens):
            threading.Thread(
                target=running.listen,
                args=(self._emit,),
                name=f"feed-{running.spec.feed_id}-listen",
                daemon=True,
            ).start()

    def remove(self, feed_id: str, *, forget: bool = False) -> None:
        """Close a feed; a poll under way delivers nothing more.

        Args:
            feed_id: which.
            forget: lose its memory too: it is no longer registered.

        Raises:
            NotFound: there is none by that id.
        """
        with self._lock:
            entry = self._feeds.pop(feed_id, None)
        if entry is None:
            raise _unknown(feed_id)
        running, outward, name = entry
        running.close()
        self._cadence.remove(name)
        if forget:
            running.memory.forget()
        outward.close()

    def get(self, feed_id: str) -> RunningFeed:
        """The running feed.

        Raises:
            NotFound: there is none by that id (``feed-unknown``).
        """
        with self._lock:
            entry = self._feeds.get(feed_id)
        if entry is None:
            raise _unknown(feed_id)
        return entry[0]

    def tell(self, feed_id: str, report: FeedReport) -> None:
        """Have a feed tell its side, where it can; returns at once."""
        with self._lock:
            entry = self._feeds.get(feed_id)
        if entry is not None:
            entry[1].tell(report)

    def reporting(self) -> tuple[str, ...]:
        """The feeds whose grid side wants to hear what the site draws."""
        with self._lock:
            entries = list(self._feeds.items())
        return tuple(feed_id for feed_id, (running, *_) in entries if running.reports)

    def report(self, feed_id: str, telemetry: FeedTelemetry) -> None:
        """Hand a sample to a feed, if it reports; returns at once."""
        with self._lock:
            entry = self._feeds.get(feed_id)
        if entry is not None:
            entry[1].report(telemetry)

    def health(self) -> tuple[FeedHealth, ...]:
        """How every feed is now."""
        with self._lock:
            entries = list(self._feeds.values())
        return tuple(running.health.now() for running, _, _ in entries)

    def refused_stranger(self, feed_id: str, error: GridawareError) -> None:
        """Report a message for a feed that does not exist."""
        if self._strangers.take():
            self._on_refused(feed_id, error.code, error.message, "")


class _Outward:
    """What one feed says to the grid's side: statuses, and samples of what the site draws."""

    def __init__(self, running: RunningFeed, on_untold: OnUntold) -> None:
        self._running = running
        self._on_untold = on_untold
        feed: object = running.feed
        name = f"feed-{running.spec.feed_id}"
        self._tells: DeliveryQueue[FeedReport] | None = None
        self._reports: DeliveryQueue[FeedTelemetry] | None = None
        if isinstance(feed, Tells) and feed.can_tell():
            self._tells = DeliveryQueue(
                feed.tell, self._untold, at_most=TELLS_AT_MOST, name=f"{name}-tell"
            )
        if isinstance(feed, Reports):
            self._reports = DeliveryQueue(
                feed.report, self._unreported, at_most=SAMPLES_AT_MOST, name=f"{name}-report"
            )

    def tell(self, report: FeedReport) -> None:
        if self._tells is not None:
            self._tells.put(report)

    def report(self, telemetry: FeedTelemetry) -> None:
        if self._reports is not None:
            self._reports.put(telemetry)

    def close(self) -> None:
        for queue in (self._tells, self._reports):
            if queue is not None:
                queue.close()

    def _untold(self, report: FeedReport, error: GridawareError) -> None:
        self._running.health.count(untold=1)
        self._on_untold(self._running.spec.feed_id, report, error)

    def _unreported(self, telemetry: FeedTelemetry, error: GridawareError) -> None:
        del telemetry
        self._running.refused(error, "")


def _unknown(feed_id: str) -> NotFound:
    return NotFound("feed-unknown", f"there is no feed {feed_id[:80]!r}")
