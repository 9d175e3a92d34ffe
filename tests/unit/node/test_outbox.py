"""What goes through a relay's stream: in order, in few frames, and none of them too large."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridaware.domain.wire import RelayClosed, Relayed
from gridaware.node.frames import MAX_FRAME_BYTES, encode
from gridaware.node.outbox import Outbox


def _said(put) -> list[object]:
    """What an outbox writes, by the end of the event loop's turn."""
    written: list[object] = []

    async def story() -> None:
        put(Outbox(written.append))
        await asyncio.sleep(0)

    asyncio.run(story())
    return written


def test_what_is_put_in_one_turn_travels_in_one_frame_and_the_same_bytes_once():
    beat, other = b"beat", b"other"

    def put(outbox):
        for channel in (1, 2, 3):
            outbox.put(channel, beat)
        outbox.put(1, other)
        outbox.put(2, beat)

    assert _said(put) == [Relayed((((1, 2, 3), beat), ((1,), other), ((2,), beat)))]


def test_a_channel_closes_after_what_was_put_for_it_and_before_what_comes_later():
    def put(outbox):
        outbox.put(1, b"last")
        outbox.close(1)
        outbox.put(2, b"next")

    assert _said(put) == [Relayed((((1,), b"last"),)), RelayClosed(1), Relayed((((2,), b"next"),))]


def test_what_is_cleared_is_never_written():
    def put(outbox):
        outbox.put(1, b"stale")
        outbox.clear()

    assert _said(put) == []


@pytest.mark.parametrize("size", [1, 262_144, 262_145, 4_194_310])
def test_the_largest_frame_of_a_node_fits_and_arrives_whole(size):
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    written = _said(lambda outbox: outbox.put(7, data))
    assert b"".join(d for w in written for _, d in w.parcels) == data
    assert all(len(encode(message)) < MAX_FRAME_BYTES / 8 for message in written)


@given(st.lists(st.tuples(st.integers(1, 3), st.binary(max_size=5)), max_size=30))
def test_every_channel_gets_its_bytes_in_their_order(puts):
    written = _said(lambda outbox: [outbox.put(channel, data) for channel, data in puts])
    for channel in (1, 2, 3):
        carried = [d for w in written for cs, d in w.parcels for c in cs if c == channel]
        assert b"".join(carried) == b"".join(d for c, d in puts if c == channel)
