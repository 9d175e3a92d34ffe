"""Frames of the stream: what goes in comes out, and a hostile peer gets nothing but a refusal."""

import contextlib
import struct
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridaware.domain.errors import Bug, InvalidInput
from gridaware.domain.fleet import Gpu, LimitRange
from gridaware.domain.lease import Lease, RestoreSlot
from gridaware.domain.programme import SignalLoss
from gridaware.domain.wire import (
    MESSAGES,
    PROTOCOL_VERSION,
    Acknowledged,
    Desired,
    Fenced,
    GpuResult,
    GpuSample,
    Heartbeat,
    Hello,
    LockHeld,
    NodeFault,
    Sample,
    SampleBatch,
    Welcome,
)
from gridaware.node.frames import MAX_FRAME_BYTES, FrameReader, encode

AT = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
LEASE = Lease(
    "l1",
    (("GPU-a", 200.0), ("GPU-b", 250.5)),
    60.0,
    RestoreSlot(3.0, 30.0),
    SignalLoss(None, 0.5),
    (("GPU-a", 300.0),),
    ("e1",),
)
GPU = Gpu("GPU-a", 0, "A100", LimitRange(100.0, 400.0, 400.0), 350.0)
SAMPLE = GpuSample("GPU-a", 211.5, 1e9, 200.0, 200.0, "good", "job", 2, False, True)
LOCKED = GpuResult("GPU-a", 200.0, 200.0, None, 0.01, LockHeld(1000.0, "kept", 990.0))
EXAMPLES = (
    Hello(1, "n0", "0.1", "boot", "e1", (GPU,), ("limits",), 4, LEASE, 12.5),
    Welcome(1, 4, AT, 5.0, 1.0),
    Fenced("controller-epoch-old", "4 < 5"),
    Heartbeat(AT),
    Desired(4, 9, "d9", AT, AT + timedelta(seconds=60), LEASE),
    Acknowledged("n0", 4, 9, "d9", (GpuResult("GPU-a", 200.0, None, "device-lost"),), True, AT),
    Acknowledged("n0", 4, 9, "d9", (LOCKED,), True, AT),
    SampleBatch("n0", "e1", (Sample(AT, (SAMPLE,)),)),
    NodeFault("n0", "driver-slow", None, "…", over=True),
    NodeFault("n0", "limit-drift", None, "…"),
)


def test_every_kind_of_message_survives_the_wire_even_cut_into_single_bytes():
    reader = FrameReader()
    stream = b"".join(encode(message) for message in EXAMPLES)
    heard = [m for byte in stream for m in reader.feed(bytes([byte]))]
    assert heard == list(EXAMPLES)
    assert list(FrameReader().feed(stream)) == list(EXAMPLES)


def test_the_layout_is_length_version_tag_and_messagepack():
    frame = encode(Fenced("a", "b"))
    length, version, tag = struct.unpack_from(">IBB", frame)
    assert (length, version, tag) == (len(frame) - 4, PROTOCOL_VERSION, MESSAGES.index(Fenced))
    assert msgspec.msgpack.decode(frame[6:]) == {"code": "a", "message": "b"}


def _frame(tag: int, body: bytes, *, version: int = PROTOCOL_VERSION, length: int | None = None):
    size = len(body) + 2 if length is None else length
    return struct.pack(">IBB", size, version, tag) + body


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (_frame(2, b"", length=MAX_FRAME_BYTES + 1), "frame-too-large"),
        (_frame(2, b"", length=2**32 - 1), "frame-too-large"),
        (_frame(2, b"", length=0), "frame-too-large"),
        (_frame(2, b"\x80", version=9), "protocol-version"),
        (_frame(len(MESSAGES), b"\x80"), "frame-type"),
        (_frame(255, b"\x80"), "frame-type"),
        (_frame(2, b"\x80"), "frame-malformed"),
        (_frame(2, b"\xc1"), "frame-malformed"),
        (_frame(2, b"\x91" * 5000), "frame-malformed"),
        (_frame(2, msgspec.msgpack.encode({"code": 1, "message": "x"})), "frame-malformed"),
        (_frame(3, msgspec.msgpack.encode({"sent_at": "2026-03-01T00:00:00"})), "frame-malformed"),
        (b"GET / HTTP/1.1\r\n\r\n", "protocol-version"),
    ],
)
def test_a_bad_frame_is_refused_with_a_stable_code(frame, code):
    with pytest.raises(InvalidInput) as refused:
        list(FrameReader().feed(frame))
    assert refused.value.code == code


@pytest.mark.parametrize("watts", [float("nan"), float("inf")])
def test_samples_that_are_no_numbers_are_refused(watts):
    bad = GpuSample("GPU-a", watts, None, 200.0, 200.0, "good", None, 0, False)
    with pytest.raises(InvalidInput, match="no number"):
        list(FrameReader().feed(encode(SampleBatch("n0", "e", (Sample(AT, (bad,)),)))))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, len(MESSAGES) - 1))
def test_no_bytes_can_do_more_than_be_refused(body, tag):
    # Any other exception fails the test.
    with contextlib.suppress(InvalidInput):
        assert [type(m) for m in FrameReader().feed(_frame(tag, body))] == [MESSAGES[tag]]


def test_unknown_keys_of_a_later_minor_version_are_ignored():
    body = msgspec.msgpack.encode({"code": "a", "message": "b", "later": [1, 2]})
    assert list(FrameReader().feed(_frame(2, body))) == [Fenced("a", "b")]


def test_what_is_no_message_cannot_be_sent():
    with pytest.raises(Bug):
        encode("hello")
