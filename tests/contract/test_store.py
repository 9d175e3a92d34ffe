"""What every store must do, whatever database keeps it (SQLite, for now)."""

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridaware.domain.errors import InvalidInput, NotFound
from gridaware.domain.job import Tier
from gridaware.domain.reading import Quality
from gridaware.settlement.energy_report import EnergyFigure, EnergyReport, JobEnergy
from gridaware.store.controller import ControllerStore
from gridaware.store.reader import StoreReader

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.fixture(params=["sqlite"])
def location(request, tmp_path: Path) -> str:
    return str(tmp_path / "s.db")


@pytest.fixture
def store(location):
    store = ControllerStore(location, site_id="dc-1", started_at=NOON)
    yield store
    store.close()


@pytest.fixture
def reader(store, location):
    reader = StoreReader(location)
    yield reader
    reader.close()


def _put(store, *names: str, state: str = "running", kind: str = "job") -> None:
    for name in names:
        store.documents.put(kind, name, state, {"job_id": name, "state": state}, NOON)
    store.ledger.flush()


def _ids(page) -> list[str]:
    return [json.loads(body)["job_id"] for body in page.bodies]


# Documents


def test_a_document_reads_back_byte_for_byte(store, reader):
    store.documents.put("job", "a", "running", b'{"job_id": "a",  "spaces": "kept"}', NOON)
    store.ledger.flush()
    assert reader.get("job", "a") == b'{"job_id": "a",  "spaces": "kept"}'


def test_an_absent_document_is_not_found_by_its_kind(reader):
    with pytest.raises(NotFound) as caught:
        reader.get("job", "nobody")
    assert caught.value.code == "job-unknown"


def test_lists_are_newest_first_and_filtered_by_state(store, reader):
    _put(store, "a", "b")
    _put(store, "c", state="paused")
    _put(store, "elsewhere", kind="event")
    assert _ids(reader.list("job")) == ["c", "b", "a"]
    assert _ids(reader.list("job", states=["paused"])) == ["c"]
    assert _ids(reader.list("job", states=["paused", "running"])) == ["c", "b", "a"]
    assert _ids(reader.list("node")) == []


def test_pages_neither_repeat_nor_skip_while_documents_come_and_change(store, reader):
    _put(store, *"abcdefg")
    seen, cursor = [], None
    for turn in range(10):
        page = reader.list("job", limit=2, cursor=cursor)
        seen += _ids(page)
        _put(store, f"new-{turn}")
        _put(store, "c", state=f"state-{turn}")
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == list("gfedcba")


def test_the_last_full_page_has_no_next_one(store, reader):
    _put(store, "a", "b")
    assert reader.list("job", limit=2).next_cursor is None


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1; DROP TABLE ledger", "9" * 40, "٣"])
def test_a_cursor_that_is_none_of_ours_is_refused(reader, cursor):
    with pytest.raises(InvalidInput) as caught:
        reader.list("job", cursor=cursor)
    assert caught.value.code == "cursor-malformed"


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_page_has_bounds(reader, limit):
    with pytest.raises(InvalidInput) as caught:
        reader.list("job", limit=limit)
    assert caught.value.code == "limit-range"


def test_a_follower_learns_each_change_once_and_removals_too(store, reader):
    _put(store, "a", "b")
    version, _ = reader.state([], 1)
    _put(store, "a")  # says the same again
    assert reader.changes(version) == ()
    _put(store, "b", state="paused")
    store.documents.remove("job", "a", NOON)
    store.ledger.flush()
    changes = reader.changes(version)
    assert [(c.kind, c.document_id, c.state, c.body is None) for c in changes] == [
        ("job", "b", "paused", False),
        ("job", "a", "removed", True),
    ]
    assert reader.changes(changes[-1].version) == ()
    assert reader.changes(version, kinds=["event"]) == ()
    assert _ids(reader.list("job")) == ["b"]
    with pytest.raises(NotFound):
        reader.get("job", "a")
    _put(store, "a")
    assert _ids(reader.list("job")) == ["b", "a"]  # its place in the list is its first one


def test_the_state_is_the_newest_documents_at_the_version_from_which_changes_follow(store, reader):
    _put(store, *"abc")
    _put(store, "e", kind="event")
    version, state = reader.state(["job", "event", "node"], 2)
    assert {kind: _ids(page) for kind, page in state.items()} == {
        "job": ["c", "b"],
        "event": ["e"],
        "node": [],
    }
    assert (state["job"].next_cursor is None, state["event"].next_cursor) == (False, None)
    assert _ids(reader.list("job", cursor=state["job"].next_cursor)) == ["a"]
    assert reader.changes(version) == ()


def test_versions_go_on_rising_after_a_restart(store, reader, location):
    _put(store, "a")
    version, _ = reader.state([], 1)
    store.close()
    again = ControllerStore(location, site_id="dc-1", started_at=NOON)
    _put(again, "b")
    assert [c.document_id for c in reader.changes(version)] == ["b"]
    again.close()


def test_readers_see_whole_commits_while_the_writer_works(store, reader):
    """Both documents of a pair are put together: no reader ever finds them apart."""
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            for name in ("left", "right"):
                store.documents.put("job", name, "running", {"job_id": number}, NOON)
            store.ledger.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        lists = [_ids(reader.list("job")) for _ in range(300)]
        for _ in range(20_000):  # on a machine whose writer hardly gets a turn
            if len({pair[0] for pair in lists if pair}) > 1:
                break
            lists.append(_ids(reader.list("job")))
    finally:
        stop.set()
        writer.join()
    pairs = [pair for pair in lists if pair]
    assert pairs == sorted(pairs)
    assert len({pair[0] for pair in pairs}) > 1
    assert all(left == right for left, right in pairs)


# Series


def test_series_are_reduced_to_least_mean_and_greatest_by_step(store, reader):
    for second, watts in enumerate([100.0, 200.0, 600.0, 50.0]):
        store.series.append("meter", NOON + timedelta(seconds=second), watts)
    store.series.append("meter", NOON + timedelta(seconds=4), 70.0, Quality.SUSPECT)
    store.series.append("other", NOON, 9e9)
    store.ledger.flush()
    first, second = reader.power("meter", NOON, NOON + timedelta(seconds=5), 3)
    assert (first.at, first.points, first.quality) == (NOON, 3, "good")
    assert (first.min_watts, first.mean_watts, first.max_watts) == (100.0, 300.0, 600.0)
    assert (second.at, second.points, second.quality) == (NOON + timedelta(seconds=3), 2, "suspect")
    assert (second.min_watts, second.mean_watts, second.max_watts) == (50.0, 60.0, 70.0)


def test_a_range_is_half_open_and_aligned_to_the_step(store, reader):
    for second in (-1, 0, 59, 60):
        store.series.append("meter", NOON + timedelta(seconds=second), float(second))
    store.ledger.flush()
    [minute] = reader.power("meter", NOON, NOON + timedelta(seconds=60), 60)
    assert (minute.at, minute.points, minute.max_watts) == (NOON, 2, 59.0)
    late = reader.power("meter", NOON + timedelta(seconds=30), NOON + timedelta(seconds=90), 60)
    assert [b.at for b in late] == [NOON, NOON + timedelta(seconds=60)]


def test_a_lifted_target_has_no_watts(store, reader):
    store.series.append("target", NOON, 500.0)
    store.series.append("target", NOON + timedelta(seconds=10), None)
    store.ledger.flush()
    on, off = reader.power("target", NOON, NOON + timedelta(seconds=20), 10)
    assert (on.mean_watts, off.mean_watts, off.points) == (500.0, None, 1)
    assert reader.latest_power("target") == (NOON + timedelta(seconds=10), None, "good")
    assert reader.latest_power("never") is None


def test_numbers_and_names_of_other_libraries_become_plain_ones(store, reader):
    store.series.append("meter", NOON, np.float32(2.5), Quality.HELD)
    store.documents.put(Tier.FIRM, Tier.FLEX_1, Quality.GOOD, {}, NOON)
    store.ledger.append(Tier.FIRM, {}, NOON)
    store.ledger.flush()
    assert reader.latest_power("meter") == (NOON, 2.5, "held")
    assert reader.get("firm", "flex-1") == b"{}"
    assert (store.ledger.verify(), store.ledger.read()[0].kind) == (1, "firm")


def test_a_second_point_in_the_same_millisecond_replaces_the_first(store, reader):
    store.series.append("meter", NOON, 1.0)
    store.series.append("meter", NOON + timedelta(microseconds=400), 2.0)
    store.ledger.flush()
    [only] = reader.power("meter", NOON, NOON + timedelta(seconds=1), 1)
    assert (only.points, only.mean_watts) == (1, 2.0)


# Energy


def _figure(name: str, joules: float, method: str = "counter", flags=(), coverage: float = 1.0):
    return EnergyFigure(name, joules, joules / 3.6e6, method, coverage, 1.0, 60, flags)


def _minute(number: int, running: EnergyFigure, held_joules: float = 0.0) -> EnergyReport:
    held = _figure("held_idle", held_joules)
    joules = running.joules + held.joules
    job = JobEnergy(
        job_id="train",
        team="vision",
        tier="flex-2",
        gpus=4,
        energy_joules=joules,
        energy_kwh=joules / 3.6e6,
        running=running,
        held_idle=held,
    )
    return EnergyReport(
        schema="x",
        start=NOON + timedelta(minutes=number),
        end=NOON + timedelta(minutes=number + 1),
        seconds=60.0,
        boundary="site",
        meter_method="meter",
        meter=_figure("meter", 1000.0),
        lines=(running, held, _figure("overhead", 10.0, "estimated")),
        jobs=(job,),
        teams=(),
        gpus=(_figure("GPU-1", 700.0),),
        overhead_quality="assumed",
        sensor_gain_unknown=0.05,
        warnings=(),
    )


def test_energy_of_whole_periods_adds_up_by_subject_method_and_flag(store, reader):
    store.energy.append(_minute(0, _figure("job", 100.0)))
    store.energy.append(_minute(1, _figure("job", 200.0), held_joules=7.0))
    store.energy.append(_minute(2, _figure("job", 400.0, "integrated", ("counter-reset",), 0.5)))
    store.energy.append(_minute(3, _figure("job", 800.0)))
    store.ledger.flush()
    sums = reader.energy(NOON, NOON + timedelta(minutes=3, seconds=59))
    jobs = [s for s in sums if s.line == "job"]
    assert [(s.subject, s.team, s.tier, s.gpus) for s in jobs] == [
        ("train", "vision", "flex-2", 4)
    ] * 2
    by_method = {s.method: s for s in jobs}
    counted, joined = by_method["counter"], by_method["integrated"]
    assert (counted.joules, counted.band_joules, counted.seconds) == (300.0, 2.0, 120.0)
    assert (counted.start, counted.end) == (NOON, NOON + timedelta(minutes=2))
    assert (joined.joules, joined.flags, joined.covered_seconds) == (400.0, "counter-reset", 30.0)
    lines = {(s.line, s.subject): s.joules for s in sums if s.line != "job"}
    assert lines == {
        ("meter", ""): 3000.0,
        ("overhead", ""): 30.0,
        ("held_idle", "train"): 7.0,
        ("gpu", "GPU-1"): 2100.0,
    }


def test_no_period_within_the_range_is_no_energy(store, reader):
    store.energy.append(_minute(0, _figure("job", 100.0)))
    store.ledger.flush()
    assert reader.energy(NOON + timedelta(seconds=1), NOON + timedelta(hours=1)) == ()


# Answers already given


def test_a_repeated_request_gets_its_first_answer(store):
    args = {"job_id": "a", "gpus": 2}
    assert store.idempotency.find("key-1", "job.submit", args) is None
    store.idempotency.remember("key-1", "job.submit", args, "admin", b'{"ok":true}', NOON)
    assert store.idempotency.find("key-1", "job.submit", {"gpus": 2, "job_id": "a"}) == (
        b'{"ok":true}'
    )


@pytest.mark.parametrize(
    ("command", "args"), [("job.submit", {"gpus": 3}), ("job.stop", {"gpus": 2})]
)
def test_a_key_used_for_another_request_is_refused(store, command, args):
    store.idempotency.remember("key-1", "job.submit", {"gpus": 2}, "admin", b"{}", NOON)
    with pytest.raises(InvalidInput) as caught:
        store.idempotency.find("key-1", command, args)
    assert caught.value.code == "idempotency-key-reused"


# Instants


@settings(max_examples=50, deadline=None)
@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_instants_keep_their_millisecond(instant):
    from gridaware.store.times import epoch_milliseconds, instant_of

    milliseconds = epoch_milliseconds(instant)
    # exact integer arithmetic on the difference, not a float timestamp
    assert milliseconds == (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert instant - instant_of(milliseconds) < timedelta(milliseconds=1)
