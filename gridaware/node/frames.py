"""Frames of the agent stream: messages of :mod:`gridaware.domain.wire` as bytes, and back.

::

    length  4 bytes, big endian: what follows it, at most 4 MiB
    version 1 byte: ``PROTOCOL_VERSION``
    tag     1 byte: position of the message's type in ``MESSAGES``
    body    MessagePack map of the dataclass; unknown keys are ignored, defaults may be absent

A frame is refused whole with a stable code, and the stream that carried it must be closed: after
one bad frame nothing that follows can be trusted.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from math import isfinite
from struct import Struct
from typing import Any, Final

import msgspec

from gridaware.domain.errors import Bug, InvalidInput
from gridaware.domain.wire import (
    MESSAGES,
    PROTOCOL_VERSION,
    Acknowledged,
    Desired,
    Fired,
    Heartbeat,
    SampleBatch,
    Welcome,
)

__all__ = ["MAX_FRAME_BYTES", "FrameReader", "encode"]

MAX_FRAME_BYTES: Final = 4 * 1024 * 1024
"""Length of version, tag and body together; 1,000 GPUs ten times sampled need a quarter of it."""

_HEADER = Struct(">IBB")
_PREFIX_BYTES = 4
_LEAST_LENGTH = 2
_ENCODER = msgspec.msgpack.Encoder()
_TAGS = {kind: tag for tag, kind in enumerate(MESSAGES)}
_DECODERS: tuple[msgspec.msgpack.Decoder[Any], ...] = tuple(
    msgspec.msgpack.Decoder(kind) for kind in MESSAGES
)


def encode(message: object) -> bytes:
    """One frame.

    Raises:
        Bug: not a message of the stream, or too large for a frame.
    """
    tag = _TAGS.get(type(message))
    if tag is None:
        raise Bug("frame-type", f"{type(message).__name__} is not a message of the stream")
    body = _ENCODER.encode(message)
    length = len(body) + _LEAST_LENGTH
    if length > MAX_FRAME_BYTES:
        raise Bug("frame-too-large", f"a {type(message).__name__} of {length} bytes")
    return _HEADER.pack(length, PROTOCOL_VERSION, tag) + body


class FrameReader:
    """Cuts a stream of bytes into messages; holds at most one unfinished frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[Any]:
        """Take what arrived and yield every message that is complete, in order.

        Raises:
            InvalidInput: a frame is too large (``frame-too-large``), of another version
                (``protocol-version``), of an unknown type (``frame-type``) or not what its type
                says (``frame-malformed``). Close the stream.
        """
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _HEADER.size:
                length, version, tag = _HEADER.unpack_from(buffer, start)
                _check_header(length, version, tag)
                end = start + _PREFIX_BYTES + length
                if len(buffer) < end:
                    break
                body = bytes(memoryview(buffer)[start + _HEADER.size : end])
                start = end
                yield _decode(tag, body)
        finally:
            del buffer[:start]


def _check_header(length: int, version: int, tag: int) -> None:
    if version != PROTOCOL_VERSION:
        raise InvalidInput(
            "protocol-version",
            f"the peer speaks version {version} of the stream, this side {PROTOCOL_VERSION}",
            version=version,
        )
    if not _LEAST_LENGTH <= length <= MAX_FRAME_BYTES:
        raise InvalidInput("frame-too-large", f"a frame of {length} bytes", length=length)
    if tag >= len(MESSAGES):
        raise InvalidInput("frame-type", f"no message has tag {tag}", tag=tag)


def _decode(tag: int, body: bytes) -> object:
    kind = MESSAGES[tag]
    try:
        message: object = _DECODERS[tag].decode(body)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput("frame-malformed", f"not a {kind.__name__}: {error}") from None
    check = _CHECKS.get(kind)
    if check is not None and not check(message):
        raise InvalidInput("frame-malformed", f"a {kind.__name__} with a naive time or no number")
    return message


def _aware(instant: datetime | None) -> bool:
    return instant is None or instant.tzinfo is not None


def _desired_holds(message: Desired) -> bool:
    return _aware(message.sent_at) and _aware(message.expires_at)


def _samples_hold(message: SampleBatch) -> bool:
    for sample in message.samples:
        if sample.at.tzinfo is None:
            return False
        for gpu in sample.gpus:
            total = gpu.power_watts + gpu.enforced_watts + gpu.requested_watts
            if not isfinite(total + (gpu.energy_joules or 0.0)):
                return False
    return True


def _acknowledgement_holds(message: Acknowledged) -> bool:
    numbers = (r.asked_watts + (r.enforced_watts or 0.0) for r in message.results)
    locks = (r.lock.asked_mhz + (r.lock.clock_mhz or 0.0) for r in message.results if r.lock)
    return _aware(message.at) and isfinite(sum(numbers) + sum(locks))


def _fired_holds(message: Fired) -> bool:
    numbers = (message.depth, message.age_seconds, message.measured, message.duration_seconds)
    return _aware(message.at) and all(n is None or isfinite(n) for n in numbers)


def _welcome_holds(message: Welcome) -> bool:
    times = 0 < message.silence_seconds < 3600 and 0 < message.sample_hz < 1000
    return times and _aware(message.sent_at)


_CHECKS: dict[type, Callable[[Any], bool]] = {
    Acknowledged: _acknowledgement_holds,
    Desired: _desired_holds,
    Fired: _fired_holds,
    Heartbeat: lambda message: _aware(message.sent_at),
    SampleBatch: _samples_hold,
    Welcome: _welcome_holds,
}
"""What a type cannot say. The figures of a lease are judged by the holder, which obeys them."""
