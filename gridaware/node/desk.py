"""The agent's desk for jobs: a UNIX socket, a word for each process, and who holds which GPU.

Any local process may knock, so everything it sends is bounded and nothing is believed: the kernel
names the process, its environment names the job, the agent looks at checkpoints itself. A process
gets a descriptor of its own word and of no other, sealed so that only the agent can write it.
"""

import asyncio
import contextlib
import fcntl
import logging
import mmap
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gridaware.clock import Clock
from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput, Refused
from gridaware.domain.jobword import (
    LINE_BYTES,
    NO_SLICES,
    WORD_BYTES,
    Action,
    AgentLine,
    JobLine,
    LeaveAnswer,
    Leaving,
    Progress,
    Refusal,
    Register,
    Registered,
    Rejected,
    SavedLine,
    Word,
    decode_line,
    encode_line,
    resolve_gpus,
    write_word,
)
from gridaware.domain.wire import CheckpointRequest
from gridaware.node.deskmemory import recall_ranks, remember_ranks
from gridaware.node.handshake import Handshake, Handshakes, Rank, Report
from gridaware.node.identify import identify
from gridaware.node.processes import Processes, ProcfsProcesses
from gridaware.node.verify import verify

__all__ = ["JobDesk", "SharedWord"]

_log = logging.getLogger(__name__)

CONNECTIONS_MOST = 256
REGISTER_SECONDS = 5.0
LINES_PER_SECOND = 50.0
LINES_AT_ONCE = 100.0
VERIFY_SECONDS = 60.0
_TICK_SECONDS = 0.5
_BUSY_TICK_SECONDS = 0.1
_SOCKET_PATH_BYTES = 107
_F_SEAL_FUTURE_WRITE = 0x0010  # <linux/fcntl.h>, since 5.1; not yet in Python's fcntl
_UCRED = struct.Struct("=iII")


class SharedWord:
    """512 bytes that a job can map and only the agent can write."""

    def __init__(self, clock: Clock) -> None:
        # Microseconds since boot: a word made by a later life of the agent starts above all that
        # an earlier one could have reached, so a job never takes a new request for an old one.
        self._sequence = int(clock.boot_seconds() * 1e6)
        writable = os.memfd_create("gridaware-word", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(writable, WORD_BYTES)
            self._map = mmap.mmap(writable, WORD_BYTES)
            # Ours is mapped; from now on nobody can map or write it again, whatever their rights.
            fcntl.fcntl(
                writable,
                fcntl.F_ADD_SEALS,
                fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _F_SEAL_FUTURE_WRITE,
            )
            self.descriptor = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(writable)
        self._view = memoryview(self._map)
        self.put(Action.NONE, 0.0, "", "")

    def put(self, action: Action, deadline: float, request_id: str, reason: str) -> None:
        """Write the next state of the word."""
        self._sequence += 1
        write_word(self._view, Word(self._sequence, action, deadline, request_id, reason))

    def close(self) -> None:
        """Let go of the agent's side; a job that mapped it keeps the last state."""
        self._view.release()
        self._map.close()
        os.close(self.descriptor)


@dataclass(slots=True, eq=False)
class _Client:
    """One connection."""

    socket: socket.socket
    pid: int
    owner: tuple[int, int]
    allowance: float
    counted_at: float
    rank: Rank | None = None
    word: SharedWord | None = None


class JobDesk:
    """Where the jobs of this node register and are asked to save.

    ``emit`` gets :class:`JobRegistered`, :class:`JobProgress`, :class:`JobGone` and
    :class:`CheckpointReport`, on the event loop.
    """

    def __init__(
        self,
        socket_path: Path,
        run_dir: Path,
        clock: Clock,
        emit: Callable[[Report], None],
        *,
        node_id: str = "",
        processes: Processes | None = None,
    ) -> None:
        self._path = socket_path
        self._memory = run_dir / "jobs.json"
        self._remembered: tuple[Rank, ...] = ()
        self._clock = clock
        self._emit = emit
        self._processes = processes or ProcfsProcesses()
        self._core = Handshakes(self._processes, clock, emit, self._look, node_id)
        self._gpu_ids: tuple[str, ...] = ()
        self._slices = NO_SLICES
        self._clients: set[_Client] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._listener: socket.socket | None = None

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: the socket's path is too long or cannot be used.
            Refused: another agent listens there.
        """
        self._listener = _listen(self._path)
        self._memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for rank in recall_ranks(self._memory):
            self._core.joined(rank)
        self._remembered = self._core.ranks()
        self._spawn(self._accept(self._listener))
        self._spawn(self._watch())

    async def stop(self) -> None:
        """Hang up. Jobs go on and come back to the next agent."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
            self._path.unlink(missing_ok=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------------ the agent's side

    def request(self, request: CheckpointRequest) -> None:
        """Ask a job of this node to save, or to save and leave. Answered by reports."""
        self._core.requested(request)
        self._wake.set()

    def announce(self) -> None:
        """Say again who is here and what became of requests, to a controller that is new."""
        self._core.announce()

    def set_gpus(
        self, gpu_ids_by_ray_index: Sequence[str], boards_by_slice: Mapping[str, str] = NO_SLICES
    ) -> None:
        """The node's boards in the order in which Ray counts them, and whose MIG slices are."""
        self._gpu_ids, self._slices = tuple(gpu_ids_by_ray_index), boards_by_slice
        for rank in self._core.ranks():
            found = resolve_gpus(rank.line.gpus, self._gpu_ids, self._slices)
            if found != rank.gpu_ids:
                rank.gpu_ids = found
                self._emit(self._core.registration(rank))

    def owners(self) -> Mapping[str, tuple[str, int]]:
        """GPU id → (job, attempt). Where two claim one board the first keeps it."""
        held: dict[str, tuple[str, int]] = {}
        for rank in self._core.ranks():
            for gpu_id in rank.gpu_ids:
                held.setdefault(gpu_id, rank.key)
        return held

    def managed_pids(self) -> frozenset[int]:
        """Registered processes and their descendants, at most a second old."""
        return frozenset(
            process.pid for rank in self._core.ranks() for process in (rank.process, *rank.children)
        )

    # ------------------------------------------------------------------ connections

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _address = await loop.sock_accept(listener)
            except OSError:  # out of descriptors, or the peer is gone already
                await asyncio.sleep(_BUSY_TICK_SECONDS)
                continue
            connection.setblocking(False)
            if len(self._clients) >= CONNECTIONS_MOST:
                connection.close()
                continue
            raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            pid, uid, gid = _UCRED.unpack(raw)
            now = self._clock.monotonic_seconds()
            client = _Client(connection, pid, (uid, gid), LINES_AT_ONCE, now)
            self._clients.add(client)
            self._spawn(self._serve(client))

    async def _serve(self, client: _Client) -> None:
        try:
            async with asyncio.timeout(REGISTER_SECONDS) as patience:
                async for raw in self._lines(client):
                    self._hear(client, decode_line(raw))
                    if client.rank is not None:
                        patience.reschedule(None)
        except GridawareError as error:
            _log.info("pid %d: %s", client.pid, error)
            with contextlib.suppress(OSError):
                client.socket.send(encode_line(Rejected(error.code, error.message[:900])))
        except (OSError, TimeoutError) as error:
            _log.info("pid %d hung up: %r", client.pid, error)
        finally:
            self._clients.discard(client)
            client.socket.close()
            if client.word is not None:
                # Unless the process has come back on a new connection meanwhile.
                if client.rank is not None and client.rank.put == client.word.put:
                    client.rank.say = client.rank.put = None
                client.word.close()
            self._wake.set()

    async def _lines(self, client: _Client) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        buffer = b""
        while True:
            more = await loop.sock_recv(client.socket, 4096)
            if not more:
                return
            buffer += more
            while b"\n" in buffer:
                line, _newline, buffer = buffer.partition(b"\n")
                self._spend(client)
                yield line
            if len(buffer) > LINE_BYTES:
                raise InvalidInput("line-malformed", "the line is longer than 16 KiB")

    def _spend(self, client: _Client) -> None:
        """One line of a client's allowance, which refills with time."""
        now = self._clock.monotonic_seconds()
        earned = (now - client.counted_at) * LINES_PER_SECOND
        client.allowance = min(client.allowance + earned, LINES_AT_ONCE) - 1
        client.counted_at = now
        if client.allowance < 0:
            raise Refused("too-fast", "more than 50 lines a second")

    def _hear(self, client: _Client, line: JobLine | AgentLine) -> None:
        rank = client.rank
        match line:
            case Register() if rank is None:
                self._register(client, line)
            case Progress() if rank is not None:
                self._core.progressed(rank, line)
            case SavedLine() if rank is not None:
                self._core.saved(rank, line)
            case Refusal() if rank is not None:
                self._core.refused(rank, line)
            case Leaving() if rank is not None:
                self._core.leaving(rank, line)
            case _:
                raise InvalidInput("line-unexpected", f"a {line.tag} line is out of place")
        self._wake.set()

    def _register(self, client: _Client, line: Register) -> None:
        process = self._processes.find(client.pid)
        if process is None:
            raise Refused("pid-unknown", "the kernel names no process of this host for the peer")
        identify(client.pid, line, self._processes)
        word = client.word = SharedWord(self._clock)
        answer = encode_line(Registered())
        socket.send_fds(client.socket, [answer], [word.descriptor])

        def say(answer: LeaveAnswer) -> None:
            with contextlib.suppress(OSError):
                client.socket.send(encode_line(answer))

        gpu_ids = resolve_gpus(line.gpus, self._gpu_ids, self._slices)
        client.rank = self._core.joined(
            Rank(process, client.owner, line, gpu_ids, put=word.put, say=say)
        )

    # ------------------------------------------------------------------ looking

    async def _watch(self) -> None:
        while True:
            try:
                self._core.tick()
                self._remember()
            except Exception:  # noqa: BLE001 - logged with its trace; the watch must go on
                # A bug here must not leave every job of the node unwatched.
                _log.exception("a look at the jobs failed")
            self._wake.clear()
            pace = _BUSY_TICK_SECONDS if self._core.busy() else _TICK_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pace):
                    await self._wake.wait()

    def _remember(self) -> None:
        ranks = self._core.ranks()
        if ranks != self._remembered:
            remember_ranks(self._memory, ranks)
            self._remembered = ranks

    def _look(self, handshake: Handshake, rank: Rank, line: SavedLine) -> None:
        self._spawn(self._verify(handshake, rank, line))

    async def _verify(self, handshake: Handshake, rank: Rank, line: SavedLine) -> None:
        own = (os.geteuid(), os.getegid())
        verdict = await verify(
            line.path,
            job_id=rank.line.job_id,
            attempt=rank.line.attempt,
            request_id=line.request_id,
            owner=rank.owner if own[0] == 0 and rank.owner[0] != 0 else None,
            timeout_seconds=VERIFY_SECONDS,
        )
        self._core.verified(handshake, line.path, verdict)
        self._wake.set()


def _listen(path: Path) -> socket.socket:
    """A listening socket at ``path`` that every local user may connect to."""
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
        raise ConfigError("socket-path-long", f"{path} is longer than 107 bytes", path=str(path))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise Refused("socket-in-use", f"another agent listens at {path}", path=str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(CONNECTIONS_MOST)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError("socket-unusable", f"{path}: {error}", path=str(path)) from None
    except GridawareError:
        listener.close()
        raise
    return listener
