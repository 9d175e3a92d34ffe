"""When each poll runs: APScheduler, with a thread for each poll under way.

A thread of its own for each poll is a stronger wall between feeds than a pool for each kind: no
number of hung polls fills it. The threads are daemons, so that a hung poll cannot keep the process
from ending.
"""

import logging
import random
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from apscheduler.executors.base import BaseExecutor, run_job
from apscheduler.job import Job
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from gridaware.clock import Clock

__all__ = ["Cadence"]

WATCH_SECONDS = 2.0
JITTER = 0.2
_OVERDUE = datetime(2000, 1, 1, tzinfo=UTC)

# A poll that is skipped because the one before still runs is in the feed's health; APScheduler's
# warning each second would only bury other lines.
_log = logging.getLogger("gridaware.feeds.apscheduler")
_log.setLevel(logging.ERROR)
# Its executor tells of every poll, at a level below, under a name that it makes itself.
logging.getLogger("apscheduler").setLevel(logging.WARNING)


class Cadence:
    """Runs each named poll about every so many seconds, never twice at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": _Threads()},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            logger=_log,
        )
        self._lock = threading.Lock()
        self._polls: dict[str, _Poll] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin."""
        self._scheduler.start()
        threading.Thread(target=self._watch, name="feed-watch", daemon=True).start()

    def stop(self) -> None:
        """Start no more polls; those under way are left to end by themselves."""
        self._stopped.set()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def add(
        self, name: str, seconds: float, poll: Callable[[], None], busy: Callable[[], bool]
    ) -> None:
        """Run ``poll`` at once and then about every ``seconds``; ``busy`` says whether it runs."""
        entry = _Poll(self._clock, seconds, poll, busy)
        with self._lock:
            self._polls[name] = entry
        self._scheduler.add_job(
            entry.run, _About(seconds), id=name, name=name, next_run_time=_OVERDUE
        )

    def remove(self, name: str) -> None:
        """Run it no more."""
        with self._lock:
            if self._polls.pop(name, None) is None:
                return
        try:
            self._scheduler.remove_job(name)
        except JobLookupError:
            return  # it was never started

    def wake_stalled(self) -> None:
        """Run now what should long have run."""
        with self._lock:
            stalled = [name for name, entry in self._polls.items() if entry.stalled()]
        for name in stalled:
            try:
                self._scheduler.modify_job(name, next_run_time=_OVERDUE)
            except JobLookupError:
                continue  # removed meanwhile

    def _watch(self) -> None:
        while not self._stopped.wait(WATCH_SECONDS):
            self.wake_stalled()


class _Poll:
    """One poll, and when it last began."""

    def __init__(
        self, clock: Clock, seconds: float, poll: Callable[[], None], busy: Callable[[], bool]
    ) -> None:
        self._clock = clock
        self._stalled_seconds = 3 * seconds + WATCH_SECONDS
        self._poll = poll
        self._busy = busy
        self._began_seconds = clock.monotonic_seconds()

    def run(self) -> None:
        self._began_seconds = self._clock.monotonic_seconds()
        self._poll()

    def stalled(self) -> bool:
        waited = self._clock.monotonic_seconds() - self._began_seconds
        return waited > self._stalled_seconds and not self._busy()


class _About(BaseTrigger):  # type: ignore[misc]
    """Every so many seconds from now, give or take a fifth; what was missed is not caught up."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:  # noqa: ARG002
        factor = random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads load, no secret
        return now + timedelta(seconds=self._seconds * factor)


class _Threads(BaseExecutor):  # type: ignore[misc]
    """A daemon thread for each run."""

    def _do_submit_job(self, job: Job, run_times: Sequence[datetime]) -> None:
        threading.Thread(
            target=self._run, args=(job, run_times), name=f"feed-{job.id}", daemon=True
        ).start()

    def _run(self, job: Job, run_times: Sequence[datetime]) -> None:
        events = run_job(job, job._jobstore_alias, run_times, self._logger.name)
        self._run_job_success(job.id, events)
