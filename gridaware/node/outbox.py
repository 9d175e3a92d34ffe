"""What waits to go through a relay's stream, in order, put together into few frames."""

import asyncio
from collections.abc import Callable

from gridaware.domain.wire import RelayClosed, Relayed

__all__ = ["Outbox"]

_MOST_BYTES = 256 * 1024
"""In one frame: what comes behind it shall not wait for long."""


class Outbox:
    """Collects what is put until the event loop's present turn is over.

    The same bytes for many channels in a row travel once.
    """

    def __init__(self, write: Callable[[object], object]) -> None:
        self._write = write
        self._parcels: list[tuple[list[int], bytes]] = []
        self._bytes = 0
        self._due = False

    def put(self, channel: int, data: bytes) -> None:
        """Bytes of a channel's stream."""
        if self._parcels and self._parcels[-1][1] is data:
            self._parcels[-1][0].append(channel)
            return
        for start in range(0, len(data), _MOST_BYTES):
            piece = data if len(data) <= _MOST_BYTES else data[start : start + _MOST_BYTES]
            if self._bytes + len(piece) > _MOST_BYTES:
                self.flush()
            self._parcels.append(([channel], piece))
            self._bytes += len(piece)
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._turn_over)

    def close(self, channel: int) -> None:
        """The channel's stream ends after what was put."""
        self.flush()
        self._write(RelayClosed(channel))

    def flush(self) -> None:
        """Write now what waits."""
        if self._parcels:
            parcels = tuple((tuple(channels), data) for channels, data in self._parcels)
            self._parcels.clear()
            self._bytes = 0
            self._write(Relayed(parcels))

    def clear(self) -> None:
        """Forget what waits: there is nobody to send it to."""
        self._parcels.clear()
        self._bytes = 0

    def _turn_over(self) -> None:
        self._due = False
        self.flush()
