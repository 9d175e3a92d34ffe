"""The yardstick of the response benchmarks: plain asyncio TCP to as many processes, answered."""

import asyncio
import multiprocessing
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from gridaware.clock import SystemClock

HEADER_BYTES = 4


class RawFanout:
    """N processes that dial in over TCP and answer each frame with a small one."""

    def __init__(self, peers: int) -> None:
        self._peers = peers
        self._processes: list[multiprocessing.process.BaseProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.terminate()
            process.join(5)

    def measure(self, payload: bytes, rounds: int) -> list[float]:
        """Seconds from the first byte sent to the last acknowledgement, of each round."""
        return asyncio.run(self._measure(payload, rounds))

    async def _measure(self, payload: bytes, rounds: int) -> list[float]:
        peers: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        everyone = asyncio.Event()

        async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peers.append((reader, writer))
            if len(peers) == self._peers:
                everyone.set()

        server = await asyncio.start_server(joined, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        context = multiprocessing.get_context("spawn")
        for _ in range(self._peers):
            process = context.Process(target=_peer, args=(port,), daemon=True)
            process.start()
            self._processes.append(process)
        await asyncio.wait_for(everyone.wait(), 60)
        frames = [len(payload).to_bytes(HEADER_BYTES, "big") + payload] * self._peers
        seconds = []
        for _ in range(rounds + 10):
            await asyncio.sleep(0.02)
            seconds.append(await fan_out(peers, frames))
        for _, writer in peers:
            writer.close()
        server.close()
        return seconds[10:]


async def fan_out(
    peers: Sequence[tuple[asyncio.StreamReader, asyncio.StreamWriter]], frames: Sequence[bytes]
) -> float:
    """Seconds from the first byte sent, a frame to each peer, to the last answer."""
    clock = SystemClock()
    began = clock.monotonic_seconds()
    for (_, writer), frame in zip(peers, frames, strict=True):
        writer.write(frame)
    await asyncio.gather(*(reader.readexactly(HEADER_BYTES) for reader, _ in peers))
    return clock.monotonic_seconds() - began


def _peer(port: int) -> None:
    asyncio.run(answer(port))


async def answer(port: int) -> None:
    """Answer every frame that comes, until the other end closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            length = int.from_bytes(await reader.readexactly(HEADER_BYTES), "big")
            await reader.readexactly(length)
            writer.write(b"done")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
