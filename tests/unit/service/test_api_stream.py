"""The stream: first the state, then each change once, resumed where it broke off."""

import asyncio
import dataclasses
import json

import pytest

from gridaware.service.app import build_app
from gridaware.service.context import Web
from gridaware.service.routes.stream import stream

ALL = ("status", "event", "job", "node", "feed", "policy", "report")


def _parsed(event: bytes) -> tuple[int, str, dict]:
    lines = event.decode().removesuffix("\n\n").split("\n")
    fields = dict(line.split(": ", 1) for line in lines)
    assert list(fields) == ["id", "event", "data"]
    return int(fields["id"]), fields["event"], json.loads(fields["data"])


class Follower:
    """Reads a stream event by event, as a browser would."""

    def __init__(self, web: Web, *, kind=None, last_event_id=None) -> None:
        self._web, self._kind, self._last = web, kind, last_event_id

    async def __aenter__(self):
        response = await stream(self._web, self._kind, self._last)
        self._events = response.body_iterator
        return self

    async def __aexit__(self, *exc) -> None:
        await self._events.aclose()

    async def next(self) -> tuple[int, str, dict]:
        async with asyncio.timeout(10):
            return _parsed(await anext(self._events))


@pytest.fixture
def web(settings, clock, store):
    web = build_app(settings, clock).state.web
    yield web
    web.close()


@pytest.fixture
def put(store, clock):
    def put(kind: str, name: str, number: int) -> None:
        store.documents.put(kind, name, "running", {"number": number}, clock.wall())
        store.ledger.flush()

    return put


def test_the_state_comes_first_and_changes_follow_once_each(web, put, store, clock):
    async def follow() -> None:
        put("job", "a", 1)
        put("event", "e", 1)
        async with Follower(web) as follower:
            version, name, state = await follower.next()
            assert (name, set(state)) == ("state", set(ALL))
            assert state["job"] == {"items": [{"number": 1}], "next_cursor": None}
            put("job", "a", 2)
            put("job", "b", 1)
            second, name, change = await follower.next()
            assert (name, second > version) == ("change", True)
            body = {"number": 2}
            assert change == {"kind": "job", "id": "a", "state": "running", "body": body}
            third, _, change = await follower.next()
            assert (change["id"], third > second) == ("b", True)
            store.documents.remove("job", "a", clock.wall())
            store.ledger.flush()
            _, name, change = await follower.next()
            assert (name, change) == ("remove", {"kind": "job", "id": "a"})

    asyncio.run(follow())


def test_a_follower_that_returns_gets_what_it_missed_and_no_state(web, put):
    async def follow() -> None:
        put("job", "a", 1)
        async with Follower(web) as follower:
            version, _, _ = await follower.next()
        for number in (2, 3):
            put("job", "a", number)
        put("job", "b", 1)
        async with Follower(web, last_event_id=str(version)) as follower:
            missed = [await follower.next(), await follower.next()]
        assert [(name, c["id"], c["body"]["number"]) for _, name, c in missed] == [
            ("change", "a", 3),
            ("change", "b", 1),
        ]

    asyncio.run(follow())


@pytest.mark.parametrize("last", ["", "nonsense", "-4", "999999999", "9" * 30])
def test_an_id_that_is_not_of_this_store_begins_again_with_the_state(web, put, last):
    async def follow() -> None:
        put("job", "a", 1)
        async with Follower(web, last_event_id=last) as follower:
            _, name, _ = await follower.next()
        assert name == "state"

    asyncio.run(follow())


def test_only_the_kinds_that_were_asked_for_are_sent(web, put):
    async def follow() -> None:
        async with Follower(web, kind=["event"]) as follower:
            _, _, state = await follower.next()
            assert list(state) == ["event"]
            put("job", "a", 1)
            put("event", "e", 1)
            _, _, change = await follower.next()
            assert change["kind"] == "event"

    asyncio.run(follow())


def test_a_body_with_line_breaks_stays_one_field(web, store, clock):
    async def follow() -> None:
        store.documents.put("job", "a", "running", b'{"number":\r\n\n 1}', clock.wall())
        store.ledger.flush()
        async with Follower(web) as follower:
            _, _, state = await follower.next()
        assert state["job"]["items"] == [{"number": 1}]

    asyncio.run(follow())


def test_streams_are_bounded_and_a_closed_one_makes_room(settings, clock, store, put):
    web = build_app(dataclasses.replace(settings, streams_at_most=1), clock).state.web

    async def follow() -> None:
        from gridaware.domain.errors import Unavailable

        async with Follower(web) as follower:
            await follower.next()
            with pytest.raises(Unavailable) as caught:
                await stream(web, None, None)
            assert caught.value.code == "stream-full"
        async with Follower(web) as follower:
            assert (await follower.next())[1] == "state"

    asyncio.run(follow())
    assert web.streams_open == 0
    web.close()
