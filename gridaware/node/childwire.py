"""What the agent and its driver child say to each other over a socket pair.

Frames: 4 bytes of length (big endian), then MessagePack of one tagged message. Both ends are ours
and of one version; a length beyond the bound means that the child has gone mad.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Any

import msgspec

from gridaware.control.ports import Incident
from gridaware.domain.errors import Bug
from gridaware.node.actions import Device, LimitReading, Locked, Written

__all__ = [
    "ChildReader",
    "Ended",
    "Found",
    "GpuTick",
    "Happened",
    "Lock",
    "LockResult",
    "Outdated",
    "Rate",
    "Results",
    "Setup",
    "Tick",
    "Write",
    "pack",
]

_LENGTH = Struct(">I")
_MOST_BYTES = 4 * 1024 * 1024


class Setup(msgspec.Struct, tag="setup", array_like=True):
    """Agent → child, first: which driver, and how often to sample."""

    driver: str
    options: dict[str, str]
    sample_hz: float
    settable: tuple[str, ...] = ()
    """GPUs whose limits another child sets meanwhile, so that it must not be tried by writing one:
    what this child found a moment before may be over a newer limit."""


class Rate(msgspec.Struct, tag="rate", array_like=True):
    """Agent → child: sample this often from now on."""

    sample_hz: float


class Write(msgspec.Struct, tag="write", array_like=True):
    """Agent → child: set these limits and read them back."""

    ticket: int
    limits_watts: tuple[tuple[str, float], ...]


class Lock(msgspec.Struct, tag="lock", array_like=True):
    """Agent → child: lock these clocks (MHz), or unlock them (None)."""

    ticket: int
    clocks_mhz: tuple[tuple[str, float | None], ...]


class LockResult(msgspec.Struct, tag="locked", array_like=True):
    """Child → agent: one lock was set, or was not."""

    result: Locked


class Found(msgspec.Struct, tag="found", array_like=True):
    """Child → agent, first: every GPU."""

    driver_epoch: str
    boundary: str
    devices: tuple[Device, ...]
    faults: tuple[tuple[str, str], ...] = ()
    """Parts of the driver that are missing: code and words."""


class Results(msgspec.Struct, tag="results", array_like=True):
    """Child → agent: limits set and read back; all of a Write at once unless one is slow."""

    results: tuple[Written, ...]


class GpuTick(msgspec.Struct, array_like=True):
    """One GPU in one tick. ``fresh``: read in this tick; otherwise the last values, or none."""

    gpu_id: str
    fresh: bool
    power_watts: float | None
    energy_joules: float | None
    limits: LimitReading | None
    """Only where they were read in this tick."""
    pids: tuple[int, ...] | None
    """Likewise; None where they were not read."""
    cap_binds: bool | None
    stalled_seconds: float
    """How long its present driver call has been out; 0 = none is late."""


class Tick(msgspec.Struct, tag="tick", array_like=True):
    """Child → agent: all GPUs at one instant."""

    boot_seconds: float
    gpus: tuple[GpuTick, ...]


class Happened(msgspec.Struct, tag="happened", array_like=True):
    """Child → agent: a GPU has reported an error by itself."""

    incident: Incident


class Outdated(msgspec.Struct, tag="outdated", array_like=True):
    """Child → agent: the state of a board is no longer what Found said; a fresh child will tell."""

    gpu_id: str


class Ended(msgspec.Struct, tag="ended", array_like=True):
    """Child → agent, last: why it cannot go on."""

    code: str
    message: str


ToChild = Setup | Rate | Write | Lock
FromChild = Found | Results | LockResult | Tick | Happened | Outdated | Ended

_ENCODER = msgspec.msgpack.Encoder()


def pack(message: ToChild | FromChild) -> bytes:
    """One frame."""
    frame = bytearray(_LENGTH.size)
    _ENCODER.encode_into(message, frame, _LENGTH.size)
    _LENGTH.pack_into(frame, 0, len(frame) - _LENGTH.size)
    return bytes(frame)


class ChildReader:
    """Cuts the bytes of one direction into its messages."""

    def __init__(self, *, from_child: bool) -> None:
        kinds = FromChild if from_child else ToChild
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kinds)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Take what arrived and yield every complete message.

        Raises:
            Bug: it is no message of ours.
        """
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, start)
                if length > _MOST_BYTES:
                    raise Bug("child-frame", f"a frame of {length} bytes")
                end = start + _LENGTH.size + length
                if len(buffer) < end:
                    return
                body = bytes(memoryview(buffer)[start + _LENGTH.size : end])
                start = end
                yield self._decode(body)
        finally:
            del buffer[:start]

    def _decode(self, body: bytes) -> object:
        try:
            message: object = self._decoder.decode(body)
        except (msgspec.MsgspecError, ValueError) as error:
            raise Bug("child-frame", str(error)) from error
        return message
