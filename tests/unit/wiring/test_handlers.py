"""Commands about feeds, over control's own socket, with stand-ins for the loop and the feeds."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.control.instructions import Answer
from gridaware.control.site import Site
from gridaware.control.state import State
from gridaware.domain.programme import FeedSpec, Programme
from gridaware.feeds.health import FeedHealth
from gridaware.wiring.commands import CommandDesk
from gridaware.wiring.handlers import Handlers

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
FEED = {"feed_id": "f", "kind": "file", "settings": {"path": "/signals.csv"}}


def asked(
    folder: Path,
    programmes: tuple[str, ...],
    command: str,
    args: object,
    known: tuple[FeedSpec, ...] = (),
) -> dict[str, Any]:
    """What the desk answers to one command."""
    clock = ManualClock(NOON)
    site = Site(programmes=tuple(Programme(name) for name in programmes))
    health = FeedHealth("f", "file", "ok", NOON, 0.5, 0, "", "", 1, 0, 0)
    running = SimpleNamespace(
        spec=SimpleNamespace(feed_id="f", kind="file"),
        feed=object(),
        health=SimpleNamespace(now=lambda: health),
        advisories=lambda: (),
    )
    loop = SimpleNamespace(
        machine=SimpleNamespace(state=State(site=site, feeds={f.feed_id: f for f in known})),
        post=lambda _stimulus: [Answer("accepted", subject="f")],
        last_seq=1,
    )
    store = SimpleNamespace(ledger=SimpleNamespace(durable=lambda _seq: asyncio.sleep(0)))
    feeds = SimpleNamespace(get=lambda _id: running, add=lambda *_: None)
    steady = SimpleNamespace(now=lambda: SimpleNamespace(wall=NOON, seconds=1.0))
    effects = SimpleNamespace(write_waiting=lambda: None)
    handlers = Handlers(loop, store, feeds, None, steady, effects)  # type: ignore[arg-type]

    async def ask() -> bytes:
        desk = CommandDesk(folder / "s", handlers.by_name(), SimpleNamespace(), clock)
        await desk.start()
        reader, writer = await asyncio.open_unix_connection(folder / "s")
        writer.write(json.dumps({"id": "1", "command": command, "args": args}).encode() + b"\n")
        line = await reader.readline()
        writer.write_eof()
        await reader.read()
        writer.close()
        await desk.stop()
        return line

    answer: dict[str, Any] = json.loads(asyncio.run(ask()))
    return answer


def test_a_feed_of_a_programme_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    args = FEED | {"programme_id": "defualt"}
    answer = asked(tmp_path, ("default", "fast"), "feed.add", args)
    assert answer["error"]["code"] == "programme-unknown"
    assert answer["error"]["kind"] == "NotFound"
    assert "known: default, fast" in answer["error"]["message"]


@pytest.mark.parametrize("programmes", [("default",), ()])
def test_a_declared_programme_serves_and_so_does_any_where_none_is_declared(
    tmp_path: Path, programmes: tuple[str, ...]
) -> None:
    answer = asked(tmp_path, programmes, "feed.add", FEED | {"programme_id": "default"})
    assert answer["ok"], answer


def test_the_health_of_a_feed_is_an_object_with_its_times_as_everywhere(tmp_path: Path) -> None:
    health = asked(tmp_path, (), "feed.test", {"feed_id": "f"})["result"]["health"]
    assert health["state"] == "ok"
    assert health["last_good_at"] == "2026-07-01T12:00:00Z"


def test_a_feed_of_a_programme_that_another_one_excludes_is_refused(tmp_path: Path) -> None:
    args = FEED | {"programme_id": "gb-dfs"}
    answer = asked(tmp_path, ("gb-dfs", "gb-dynamic-containment"), "feed.add", args)
    assert answer["error"]["code"] == "programmes-exclusive"
    assert answer["error"]["kind"] == "Refused"
    assert "National Grid ESO" in answer["error"]["message"]


def test_what_other_feeds_speak_for_counts_where_no_programme_is_declared(tmp_path: Path) -> None:
    known = (FeedSpec("dc", "frequency", "gb-dynamic-containment"),)
    args = FEED | {"programme_id": "gb-dfs"}
    assert asked(tmp_path, (), "feed.add", args)["ok"]
    answer = asked(tmp_path, (), "feed.add", args, known)
    assert answer["error"]["code"] == "programmes-exclusive"
    other = FEED | {"programme_id": "ercot-ers-30"}
    assert asked(tmp_path, (), "feed.add", other, known)["ok"]
