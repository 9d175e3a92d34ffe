"""The checkpoint handshake, with processes and a clock that tests move by hand."""

import itertools
import signal
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.jobword import Action, LeaveAnswer, Leaving, Refusal, Register, SavedLine
from gridaware.domain.wire import CheckpointReport, CheckpointRequest, JobGone, JobRegistered
from gridaware.node.handshake import Handshake, Handshakes, Rank
from gridaware.node.processes import Process
from gridaware.node.verify import Verdict


class World:
    """Processes by decree."""

    def __init__(self) -> None:
        self.ticks = itertools.count(1000)
        self.living: dict[Process, Process | None] = {}
        self.deaf: set[Process] = set()
        self.stuck: set[Process] = set()
        self.sent: list[tuple[int, signal.Signals]] = []

    def spawn(self, pid: int, parent: Process | None = None) -> Process:
        process = Process(pid, next(self.ticks))
        self.living[process] = parent
        return process

    def end(self, process: Process) -> None:
        """Children are adopted by init."""
        self.living.pop(process, None)
        self.living = {c: None if p == process else p for c, p in self.living.items()}

    def find(self, pid: int) -> Process | None:
        return next((p for p in self.living if p.pid == pid), None)

    def alive(self, process: Process) -> bool:
        return process in self.living

    def descendants(self, roots: Iterable[Process]) -> Mapping[Process, frozenset[Process]]:
        return {root: frozenset(self._below(root)) for root in roots}

    def _below(self, root: Process) -> set[Process]:
        direct = {c for c, p in self.living.items() if p == root}
        return direct.union(*(self._below(c) for c in direct))

    def told(self, pid: int, names: Iterable[str]) -> Mapping[str, str]:
        return {}

    def send(self, process: Process, number: signal.Signals) -> None:
        self.sent.append((process.pid, number))
        deaf = process in self.deaf and number is signal.SIGTERM
        if not deaf and process not in self.stuck:
            self.end(process)


class Bench:
    """A desk's core with one node's jobs."""

    def __init__(self) -> None:
        self.world = World()
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.reports: list[object] = []
        self.looks: list[tuple[Handshake, Rank, SavedLine]] = []
        self.words: dict[int, tuple[Action, float, str]] = {}
        self.answers: list[tuple[int, LeaveAnswer]] = []
        self.core = Handshakes(
            self.world,
            self.clock,
            self.reports.append,
            lambda *look: self.looks.append(look),
            node_id="n0",
        )

    def join(self, pid: int, job: str = "j", attempt: int = 1, rank: int = 0, **line) -> Rank:
        process = self.world.find(pid) or self.world.spawn(pid)

        def put(action: Action, deadline: float, request_id: str, reason: str) -> None:
            self.words[pid] = (action, deadline, request_id)

        return self.core.joined(
            Rank(
                process,
                (1000, 1000),
                Register(job, attempt, rank, **line),
                (),
                put=put,
                say=lambda answer: self.answers.append((pid, answer)),
            )
        )

    def ask(self, request_id: str = "r-1", *, pause: bool = True, seconds: float = 30.0) -> None:
        self.core.requested(CheckpointRequest(request_id, "j", 1, pause, seconds, "why"))

    def tick(self, seconds: float = 0.1) -> None:
        self.clock.advance(seconds)
        self.core.tick()

    def look(self, wrong: str | None = None, step: int = 40) -> None:
        """The agent's look at the checkpoint ends."""
        handshake, _rank, line = self.looks.pop()
        self.core.verified(
            handshake, line.path, Verdict(wrong, None if wrong is not None else step)
        )

    def end(self, rank: Rank) -> None:
        """A process ends, and its connection with it."""
        self.world.end(rank.process)
        rank.put = rank.say = None

    def outcomes(self) -> list[str]:
        return [r.outcome for r in self.reports if isinstance(r, CheckpointReport)]

    def last(self) -> CheckpointReport:
        return [r for r in self.reports if isinstance(r, CheckpointReport)][-1]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def save(bench: Bench, rank: Rank, request_id: str = "r-1") -> None:
    bench.core.saved(rank, SavedLine(request_id, "/data/step-40", 40))


def test_a_pause_is_reported_in_two_steps_each_seen_by_the_agent_itself(bench: Bench) -> None:
    rank = bench.join(10)
    bench.ask()
    assert bench.words[10] == (Action.PAUSE, 1030.0, "r-1")
    save(bench, rank)
    assert bench.outcomes() == [], "the job's word alone counts for nothing"
    bench.look()
    assert bench.outcomes() == ["saved"]
    assert (bench.last().step, bench.last().path) == (40, "/data/step-40")
    bench.core.leaving(rank, Leaving("r-1"))
    assert bench.answers == [(10, LeaveAnswer("r-1", go=True))]
    bench.tick()
    assert bench.outcomes() == ["saved"], "it is still there"
    bench.end(rank)
    bench.tick()
    assert bench.outcomes() == ["saved", "left"]
    assert bench.last().left_pids == ()
    assert [r.pid for r in bench.reports if isinstance(r, JobGone)] == [10]


def test_a_checkpoint_without_pause_lets_the_job_go_on(bench: Bench) -> None:
    rank = bench.join(10)
    bench.ask(pause=False)
    assert bench.words[10][0] is Action.CHECKPOINT
    save(bench, rank)
    bench.look()
    assert bench.outcomes() == ["saved"]
    assert bench.words[10][0] is Action.NONE
    bench.tick(100)
    assert bench.outcomes() == ["saved"], "no deadline for what is done"


def test_a_manifest_that_does_not_verify_keeps_the_job_running(bench: Bench) -> None:
    rank = bench.join(10)
    bench.ask()
    save(bench, rank)
    bench.core.leaving(rank, Leaving("r-1"))
    assert bench.answers == [], "the answer waits for the look"
    bench.look(wrong="weights has 3 bytes, not 4")
    assert bench.outcomes() == ["invalid"]
    assert bench.last().message == "weights has 3 bytes, not 4"
    assert bench.answers == [(10, LeaveAnswer("r-1", go=False, message=bench.last().message))]
    assert bench.words[10][0] is Action.NONE


def test_leaving_without_a_checkpoint_is_not_granted(bench: Bench) -> None:
    rank = bench.join(10)
    bench.ask()
    bench.core.leaving(rank, Leaving("r-1"))
    assert bench.answers[-1][1].go is False


def test_a_refusal_reaches_the_controller_and_ends_the_request(bench: Bench) -> None:
    rank = bench.join(10)
    bench.ask()
    bench.core.refused(rank, Refusal("r-1", "exam"))
    assert (bench.last().outcome, bench.last().message) == ("refused", "exam")
    assert bench.words[10][0] is Action.NONE
    bench.tick(100)
    assert bench.outcomes() == ["refused"]


def test_less_time_than_a_save_takes_is_refused_beforehand(bench: Bench) -> None:
    """ray#63968: a deadline shorter than the checkpoint time."""
    bench.join(10, grace_seconds=60)
    bench.ask(seconds=59.9)
    assert bench.last().outcome == "refused"
    assert bench.last().message == "the job needs 60 s to save, 59.9 s were given"
    assert bench.words[10][0] is Action.NONE
    bench.ask("r-2", seconds=60)
    assert bench.words[10][2] == "r-2"


def test_a_job_that_hangs_is_late_at_the_deadline_and_not_before(bench: Bench) -> None:
    rank = bench.join(10)
    bench.ask(seconds=30)
    bench.tick(29.9)
    assert bench.outcomes() == []
    bench.tick(0.2)
    assert bench.outcomes() == ["late"]
    assert bench.words[10][0] is Action.NONE, "it should not pause when nobody counts on it"
    bench.core.leaving(rank, Leaving("r-1"))
    assert bench.answers[-1][1].go is False


def test_a_slow_look_does_not_make_a_save_in_time_late(bench: Bench) -> None:
    rank = bench.join(10)
    bench.ask(seconds=30)
    bench.tick(29)
    save(bench, rank)
    bench.tick(5)
    bench.look()
    assert bench.outcomes() == ["saved"]


def test_one_that_was_told_to_go_and_hangs_is_late_and_left_when_it_is_gone(bench: Bench) -> None:
    """ray#52322: hanging in NCCL's teardown."""
    rank = bench.join(10)
    bench.ask(seconds=30)
    save(bench, rank)
    bench.look()
    bench.core.leaving(rank, Leaving("r-1"))
    bench.tick(31)
    assert bench.outcomes() == ["saved", "late"]
    assert "10" in bench.last().message
    bench.end(rank)
    bench.tick()
    assert bench.outcomes() == ["saved", "late", "left"]


@pytest.mark.parametrize("saves", [False, True])
def test_a_job_that_ends_by_itself_is_gone_with_what_is_known(bench: Bench, saves: bool) -> None:
    rank = bench.join(10)
    bench.ask()
    if saves:
        save(bench, rank)
        bench.look()
    bench.end(rank)
    bench.tick()
    assert bench.last().outcome == "gone"
    assert bench.last().step == (40 if saves else None)


def test_last_words_are_heard_though_the_process_is_gone_already(bench: Bench) -> None:
    """A busy agent finds the process dead before it has read what lies in the socket."""
    rank = bench.join(10)
    bench.ask()
    bench.world.end(rank.process)
    bench.tick()
    bench.core.refused(rank, Refusal("r-1", "exam"))
    assert bench.outcomes() == ["refused"]


def test_a_socket_that_a_child_keeps_open_is_not_waited_for_for_ever(bench: Bench) -> None:
    rank = bench.join(10)
    bench.ask()
    bench.world.end(rank.process)
    bench.tick()
    assert bench.outcomes() == []
    bench.tick(1.1)
    assert bench.outcomes() == ["gone"]


def test_every_rank_on_the_node_must_have_left(bench: Bench) -> None:
    lead, other = bench.join(10, rank=0), bench.join(11, rank=1)
    bench.ask()
    save(bench, lead)
    bench.look()
    bench.core.leaving(lead, Leaving("r-1"))
    bench.end(lead)
    bench.tick()
    assert bench.outcomes() == ["saved"]
    bench.end(other)
    bench.tick()
    assert bench.outcomes() == ["saved", "left"]


def test_a_node_without_rank_0_reports_that_its_ranks_left(bench: Bench) -> None:
    rank = bench.join(11, rank=3, world=8)
    bench.ask()
    bench.end(rank)
    bench.tick()
    assert (bench.last().outcome, bench.last().step) == ("left", None)


def test_children_left_behind_are_asked_then_killed_then_reported(bench: Bench) -> None:
    """ray#31451: after a pause no orphan keeps GPU memory; one that does is named."""
    rank = bench.join(10)
    polite = bench.world.spawn(20, rank.process)
    deaf = bench.world.spawn(21, rank.process)
    stuck = bench.world.spawn(22, deaf)
    bench.world.deaf.add(deaf)
    bench.world.stuck.add(stuck)
    bench.ask()
    save(bench, rank)
    bench.look()
    bench.core.leaving(rank, Leaving("r-1"))
    bench.end(rank)
    bench.tick()
    assert not bench.world.alive(polite)
    assert bench.world.alive(deaf)
    bench.tick(5)
    assert not bench.world.alive(deaf)
    assert bench.outcomes() == ["saved"]
    bench.tick(2)
    assert (bench.last().outcome, bench.last().left_pids) == ("left", (22,))
    assert {n for p, n in bench.world.sent if p == 22} == {signal.SIGTERM, signal.SIGKILL}


def test_nothing_is_killed_when_a_job_ends_without_a_pause(bench: Bench) -> None:
    rank = bench.join(10)
    bench.world.spawn(20, rank.process)
    bench.tick(1)
    bench.end(rank)
    bench.tick()
    bench.tick(3)
    gone = [r for r in bench.reports if isinstance(r, JobGone)]
    assert [(g.pid, g.left_pids) for g in gone] == [(10, (20,))]
    assert bench.world.sent == []


def test_a_pid_that_is_used_again_is_another_process(bench: Bench) -> None:
    rank = bench.join(10)
    bench.end(rank)
    bench.world.spawn(10)
    bench.tick()
    assert [r.pid for r in bench.reports if isinstance(r, JobGone)] == [10]
    assert bench.core.ranks() == ()


def test_a_repeated_request_repeats_the_answer_and_nothing_else(bench: Bench) -> None:
    rank = bench.join(10)
    bench.ask()
    bench.ask()
    save(bench, rank)
    bench.look()
    bench.ask()
    assert bench.outcomes() == ["saved", "saved"]
    assert bench.looks == []


def test_a_newer_request_takes_the_place_of_an_older_one(bench: Bench) -> None:
    rank = bench.join(10)
    bench.ask("r-1")
    bench.ask("r-2")
    save(bench, rank, "r-1")
    assert bench.looks == [], "answers to the older one count no more"
    bench.core.leaving(rank, Leaving("r-1"))
    assert bench.answers[-1][1].go is False
    save(bench, rank, "r-2")
    assert len(bench.looks) == 1


def test_a_request_for_a_job_nobody_knows_waits_for_it_to_come_back(bench: Bench) -> None:
    bench.ask()
    bench.tick(1)
    assert bench.outcomes() == []
    bench.join(10)
    assert bench.words[10][2] == "r-1"
    bench.ask("r-2")
    assert bench.outcomes() == []


def test_a_request_for_a_job_that_is_not_here_is_gone_after_three_seconds(bench: Bench) -> None:
    bench.join(10, job="another")
    bench.ask()
    bench.tick(2.9)
    assert bench.outcomes() == []
    bench.tick(0.2)
    assert bench.outcomes() == ["gone"]


def test_an_agent_that_restarted_takes_up_the_answer_to_a_request_it_never_saw(bench) -> None:
    rank = bench.join(10)
    save(bench, rank, "asked-before")
    bench.core.leaving(rank, Leaving("asked-before"))
    bench.look()
    assert bench.last().request_id == "asked-before"
    assert bench.answers == [(10, LeaveAnswer("asked-before", go=True))]
    bench.end(rank)
    bench.tick()
    assert bench.outcomes() == ["saved", "left"]


def test_a_job_that_makes_requests_up_gets_one_look_and_no_more(bench: Bench) -> None:
    rank = bench.join(10)
    for number in range(50):
        save(bench, rank, f"made-up-{number}")
        if bench.looks:
            bench.look(wrong="nothing there")
    assert bench.outcomes() == ["invalid"]
    bench.ask("real")
    assert bench.words[10][2] == "real"


def test_a_process_that_comes_back_hears_the_open_request_and_is_no_second_one(bench) -> None:
    bench.join(10)
    bench.ask()
    bench.words.clear()
    bench.join(10)
    assert bench.words[10][2] == "r-1"
    assert len([r for r in bench.reports if isinstance(r, JobRegistered)]) == 1


def test_a_new_controller_is_told_who_is_here_and_what_became_of_requests(bench: Bench) -> None:
    rank = bench.join(10)
    bench.ask()
    bench.core.refused(rank, Refusal("r-1", "exam"))
    bench.reports.clear()
    bench.core.announce()
    assert [type(r) for r in bench.reports] == [JobRegistered, CheckpointReport]


def test_another_attempt_of_the_same_job_is_not_asked(bench: Bench) -> None:
    bench.join(10, attempt=2)
    bench.ask()
    assert bench.words == {}
