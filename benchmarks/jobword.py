"""What a training loop pays for gridaware: nanoseconds per call on the hot path.

``python -m benchmarks.jobword -o json`` maps a word as the agent makes it and calls
``should_checkpoint`` and ``step`` as a loop does; median of ``--repeats`` runs.
"""

import mmap
import statistics
import sys
import tempfile
import timeit
from collections.abc import Sequence

from benchmarks.program import arguments, report
from gridaware import train
from gridaware.clock import SystemClock
from gridaware.domain.jobword import WORD_BYTES, Action
from gridaware.node.desk import SharedWord

CALLS = 200_000


class _Line:
    """Stands for the line to the agent: only the mapped word matters here."""

    def __init__(self, word: SharedWord) -> None:
        shared = mmap.mmap(word.descriptor, WORD_BYTES, prot=mmap.PROT_READ)
        self.word = memoryview(shared).cast("Q")


def measure(repeats: int) -> dict[str, float]:
    """Nanoseconds per call."""
    word = SharedWord(SystemClock())
    with tempfile.TemporaryDirectory() as folder:
        session = train.Session(folder)
        alone = _nanoseconds(session.should_checkpoint, repeats)
        session._link = _Line(word)
        quiet = _nanoseconds(session.should_checkpoint, repeats)
        word.put(Action.PAUSE, SystemClock().boot_seconds() + 3600, "r-1", "benchmark")
        assert session.should_checkpoint() is not None
        asked = _nanoseconds(session.should_checkpoint, repeats)
        step = _nanoseconds(lambda: session.step(7), repeats)
    return {
        "should_checkpoint_without_agent_ns": alone,
        "should_checkpoint_ns": quiet,
        "should_checkpoint_while_asked_ns": asked,
        "step_ns": step,
    }


def _nanoseconds(call: object, repeats: int) -> float:
    runs = timeit.repeat(call, number=CALLS, repeat=repeats)  # type: ignore[arg-type]
    return round(statistics.median(runs) / CALLS * 1e9, 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = arguments("jobword", __doc__)  # the seed changes nothing: nothing here is random
    parser.add_argument("--repeats", type=int, default=7)
    return report(lambda options: measure(options.repeats), parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
