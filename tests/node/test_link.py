"""The controller's end of the stream, against peers that are quick, slow, hostile or doubled."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import pytest

from gridaware.domain.lease import Lease
from gridaware.domain.wire import (
    PROTOCOL_VERSION,
    CheckpointRequest,
    Desired,
    Fenced,
    Heartbeat,
    Hello,
    NodeFault,
    SampleRate,
    Welcome,
)
from gridaware.node.frames import FrameReader, encode
from gridaware.node.tls import agent_context

AT = datetime(2026, 3, 1, tzinfo=UTC)


def _hello(node_id: str = "n0", *, version: int = PROTOCOL_VERSION, last_epoch: int = 0) -> Hello:
    return Hello(version, node_id, "0", "boot", "e", (), (), last_epoch, None, None)


def _desired(sequence: int, padding: int = 0) -> Desired:
    lease = Lease("l", (("g", 200.0),), 60.0, event_ids=("x" * padding,))
    return Desired(1, sequence, f"d{sequence}", AT, AT + timedelta(seconds=60), lease)


class Peer:
    """An agent that says exactly what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._frames = FrameReader()
        self._heard: list[object] = []

    @classmethod
    async def dial(cls, rig, port: int, name: str = "n0") -> "Peer":
        folder = rig.folder / "ca"
        context = agent_context(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context))

    def say(self, message: object) -> None:
        self.writer.write(message if isinstance(message, bytes) else encode(message))

    async def hear(self, *kinds: type) -> object:
        """The next message of these kinds; None at the end of the stream."""
        async with asyncio.timeout(10):
            while True:
                while self._heard:
                    message = self._heard.pop(0)
                    if isinstance(message, kinds):
                        return message
                data = await self.reader.read(65536)
                if not data:
                    return None
                self._heard += self._frames.feed(data)


def test_frames_go_out_one_by_one_as_they_are_sent(rig, heard):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            peer = await Peer.dial(rig, port)
            peer.say(_hello())
            assert (await peer.hear(Welcome)).controller_epoch == 1
            # Nothing but the frame itself may make it travel: no second one, no heartbeat.
            for sequence in range(1, 6):
                assert server.send("n0", _desired(sequence))
                message = await peer.hear(Desired, Heartbeat)
                assert isinstance(message, Desired)
                assert message.sequence == sequence
            assert server.send("n0", SampleRate(10.0))
            assert await peer.hear(SampleRate) == SampleRate(10.0)
            assert not server.send("n1", SampleRate(10.0))
            peer.writer.close()

    asyncio.run(story())


def test_for_a_peer_that_does_not_read_the_newest_wish_replaces_the_older_ones(rig, heard):
    async def story() -> None:
        async with rig.link(heard, silence_seconds=60.0) as (server, port):
            peer = await Peer.dial(rig, port)
            peer.say(_hello())
            await peer.hear(Welcome)
            peer.writer.transport.pause_reading()
            most = 400
            for sequence in range(1, most + 1):
                assert server.send("n0", _desired(sequence, padding=50_000))
                await asyncio.sleep(0)
            request = CheckpointRequest("r1", "job", 1, pause=True, deadline_seconds=30.0)
            assert server.send("n0", request)
            peer.writer.transport.resume_reading()
            seen = []
            while not seen or seen[-1] != most:
                seen.append((await peer.hear(Desired)).sequence)
            assert seen == sorted(seen)
            assert len(seen) < most, "20 MB of stale wishes were not kept"
            assert await peer.hear(CheckpointRequest) == request
            peer.writer.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("says", "code"),
    [
        ([_hello("n7")], "node-identity"),
        ([_hello(version=2)], "protocol-version"),
        ([_hello(last_epoch=2)], "controller-epoch-old"),
        ([Heartbeat(AT)], "hello-missing"),
        ([_hello(), NodeFault("n7", "x", None, "in another's name")], "node-identity"),
        ([_hello(), _desired(1)], "frame-direction"),
        ([_hello(), b"\xff" * 64], "protocol-version"),
    ],
)
def test_a_peer_that_breaks_the_rules_is_told_why_and_dropped(rig, heard, says, code):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            peer = await Peer.dial(rig, port)
            for message in says:
                peer.say(message)
            fenced = await peer.hear(Fenced)
            assert fenced is not None
            assert fenced.code == code
            assert await peer.hear(Fenced) is None, "and the stream is closed"
            await heard.until(lambda: len(heard.lost) == len(heard.hellos))
            assert list(server.connected()) == []
            peer.writer.close()

    asyncio.run(story())


def test_the_newest_connection_of_a_node_wins_and_the_node_is_never_lost(rig, heard):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            old = await Peer.dial(rig, port)
            old.say(_hello())
            await old.hear(Welcome)
            new = await Peer.dial(rig, port)
            new.say(_hello())
            await new.hear(Welcome)
            assert (await old.hear(Fenced)).code == "superseded"
            assert await old.hear(Fenced) is None
            assert server.send("n0", _desired(1))
            assert (await new.hear(Desired)).sequence == 1
            assert heard.lost == []
            for peer in (old, new):
                peer.writer.close()
            await heard.until(lambda: heard.lost == ["n0"])

    asyncio.run(story())


def test_a_silent_peer_is_lost(rig, heard):
    async def story() -> None:
        async with rig.link(heard, silence_seconds=1.0) as (_server, port):
            peer = await Peer.dial(rig, port)
            peer.say(_hello())
            await heard.until(lambda: heard.lost == ["n0"])
            peer.writer.close()

    asyncio.run(story())


def test_without_a_certificate_of_our_ca_nobody_gets_in(rig, heard):
    async def answer(port: int) -> bytes:
        """What a peer without a certificate gets to read; nothing where it is cut off."""
        context = ssl.create_default_context(cafile=rig.folder / "ca" / "ca.pem")
        context.check_hostname = False
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except (ssl.SSLError, ConnectionError):
            return b""
        writer.write(encode(_hello()))
        try:
            return await reader.read(100)
        except (ssl.SSLError, ConnectionError):
            return b""
        finally:
            writer.transport.abort()

    async def story() -> None:
        async with rig.link(heard) as (_server, port):
            assert await answer(port) == b""
            assert heard.hellos == []
            assert heard.lost == []

    asyncio.run(story())
