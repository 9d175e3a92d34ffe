"""The poller's two kinds of work, called directly: no thread runs here."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from gridaware.clock import ManualClock
from gridaware.control.stimuli import AttemptStatus, RunnerReported, SubmitFailed
from gridaware.domain.errors import GridawareError, Refused, Unavailable
from gridaware.domain.job import JobSpec
from gridaware.jobs import poller as module
from gridaware.jobs.poller import JobPoller
from gridaware.jobs.status import RayStatus


class Runner:
    """A cluster by decree."""

    def __init__(self) -> None:
        self.listed: dict[str, RayStatus] = {}
        self.errors: list[GridawareError] = []
        self.calls: list[tuple[str, str, int]] = []

    def set(self, name: str, status: str, exit_code: int | None = None) -> None:
        self.listed[name] = RayStatus(name, status, exit_code, "")

    def _maybe_fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def submit(self, spec: JobSpec, attempt: int) -> None:
        self.calls.append(("submit", spec.job_id, attempt))
        self._maybe_fail()

    def stop(self, job_id: str, attempt: int) -> None:
        self.calls.append(("stop", job_id, attempt))
        self._maybe_fail()

    def statuses(self) -> Mapping[str, RayStatus]:
        self._maybe_fail()
        return self.listed

    def logs(self, job_id: str, attempt: int) -> str:
        return ""

    def free_gpus(self) -> tuple[float, float]:
        return 3.0, 8.0


class Bench:
    def __init__(self) -> None:
        self.runner = Runner()
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.seen: list[RunnerReported | SubmitFailed] = []
        self.poller = JobPoller(
            self.runner,
            self.clock,
            self.seen.append,
            pending_seconds=600,
            retry_seconds=(0.0, 0.0),
        )

    def look(self) -> list[AttemptStatus]:
        self.seen.clear()
        self.poller.look()
        return [a for report in self.seen for a in report.attempts]

    def carry_out(self) -> None:
        while not self.poller._commands.empty():
            self.poller.carry_out(self.poller._commands.get_nowait())


@pytest.fixture
def bench() -> Bench:
    return Bench()


SPEC = JobSpec("j", "true", 1)


def test_only_what_changed_is_reported(bench: Bench) -> None:
    bench.runner.set("j-a1", "running")
    assert bench.look() == [AttemptStatus("j", 1, "running")]
    assert bench.look() == []
    bench.runner.set("j-a1", "failed", 42)
    assert bench.look() == [AttemptStatus("j", 1, "failed", 42)]
    assert bench.poller.capacity == (3.0, 8.0)


def test_while_the_cluster_is_silent_nothing_is_concluded(bench: Bench) -> None:
    bench.runner.set("j-a1", "running")
    bench.look()
    bench.runner.errors = [Unavailable("ray-unreachable", "no")]
    assert bench.look() == []
    assert bench.poller.capacity == (None, None)
    assert bench.look() == []
    assert bench.poller.capacity == (3.0, 8.0)


def test_a_submission_that_waits_too_long_is_withdrawn_once(bench: Bench) -> None:
    """ray#41437: Ray gives up after 900 s and may start it later all the same."""
    bench.runner.set("j-a1", "pending")
    assert [a.status for a in bench.look()] == ["pending"]
    bench.clock.advance(599)
    assert bench.look() == []
    bench.clock.advance(1)
    assert [a.status for a in bench.look()] == ["failed"]
    bench.carry_out()
    assert bench.runner.calls == [("stop", "j", 1)]
    bench.runner.set("j-a1", "stopped")
    bench.clock.advance(1000)
    assert bench.look() == []


def test_waiting_is_counted_anew_after_a_start(bench: Bench) -> None:
    bench.runner.set("j-a1", "pending")
    bench.look()
    bench.runner.set("j-a1", "running")
    bench.look()
    bench.clock.advance(10_000)
    assert bench.look() == []
    assert bench.runner.calls == []


def test_a_cluster_that_is_briefly_away_gets_the_submission_again(bench: Bench) -> None:
    bench.runner.errors = [Unavailable("ray-unreachable", "no")] * 2
    bench.poller.submit(SPEC, 1)
    bench.carry_out()
    assert bench.runner.calls == [("submit", "j", 1)] * 3
    assert bench.seen == []


def test_one_that_stays_away_is_reported_as_worth_another_try(bench: Bench) -> None:
    bench.runner.errors = [Unavailable("ray-unreachable", "no")] * 3
    bench.poller.submit(SPEC, 1)
    bench.carry_out()
    assert bench.seen == [SubmitFailed("j", 1, "ray-unreachable", "no", retryable=True)]


def test_a_refusal_is_final_at_once(bench: Bench) -> None:
    bench.runner.errors = [Refused("gpus-too-many", "9 of 8")]
    bench.poller.submit(SPEC, 1)
    bench.carry_out()
    assert len(bench.runner.calls) == 1
    assert bench.seen == [SubmitFailed("j", 1, "gpus-too-many", "9 of 8", retryable=False)]


def test_when_too_many_commands_wait_the_next_is_refused_instead_of_blocking(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMMANDS_MOST", 1)
    poller = JobPoller(bench.runner, bench.clock, bench.seen.append)
    poller.submit(SPEC, 1)
    poller.submit(SPEC, 2)
    assert [(f.attempt, f.code, f.retryable) for f in bench.seen] == [(2, "runner-busy", True)]


def test_what_a_cluster_that_was_started_again_no_longer_knows_is_lost(bench):
    bench.runner.set("j-a1", "running")
    bench.runner.set("done-a1", "succeeded", 0)
    bench.look()
    bench.runner.listed = {}
    assert bench.look() == [], "a head that comes up may list nothing yet"
    assert [(a.job_id, a.attempt, a.status) for a in bench.look()] == [("j", 1, "lost")]
    assert bench.look() == []


def test_a_look_that_fails_loses_nobody(bench):
    bench.runner.set("j-a1", "running")
    bench.look()
    bench.runner.listed = {}
    for _ in range(3):
        bench.runner.errors.append(Unavailable("ray-silent", "no"))
        assert bench.look() == []
    assert bench.look() == []


def test_an_attempt_of_an_earlier_controller_is_missed_too(bench):
    bench.poller.expect("j", 3)
    bench.look()
    assert [(a.job_id, a.attempt, a.status) for a in bench.look()] == [("j", 3, "lost")]
