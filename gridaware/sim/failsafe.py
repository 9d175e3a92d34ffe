"""What may fail and what then holds: the rows and cells of docs/failsafe.md and of its tests.

Each failure is made really, at each of four moments of an event, on a whole site of real processes
whose GPUs alone are virtual (tests/e2e/test_failsafe.py).
"""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["FAILURES", "Failure", "Phase", "Restored"]


class Phase(StrEnum):
    """When it fails."""

    BEFORE = "before"
    RAMPING_DOWN = "ramping_down"
    HOLDING = "holding"
    RAMPING_UP = "ramping_up"


class Restored(StrEnum):
    """What stands on every GPU afterwards."""

    FOUND = "found limits, by the ramp"
    BOOTED = "what the boot set"


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that fails."""

    name: str
    done: str
    """What the test does, in words."""
    holds: str
    """Who keeps the promise meanwhile, and how it ends."""
    restored: Restored = Restored.FOUND
    refuses_signals: bool = False
    """Nothing is answered 200 that is not on the disk: the sender repeats."""
    with_jobs: bool = False
    """On a site with a real Ray and jobs, which are not lost."""

    def cell(self, phase: Phase) -> str:
        """What holds when it fails then, in words."""
        first = "kept to its end"
        if phase is Phase.BEFORE and self.refuses_signals:
            first = "signals refused until it is mended, then kept to its end"
        if phase is Phase.RAMPING_UP:
            first = "was kept"
        return f"{first}; then {self.restored.value}"


FAILURES: tuple[Failure, ...] = (
    Failure(
        "control",
        "SIGKILL to the control process; its supervisor starts another",
        "Agents hold their leases; the new controller rebuilds its state from the ledger and from "
        "what the agents say they hold. Until each of them has said so, or 2 s are over, it "
        "changes nothing but for what falls due in that time.",
    ),
    Failure(
        "web",
        "SIGKILL to the web process; `serve` starts another",
        "Control does not notice.",
    ),
    Failure(
        "serve",
        "SIGKILL to the parent of both; both end with it, and it is started again",
        "As for control.",
    ),
    Failure(
        "agent",
        "SIGKILL to one node's agent; its supervisor starts another",
        "Limits stand without it; it finishes the lease from its journal.",
    ),
    Failure(
        "driver child",
        "SIGKILL to the process that owns the driver library",
        "The agent starts another within a second, reads limits back, and goes on.",
    ),
    Failure(
        "node",
        "agent, driver child and the work on its GPUs die at once; limits, counters and boot clock "
        "begin again as after a reboot; the work comes back once the agent has",
        "A node that is down draws nothing. After the boot its agent takes the lease up again by "
        "the wall clock, or is told anew.",
        restored=Restored.BOOTED,
    ),
    Failure(
        "Ray head",
        "SIGKILL to everything of Ray; it is started again",
        "Caps do not pass through Ray. Its jobs are queued again and go on from their checkpoints.",
        with_jobs=True,
    ),
    Failure(
        "network",
        "a proxy between control and every agent lets nothing through for some seconds, silently",
        "Agents hold the last limits flat to the end of the lease and give them back in their slot "
        "of the ramp; they need nobody for that. An event that is known ahead begins without "
        "control; one that is only asked for during the cut waits for its end.",
    ),
    Failure(
        "feed",
        "the file of a file feed is gone, and the webhook's listener is full of connections that "
        "say nothing",
        "Silence of a feed cancels nothing.",
    ),
    Failure(
        "meter",
        "the site meter does not answer",
        "The GPUs' own sensors stand in, through the overhead model and what was learned of it.",
    ),
    Failure(
        "store locked",
        "another process holds the database locked for longer than anybody waits",
        "Decisions go on; what is to be written waits in memory, in order, and is written then. "
        "Signals are refused meanwhile, for their sender to repeat.",
        refuses_signals=True,
    ),
    Failure(
        "store gone",
        "the database is moved away, and brought back after the event",
        "Control goes on writing to the file it has open; pages have nothing to show meanwhile. "
        "For one that does not come back see release.md.",
    ),
    Failure(
        "disk full: control",
        "the file system of control's store takes no byte more, for some seconds",
        "As for a locked store.",
        refuses_signals=True,
    ),
    Failure(
        "disk full: agents",
        "the file system of the agents' journals takes no byte more, for some seconds",
        "Agents journal what they found as soon as they are told what an event may ask of them, "
        "and change no limit whose found one is not on the disk. A lease in force is held and "
        "given back.",
    ),
    Failure(
        "clock step",
        "the wall clocks of control and of the agents are set an hour forward and an hour back",
        "Leases run on the boot clock, events on a steady clock that takes a step over once none "
        "is running.",
    ),
    Failure(
        "journal lost",
        "one agent is killed, its journal is removed, and it is started again",
        "Its limits stand; control remembers what was found and tells it.",
    ),
    Failure(
        "node re-imaged",
        "as for a node, and the agent's state directory is gone",
        "The new agent knows nothing, holds nothing, and is told.",
        restored=Restored.BOOTED,
    ),
)
