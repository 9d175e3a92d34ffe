"""A release is told until a controller surely knows it, across restarts, and is then forgotten."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gridaware.domain.lease import Lease
from gridaware.domain.wire import Desired, Released
from gridaware.node.released import Releases

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def fact(number: int = 1, **over) -> Released:
    made = Released(f"n-{number}", "l1", ("f.e",), "alice", "why", AT)
    return replace(made, **over)


@pytest.fixture
def faults() -> list[str]:
    return []


@pytest.fixture
def kept(tmp_path, faults) -> Releases:
    return Releases(tmp_path, lambda code, text: faults.append(code))


def again(tmp_path) -> Releases:
    return Releases(tmp_path, lambda code, text: None)


def test_it_outlives_the_process(kept, tmp_path):
    kept.add(fact())
    assert again(tmp_path).all() == (fact(),)


def test_it_is_forgotten_only_a_minute_after_a_controller_heard_of_its_end(kept, tmp_path):
    kept.add(fact())
    kept.on_told(100.0)
    kept.on_tick(1000.0)
    assert kept.all(), "the limits are not back yet"
    assert kept.note_restored()
    kept.on_told(1000.0)
    kept.on_tick(1059.0)
    assert kept.all() == (fact(restored=True),)
    kept.on_tick(1061.0)
    assert kept.all() == again(tmp_path).all() == ()


def test_a_controller_lost_within_the_minute_may_not_have_written_it_down(kept):
    kept.add(fact(restored=True))
    kept.on_told(100.0)
    kept.on_lost()
    kept.on_tick(1000.0)
    assert kept.all()


def test_a_damaged_file_is_reported_and_stops_nothing(tmp_path, faults):
    (tmp_path / "releases").write_bytes(b"[{")
    kept = Releases(tmp_path, lambda code, text: faults.append(code))
    assert (kept.all(), faults) == ((), ["releases-unreadable"])


def test_a_disk_that_refuses_does_not_stop_a_release(kept, tmp_path, faults):
    (tmp_path / "releases.next").mkdir()
    kept.add(fact())
    assert (kept.all(), faults) == ((fact(),), ["releases-write"])


def desired(*event_ids: str) -> Desired:
    lease = Lease("l2", (("g", 200.0),), 60.0, event_ids=event_ids)
    return Desired(1, 2, "d2", AT, AT, lease)


def test_a_controller_that_has_not_heard_cannot_lower_again_what_was_let_go(kept):
    kept.add(fact())
    assert kept.spared(desired("f.e"), None).lease.limits_watts == ()
    assert kept.spared(desired("f.e"), Lease("l1")).lease.limits_watts, "it sets the pace back"
    assert kept.spared(desired("f.e", "f.other"), None).lease.limits_watts, "more is owed"
    kept.add(fact(2, at_once=True))
    assert kept.spared(desired("f.e"), Lease("l1")).lease.limits_watts == ()


def test_an_agent_that_is_being_removed_takes_no_limit(kept):
    kept.retiring = True
    assert kept.spared(desired("f.e"), None) is None
