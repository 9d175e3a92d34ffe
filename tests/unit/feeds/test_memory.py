"""A feed's memory: written at once, bounded, and never a reason to conclude anything."""

import json
import stat
from pathlib import Path

import pytest

from gridaware.domain.errors import InvalidInput, Unavailable
from gridaware.feeds import memory as memory_module
from gridaware.feeds.ids import source_id
from gridaware.feeds.memory import FeedMemory


def test_what_is_put_is_read_again_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "feeds" / "utility.json"
    first = FeedMemory(path)
    first.put("draws", {"ev-1.0": -312.5})
    first.put("ven", "v-9")
    first.put("ven", None)
    again = FeedMemory(path)
    assert (again.get("draws"), again.get("ven"), again.broken) == ({"ev-1.0": -312.5}, None, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == {"draws": {"ev-1.0": -312.5}}


def test_a_value_read_is_a_copy() -> None:
    memory = FeedMemory()
    memory.put("seen", [1])
    memory.get("seen").append(2)
    assert memory.get("seen") == [1]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"a":1' + b"[" * 9000])
def test_a_broken_file_is_said_and_begun_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "utility.json"
    path.write_bytes(content)
    memory = FeedMemory(path)
    assert memory.broken.startswith("utility.json: ")
    memory.put("a", 1)
    assert FeedMemory(path).get("a") == 1


def test_a_feed_cannot_keep_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "BYTES_AT_MOST", 100)
    memory = FeedMemory()
    memory.put("a", "x" * 50)
    with pytest.raises(InvalidInput, match="more than 1 MiB"):
        memory.put("b", "x" * 50)
    assert (memory.get("a"), memory.get("b")) == ("x" * 50, None)
    with pytest.raises(InvalidInput):
        memory.put("c", float("nan"))


def test_what_cannot_be_written_is_kept_for_as_long_as_the_process_lasts(tmp_path: Path) -> None:
    (tmp_path / "feeds").write_text("a file in the folder's place")
    memory = FeedMemory(tmp_path / "feeds" / "utility.json")
    with pytest.raises(Unavailable) as caught:
        memory.put("a", 1)
    assert caught.value.code == "feed-memory-unwritable"
    assert memory.get("a") == 1


def test_names_that_fit_stay_as_they_are_and_others_stay_apart() -> None:
    assert source_id("ev-1", 0) == "ev-1.0"
    long = "event/" + "é" * 100
    one, other = source_id(long, 0), source_id(long, 1)
    assert one != other
    assert one.startswith("event-")
    assert all(len(name) <= 64 for name in (one, other))
    assert source_id("a.b", "c") == "a.b.c"
    assert source_id("...") != source_id("....")
    assert source_id("\ud800")[0] == "x"
