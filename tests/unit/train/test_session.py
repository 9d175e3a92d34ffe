"""What a loop sees when the word changes."""

import mmap
from pathlib import Path

import pytest

from gridaware.clock import SystemClock
from gridaware.domain.jobword import WORD_BYTES, Action, LeaveAnswer, Refusal, SavedLine
from gridaware.node.desk import SharedWord
from gridaware.train import Session


class Link:
    """A line that remembers what was said and lets nobody leave."""

    def __init__(self, word: SharedWord) -> None:
        shared = mmap.mmap(word.descriptor, WORD_BYTES, prot=mmap.PROT_READ)
        self.word = memoryview(shared).cast("Q")
        self.said: list[object] = []
        self.go: bool | None = True

    def answer(self, line: object) -> None:
        self.said.append(line)

    def ask_to_leave(self, request_id: str, wait_seconds: float) -> LeaveAnswer | None:
        return None if self.go is None else LeaveAnswer(request_id, self.go, "withdrawn")


class Bench:
    def __init__(self, folder: Path) -> None:
        self.clock = SystemClock()
        self.word = SharedWord(self.clock)
        self.session = Session(folder / "ck")
        self.link = self.session._link = Link(self.word)

    def ask(self, request_id: str = "r-1", action: Action = Action.PAUSE, seconds: float = 60):
        self.word.put(action, self.clock.boot_seconds() + seconds, request_id, "why")

    def withdraw(self) -> None:
        self.word.put(Action.NONE, 0.0, "", "")

    def save(self, step: int = 7) -> None:
        self.session.checkpoint_dir.mkdir(exist_ok=True)
        (self.session.checkpoint_dir / f"{step}.pt").write_text(str(step))
        self.session.save_done(self.session.checkpoint_dir / f"{step}.pt", step)


@pytest.fixture
def bench(tmp_path: Path):
    bench = Bench(tmp_path)
    yield bench
    bench.session._link = None
    bench.word.close()


def test_a_request_stays_until_it_is_answered(bench: Bench) -> None:
    assert bench.session.should_checkpoint() is None
    bench.ask()
    first = bench.session.should_checkpoint()
    assert (first.action, first.reason) == ("pause", "why")
    assert 55 < first.seconds_left <= 60
    assert bench.session.should_checkpoint() is first
    bench.save()
    assert bench.session.should_checkpoint() is None
    assert bench.link.said == [SavedLine("r-1", str(bench.session.checkpoint_dir / "7.pt"), 7)]


def test_the_manifest_names_the_request_only_if_the_loop_has_seen_it(bench: Bench) -> None:
    """A periodic save that happens to fall into a request is no answer to it."""
    bench.ask()
    bench.save(1)
    assert bench.link.said == []
    assert bench.session.should_checkpoint().request_id == "r-1"
    bench.save(2)
    assert [line.step for line in bench.link.said] == [2]


def test_a_withdrawn_request_disappears(bench: Bench) -> None:
    bench.ask()
    assert bench.session.should_checkpoint()
    bench.withdraw()
    assert bench.session.should_checkpoint() is None


def test_a_request_whose_deadline_has_passed_is_not_shown(bench: Bench) -> None:
    bench.ask(seconds=-1)
    assert bench.session.should_checkpoint() is None


def test_the_next_request_is_shown_and_an_answered_one_is_not_again(bench: Bench) -> None:
    bench.ask("r-1")
    bench.session.should_checkpoint()
    bench.session.refuse("exam")
    assert bench.link.said == [Refusal("r-1", "exam")]
    bench.ask("r-1")
    assert bench.session.should_checkpoint() is None
    bench.ask("r-2", Action.CHECKPOINT)
    assert bench.session.should_checkpoint().action == "checkpoint"


def test_pausing_ends_with_42_whether_or_not_the_agent_answers(bench: Bench) -> None:
    for go in (True, None):
        bench.link.go = go
        bench.ask(f"r-{go}")
        bench.session.should_checkpoint()
        bench.save()
        with pytest.raises(SystemExit) as caught:
            bench.session.pause()
        assert caught.value.code == 42


def test_a_pause_that_is_no_longer_wanted_lets_the_loop_go_on(bench: Bench) -> None:
    bench.link.go = False
    bench.ask()
    bench.session.should_checkpoint()
    bench.save()
    bench.session.pause()
    assert bench.session.should_checkpoint() is None


def test_every_save_gets_a_higher_serial_than_all_before(bench: Bench) -> None:
    from gridaware.train.files import newest_checkpoint

    for step in (5, 3, 9):
        bench.save(step)
    found, _ = newest_checkpoint(bench.session.checkpoint_dir)
    assert (found.step, found.manifest.serial) == (9, 3)
