"""The checkpoint handshake on one node: a state machine without sockets, tasks or waiting.

request → word → the job saves and says so → the *agent* verifies the manifest → ``saved`` → the job
asks to leave → process and children are gone → ``left``. Whatever goes another way is reported as
what it is: ``refused``, ``invalid``, ``late`` or ``gone``. Nothing counts because a job said so.

:meth:`Handshakes.tick` is called every fraction of a second; the desk does the input and output.
"""

import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from gridaware.clock import Clock
from gridaware.domain.jobword import (
    Action,
    LeaveAnswer,
    Leaving,
    Progress,
    Refusal,
    Register,
    SavedLine,
)
from gridaware.domain.wire import (
    CheckpointReport,
    CheckpointRequest,
    JobGone,
    JobProgress,
    JobRegistered,
)
from gridaware.node.processes import Process, Processes
from gridaware.node.verify import Verdict

__all__ = ["Handshake", "Handshakes", "Rank", "Report"]

UNKNOWN_SECONDS = 3.0
"""A request for a job nobody knows waits this long: after a restart of the agent jobs come back."""
TERM_SECONDS = 5.0
"""What children of a job that has left get between SIGTERM and SIGKILL."""
KILL_SECONDS = 2.0
"""After SIGKILL (or, where nothing is killed, after the end) a process is given up and reported."""
DRAIN_SECONDS = 1.0
"""What a process said just before its end may still lie in its socket; so long it is waited for."""
SCAN_SECONDS = 1.0
REMEMBERED_MOST = 256

Report = JobRegistered | JobProgress | JobGone | CheckpointReport
Key = tuple[str, int]


@dataclass(slots=True, eq=False)
class Rank:
    """One registered process of a job."""

    process: Process
    owner: tuple[int, int]
    """uid and gid, from the kernel."""
    line: Register
    gpu_ids: tuple[str, ...]
    put: Callable[[Action, float, str, str], None] | None = None
    """Writes its word: action, deadline on the boot clock, request id, reason."""
    say: Callable[[LeaveAnswer], None] | None = None
    """Answers it; None once all it said was read and its connection is closed."""
    children: frozenset[Process] = frozenset()
    ended_at: float | None = None
    """When it was found gone; its children are still looked after."""
    signalled: signal.Signals | None = None
    left_pids: tuple[int, ...] = ()

    @property
    def key(self) -> Key:
        """Job and attempt."""
        return self.line.job_id, self.line.attempt


@dataclass(slots=True)
class Handshake:
    """One request to one job on this node."""

    request: CheckpointRequest
    asked_at: float
    ranks: dict[Process, Rank] = field(default_factory=dict)
    """Every process of the job on this node that was there meanwhile."""
    verifying: bool = False
    path: str | None = None
    step: int | None = None
    wants_to_leave: set[Process] = field(default_factory=set)
    granted: bool = False
    """A rank was told to go: from here on the end of its processes is a pause."""
    withdrawn: str | None = None
    """Why nobody should leave any more."""
    closed: bool = False
    last: CheckpointReport | None = None

    @property
    def deadline(self) -> float:
        """On the boot clock."""
        return self.asked_at + self.request.deadline_seconds

    @property
    def has_lead(self) -> bool:
        """Whether rank 0, which saves, is on this node."""
        return any(rank.line.rank == 0 for rank in self.ranks.values())


class Handshakes:
    """All jobs of a node. Calls come from one thread."""

    def __init__(
        self,
        processes: Processes,
        clock: Clock,
        emit: Callable[[Report], None],
        verify: Callable[[Handshake, Rank, SavedLine], None],
        node_id: str = "",
    ) -> None:
        self.node_id = node_id
        self._processes = processes
        self._clock = clock
        self._emit = emit
        self._verify = verify
        self._ranks: dict[Process, Rank] = {}
        self._open: dict[Key, Handshake] = {}
        self._scanned_at = -1e9

    # ------------------------------------------------------------------ who is here

    def ranks(self) -> tuple[Rank, ...]:
        """Registered processes whose end was not reported yet, oldest first."""
        return tuple(self._ranks.values())

    def busy(self) -> bool:
        """Whether something is under way that should be looked at often."""
        open_ones = any(not handshake.closed for handshake in self._open.values())
        return open_ones or any(rank.ended_at is not None for rank in self._ranks.values())

    def joined(self, rank: Rank) -> Rank:
        """A process registered, for the first time or again after a lost connection.

        Returns the rank that stands for it from now on.
        """
        known = self._ranks.get(rank.process)
        if known is not None and known.key == rank.key:
            known.put, known.say = rank.put, rank.say
            rank = known
        else:
            self._ranks[rank.process] = rank
            self._emit(self.registration(rank))
        handshake = self._open.get(rank.key)
        if handshake is not None and not handshake.closed and handshake.withdrawn is None:
            handshake.ranks[rank.process] = rank
            self._put(handshake, rank)
        return rank

    def registration(self, rank: Rank) -> JobRegistered:
        """What the controller should know of a rank."""
        line = rank.line
        return JobRegistered(
            self.node_id,
            line.job_id,
            line.attempt,
            line.rank,
            rank.process.pid,
            rank.gpu_ids,
            line.resumed_step,
        )

    def announce(self) -> None:
        """Say again what a controller that was away may have missed."""
        for rank in self._ranks.values():
            self._emit(self.registration(rank))
        for handshake in self._open.values():
            if handshake.last is not None:
                self._emit(handshake.last)

    # ------------------------------------------------------------------ what happens

    def requested(self, request: CheckpointRequest) -> None:
        """The controller asks a job to save; the same request twice only repeats the answer."""
        key = (request.job_id, request.attempt)
        known = self._open.get(key)
        if known is not None and known.request.request_id == request.request_id:
            if known.last is not None:
                self._emit(known.last)
            return
        ranks = {rank.process: rank for rank in self._ranks.values() if rank.key == key}
        handshake = Handshake(request, self._clock.boot_seconds(), ranks)
        self._remember(key, handshake)
        needs = max((rank.line.grace_seconds for rank in ranks.values()), default=0.0)
        if request.deadline_seconds < needs:
            self._close(
                handshake,
                "refused",
                f"the job needs {needs:g} s to save, {request.deadline_seconds:g} s were given",
            )
            return
        for rank in ranks.values():
            self._put(handshake, rank)

    def progressed(self, rank: Rank, line: Progress) -> None:
        """A rank told how far it is."""
        job = rank.line
        self._emit(
            JobProgress(
                self.node_id,
                job.job_id,
                job.attempt,
                job.rank,
                line.step,
                line.steps_per_second,
                line.busy,
            )
        )

    def refused(self, rank: Rank, line: Refusal) -> None:
        """A job will not save now."""
        handshake = self._matching(rank, line.request_id)
        if handshake is not None and not handshake.closed:
            self._close(handshake, "refused", line.reason)

    def saved(self, rank: Rank, line: SavedLine) -> None:
        """A job says that it saved: look for ourselves."""
        handshake = self._matching(rank, line.request_id) or self._adopt(rank, line.request_id)
        if handshake is None or handshake.closed or handshake.verifying or handshake.path:
            return
        handshake.verifying = True
        self._verify(handshake, rank, line)

    def verified(self, handshake: Handshake, path: str, verdict: Verdict) -> None:
        """The look at the checkpoint is done."""
        handshake.verifying = False
        if handshake.closed:
            return
        if verdict.wrong is not None:
            self._close(handshake, "invalid", verdict.wrong)
            return
        handshake.path, handshake.step = path, verdict.step
        self._report(handshake, "saved")
        if not handshake.request.pause:
            handshake.closed = True
            self._withdraw(handshake, "the checkpoint was asked for without a pause")
        self._answer_leavers(handshake)

    def leaving(self, rank: Rank, line: Leaving) -> None:
        """A job asks whether it may end."""
        handshake = self._matching(rank, line.request_id) or self._adopt(rank, line.request_id)
        if handshake is None:
            if rank.say is not None:
                rank.say(LeaveAnswer(line.request_id, False, "that request was superseded"))
            return
        handshake.wants_to_leave.add(rank.process)
        self._answer_leavers(handshake)

    def tick(self) -> None:
        """Look at processes and deadlines."""
        now = self._clock.boot_seconds()
        if self.busy() or now - self._scanned_at >= SCAN_SECONDS:
            self._scan(now)
        for rank in tuple(self._ranks.values()):
            self._look_after(rank, now)
        for handshake in self._open.values():
            if not handshake.closed:
                self._judge(handshake, now)

    # ------------------------------------------------------------------ processes

    def _scan(self, now: float) -> None:
        self._scanned_at = now
        living = [rank.process for rank in self._ranks.values() if rank.ended_at is None]
        if not living:
            return
        below: Mapping[Process, frozenset[Process]] = self._processes.descendants(living)
        for process, children in below.items():
            # Those seen before stay: whoever was adopted by init is no descendant any more.
            known = self._ranks[process]
            kept = {child for child in known.children if self._processes.alive(child)}
            known.children = children | kept

    def _look_after(self, rank: Rank, now: float) -> None:
        if rank.ended_at is None:
            if self._processes.alive(rank.process):
                return
            rank.ended_at = now
        if rank.say is not None and now - rank.ended_at < DRAIN_SECONDS:
            return
        left = [child for child in rank.children if self._processes.alive(child)]
        handshake = self._open.get(rank.key)
        paused = handshake is not None and not handshake.closed and handshake.granted
        if left and self._waits_for(rank, left, now, kill=paused):
            return
        rank.left_pids = tuple(sorted(child.pid for child in left))
        del self._ranks[rank.process]
        line = rank.line
        self._emit(
            JobGone(
                self.node_id,
                line.job_id,
                line.attempt,
                line.rank,
                rank.process.pid,
                rank.left_pids,
            )
        )

    def _waits_for(self, rank: Rank, left: Iterable[Process], now: float, *, kill: bool) -> bool:
        """Whether children of an ended rank should still be waited for."""
        ended_at = now if rank.ended_at is None else rank.ended_at
        if not kill:
            return now - ended_at < KILL_SECONDS
        number = signal.SIGTERM if now - ended_at < TERM_SECONDS else signal.SIGKILL
        if rank.signalled is not number:
            rank.signalled = number
            for child in left:
                self._processes.send(child, number)
        return now - ended_at < TERM_SECONDS + KILL_SECONDS

    # ------------------------------------------------------------------ requests

    def _judge(self, handshake: Handshake, now: float) -> None:
        alive = [rank for process, rank in handshake.ranks.items() if process in self._ranks]
        if not handshake.ranks:
            if now - handshake.asked_at >= UNKNOWN_SECONDS:
                self._close(handshake, "gone", "no process of this attempt is registered here")
        elif not alive and not handshake.verifying:
            self._all_gone(handshake)
        elif now >= handshake.deadline and not handshake.verifying:
            self._overdue(handshake, alive)

    def _all_gone(self, handshake: Handshake) -> None:
        left = tuple(pid for rank in handshake.ranks.values() for pid in rank.left_pids)
        if handshake.granted and handshake.path is not None:
            self._close(handshake, "left", "", left)
        elif handshake.request.pause and not handshake.has_lead:
            self._close(handshake, "left", "rank 0, which saves, is on another node", left)
        elif handshake.path is not None:
            self._close(handshake, "gone", "the process ended by itself after saving", left)
        else:
            self._close(handshake, "gone", "the process ended without saving", left)

    def _overdue(self, handshake: Handshake, alive: list[Rank]) -> None:
        if handshake.withdrawn is not None:
            return
        if handshake.granted:
            pids = ", ".join(str(rank.process.pid) for rank in alive)
            self._report(handshake, "late", f"saved and told to go, but still there: {pids}")
            handshake.withdrawn = "the deadline has passed"
        elif handshake.path is not None:
            self._close(handshake, "late", "saved, but did not leave before the deadline")
        else:
            self._close(handshake, "late", "nothing was saved before the deadline")

    def _answer_leavers(self, handshake: Handshake) -> None:
        if handshake.verifying:
            return
        for process in tuple(handshake.wants_to_leave):
            rank = self._ranks.get(process)
            if rank is None or rank.say is None:
                continue
            refusal = handshake.withdrawn
            if refusal is None and handshake.path is None and rank.line.rank == 0:
                refusal = "no checkpoint was saved for this request"
            if refusal is None:
                handshake.granted = True
                self._scan(self._clock.boot_seconds())
            handshake.wants_to_leave.discard(process)
            rank.say(LeaveAnswer(handshake.request.request_id, refusal is None, refusal or ""))

    def _matching(self, rank: Rank, request_id: str) -> Handshake | None:
        handshake = self._open.get(rank.key)
        if handshake is None or handshake.request.request_id != request_id:
            return None
        return handshake

    def _adopt(self, rank: Rank, request_id: str) -> Handshake | None:
        """A request that an earlier life of this agent passed on, known now only to the job.

        At most one for each attempt: a job that makes requests up gains a look, not a hold on us.
        """
        if rank.key in self._open:
            return None
        request = CheckpointRequest(
            request_id, rank.line.job_id, rank.line.attempt, pause=True, deadline_seconds=60.0
        )
        ranks = {r.process: r for r in self._ranks.values() if r.key == rank.key}
        handshake = Handshake(request, self._clock.boot_seconds(), ranks)
        self._remember(rank.key, handshake)
        return handshake

    def _remember(self, key: Key, handshake: Handshake) -> None:
        self._open.pop(key, None)
        self._open[key] = handshake
        if len(self._open) > REMEMBERED_MOST:
            oldest = next((k for k, known in self._open.items() if known.closed), None)
            if oldest is not None:
                del self._open[oldest]

    def _put(self, handshake: Handshake, rank: Rank) -> None:
        request = handshake.request
        if rank.put is not None:
            action = Action.PAUSE if request.pause else Action.CHECKPOINT
            rank.put(action, handshake.deadline, request.request_id, request.reason)

    def _withdraw(self, handshake: Handshake, why: str) -> None:
        handshake.withdrawn = why
        for rank in handshake.ranks.values():
            if rank.put is not None:
                rank.put(Action.NONE, 0.0, "", "")

    def _close(
        self,
        handshake: Handshake,
        outcome: str,
        message: str,
        left_pids: tuple[int, ...] = (),
    ) -> None:
        handshake.closed = True
        self._withdraw(handshake, message or "the request is closed")
        self._answer_leavers(handshake)
        self._report(handshake, outcome, message, left_pids)

    def _report(
        self,
        handshake: Handshake,
        outcome: str,
        message: str = "",
        left_pids: tuple[int, ...] = (),
    ) -> None:
        request = handshake.request
        handshake.last = CheckpointReport(
            self.node_id,
            request.request_id,
            request.job_id,
            request.attempt,
            outcome,
            handshake.step,
            handshake.path,
            message[:500],
            left_pids,
        )
        self._emit(handshake.last)
