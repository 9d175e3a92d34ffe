"""The DNP3 outstation against a master that we did not write (dnp3py's), over real sockets."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import ManualClock, SystemClock
from gridaware.control.ports import FeedReport, FeedTelemetry, Receipt
from gridaware.domain.errors import ConfigError, Refused, Unavailable
from gridaware.domain.event import Clocks, EventState, GridEvent
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import EventRequest, Quantity, Signal, TargetSpec
from gridaware.feeds.dnp3_points import ACTIVE, ACTS, FLEXIBLE, LIMIT, SITE, STALE
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.runner import RunningFeed
from gridaware.sim.grid.dnp3_master import Dnp3Master

NOW = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)
PATIENCE_SECONDS = 10.0
ONLINE, COMM_LOST = 0x01, 0x04


class Site:
    """The outstation at work, with what control would get; ``answer`` is what control says."""

    def __init__(self, memory: FeedMemory, **settings: object) -> None:
        self.clock: Any = SystemClock()
        self.signals: list[Signal] = []
        self.disposition = "accepted"
        self.error: Exception | None = None
        given = {"port": 0, "neutral_kw": 1000.0, **settings}
        spec = FeedSpec("scada", "dnp3", "limit", settings_json=json.dumps(given))
        self.running = RunningFeed(spec, NOW, self.clock, lambda *_: None, memory=memory)
        self.feed: Any = self.running.feed
        self.thread = threading.Thread(target=self.running.listen, args=(self._emit,), daemon=True)
        self.thread.start()
        for _ in range(1000):
            if self.feed.port:
                break
            threading.Event().wait(0.01)
        self.master = Dnp3Master(self.feed.port)

    def _emit(self, signal: Signal) -> Receipt:
        if self.error is not None:
            raise self.error
        self.signals.append(signal)
        return Receipt(f"scada.{signal.source_id}", signal.revision, self.disposition)

    def end(self) -> None:
        self.running.close()
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()


def period(signal: Signal) -> str:
    """Its name, without when the feed began to count."""
    return signal.source_id.partition(".")[0]


@pytest.fixture
def memory(tmp_path: Path) -> FeedMemory:
    return FeedMemory(tmp_path / "scada.json")


@pytest.fixture
def site(memory: FeedMemory) -> Iterator[Site]:
    made = Site(memory, emergency_index=0, emergency_target={"limit_kw": 200})
    yield made
    made.end()


@pytest.mark.parametrize("select", [False, True], ids=["direct", "select-before-operate"])
def test_a_written_limit_is_an_event_until_the_neutral_value_releases_it(
    site: Site, select: bool
) -> None:
    assert site.master.write_limit(840, select=select) == "SUCCESS"
    assert site.master.write_limit(720, select=select) == "SUCCESS"
    assert site.master.write_limit(1000, select=select) == "SUCCESS"
    assert site.master.write_limit(900, select=select) == "SUCCESS"
    said = [(period(s), s.revision, s.request and s.request.target.value) for s in site.signals]
    assert said == [
        ("limit-1", 0, 840_000.0),
        ("limit-1", 1, 720_000.0),
        ("limit-1", 2, None),
        ("limit-2", 0, 900_000.0),
    ]
    first = site.signals[0].request
    assert first is not None
    assert (first.end, first.immediate) == (None, True)
    assert site.running.health.now().state == "ok"


def test_a_release_of_nothing_says_nothing(site: Site) -> None:
    assert site.master.write_limit(5000) == "SUCCESS"
    assert site.signals == []


def test_the_emergency_is_latched_and_released(site: Site) -> None:
    assert site.master.latch(True) == "SUCCESS"
    assert site.master.latch(False, select=True) == "SUCCESS"
    assert [(period(s), s.request and s.request.target) for s in site.signals] == [
        ("emergency-1", TargetSpec(Quantity.LIMIT_WATTS, 200_000.0)),
        ("emergency-1", None),
    ]


def test_what_is_not_carried_out_is_answered_so(site: Site) -> None:
    assert site.master.write_limit(-1) == "OUT_OF_RANGE"
    assert site.master.write_limit(840, index=7) == "NOT_SUPPORTED"
    assert site.master.latch(True, index=3) == "NOT_SUPPORTED"
    site.disposition = "opted-out"
    assert site.master.write_limit(840) == "LOCAL"
    site.error = Refused("feed-unknown", "no such feed")
    assert site.master.write_limit(830) == "BLOCKED"
    site.error = Unavailable("store-busy", "later")
    assert site.master.write_limit(820) == "HARDWARE_ERROR"
    assert len(site.signals) == 1


def event(limit_watts: float, state: EventState = EventState.HOLDING) -> GridEvent:
    request = EventRequest(NOW, None, TargetSpec(Quantity.LIMIT_WATTS, limit_watts))
    return GridEvent(
        "scada.limit-1", "scada", "limit", "limit-1", 0, request, state, "", NOW, NOW,
        Clocks(0.0), limit_watts=limit_watts,
    )  # fmt: skip


def telemetry(**over: Any) -> FeedTelemetry:
    return replace(FeedTelemetry(NOW, 1.0, 912_400.0, "good", 310_000.0, True, ()), **over)


def points(site: Site) -> tuple[dict[int, tuple[float, int]], dict[int, bool]]:
    read = site.master.read()
    analog = {i: (v.value, int(v.quality)) for i, v in read.analog_inputs.items()}
    return analog, {i: v.value for i, v in read.binary_inputs.items()}


def test_the_master_reads_back_what_is_in_force_and_never_zero_for_what_is_missing(
    site: Site,
) -> None:
    analog, binary = points(site)
    assert analog[LIMIT] == (1000, ONLINE)  # nothing is in force: the neutral value
    assert analog[SITE][1] == analog[FLEXIBLE][1] == COMM_LOST
    assert binary == {ACTIVE: False, ACTS: False, STALE: False}
    site.feed.report(telemetry(events=(event(840_000.0),)))
    analog, binary = points(site)
    assert analog == {SITE: (912, ONLINE), LIMIT: (840, ONLINE), FLEXIBLE: (310, ONLINE)}
    assert binary == {ACTIVE: True, ACTS: True, STALE: False}
    site.feed.tell(FeedReport(event(840_000.0), "completed", NOW))
    site.feed.report(telemetry(site_watts=None, flexible_watts=None))
    analog, binary = points(site)
    assert analog[SITE] == (912, COMM_LOST)
    assert (analog[LIMIT], binary[ACTIVE]) == ((1000, ONLINE), False)


def test_another_master_is_not_answered(site: Site) -> None:
    stranger = Dnp3Master(site.feed.port, address=9, timeout_seconds=0.5)
    with pytest.raises(Exception, match=r"(?i)no response|timed? ?out|deadline"):
        stranger.write_limit(1)
    assert site.signals == []


def test_a_restart_goes_on_with_the_limit_that_stands(memory: FeedMemory) -> None:
    first = Site(memory, limit_minutes=30)
    first.master.write_limit(840)
    first.end()
    second = Site(memory, limit_minutes=30)
    second.master.write_limit(840)  # written again: it holds anew
    second.end()
    (before,), (after,) = first.signals, second.signals
    assert (period(before), before.revision) == ("limit-1", 0)
    assert (period(after), after.revision) == ("limit-1", 1)
    assert before.request is not None
    assert after.request is not None
    assert after.request.start == before.request.start
    assert before.request.end == before.request.start + timedelta(minutes=30)
    assert after.request.end is not None
    assert after.request.end > before.request.end


def test_a_master_that_falls_silent_is_flagged_and_nothing_is_released(
    memory: FeedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Site(memory, stale_seconds=1.0)
    made.master.write_limit(840)
    feed = made.feed
    for _ in range(600):
        if feed._points.database.get_binary_input(STALE).value:
            break
        threading.Event().wait(0.01)
    assert feed._points.database.get_binary_input(STALE).value
    assert [s.request is None for s in made.signals] == [False]
    made.end()


def test_an_outstation_open_to_a_network_names_who_may_connect(memory: FeedMemory) -> None:
    settings = json.dumps({"host": "0.0.0.0", "neutral_kw": 1000.0})
    spec = FeedSpec("scada", "dnp3", "limit", settings_json=settings)
    with pytest.raises(ConfigError) as caught:
        RunningFeed(spec, NOW, ManualClock(NOW), lambda *_: None, memory=memory)
    assert caught.value.code == "dnp3-open"


def test_a_host_that_was_not_named_is_hung_up_on(memory: FeedMemory) -> None:
    made = Site(memory, master_hosts=["192.0.2.7"])
    with pytest.raises(Exception, match=r".*"):
        made.master.write_limit(840)
    assert made.signals == []
    made.end()


def test_a_test_by_hand_finds_what_was_written_and_not_what_was_released(site: Site) -> None:
    site.master.write_limit(840)
    site.master.latch(True)
    assert [period(s) for s in site.feed.standing()] == ["limit-1", "emergency-1"]
    site.master.write_limit(1000)
    assert [period(s) for s in site.feed.standing()] == ["emergency-1"]
