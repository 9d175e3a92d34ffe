"""The status of a feed: what the schema requires, at each change, and nothing that was not seen."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.control.ports import FeedTelemetry
from gridaware.domain.errors import Unavailable
from gridaware.domain.event import Clocks, EventState, GridEvent
from gridaware.feeds.dsx.book import Book
from gridaware.feeds.dsx.carrying import carry_out
from gridaware.feeds.dsx.messages import read_event, read_targets
from gridaware.feeds.dsx.settings import DsxSettings
from gridaware.feeds.dsx.statuses import Statuses
from gridaware.sim.grid.dsx import TRACE, Isv, load_target

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
SETTINGS: dict[str, Any] = {
    "url": "mqtt://127.0.0.1:1",
    "isv_id": "acme",
    "agent_id": "site-7",
    "feeds": {"main-a": {"default_kw": 6000.0, "least_kw": 1000.0, "most_kw": 8000.0}},
    "allow_unsigned": True,
}


class Heard:
    """One feed's statuses, with the site that they tell of."""

    def __init__(self, **otherwise: Any) -> None:
        self.settings = DsxSettings(**{**SETTINGS, **otherwise})
        self.said: list[dict[str, Any]] = []
        self.away = False
        self.statuses = Statuses(self.settings, None, self._publish)
        self.book = Book()
        self.events: tuple[GridEvent, ...] = ()
        self.seconds = 0.0

    def _publish(self, topic: str, payload: bytes) -> None:
        if self.away:
            raise Unavailable("mqtt-unreachable", "away")
        assert topic == "grid/v1/poweragent/site-7/powerstate/status"
        self.said.append(json.loads(payload))

    def set(self, *targets: dict[str, object]) -> str:
        event = read_event(Isv("acme", ManualClock(NOON)).message([], data={"targets": targets}))
        assert isinstance(event.data, dict)
        read = read_targets(event.data)
        self.book = self.book.said(event, read, tuple(self.settings.feeds), NOON)
        carry_out(self.book, self.settings.default_watts, NOON, lambda _: None)
        self.statuses.confirm(event)
        return str(event.correlation_id)

    def enter(self, state: EventState) -> None:
        piece = next(iter(self.book.pieces.values()))
        event = GridEvent(
            f"grid.{piece.name}", "grid", "p", piece.name, 0, piece.request(), state, "", NOON,
            NOON, Clocks(0.0), started_at=NOON + timedelta(seconds=1),
        )  # fmt: skip
        self.events = (event,)

    def look(self, watts: float | None, after_seconds: float = 1.0) -> list[dict[str, Any]]:
        self.seconds += after_seconds
        self.said.clear()
        when = NOON + timedelta(seconds=self.seconds)
        telemetry = FeedTelemetry(
            when, self.seconds, watts, "good" if watts is not None else "missing", None, True,
            self.events,
        )  # fmt: skip
        self.statuses.report(self.book, telemetry)
        return list(self.said)


def feed_of(said: dict[str, Any], tag: str = "main-a") -> dict[str, Any]:
    return dict(said["data"]["feeds"][tag])


def test_a_set_is_confirmed_whole_under_its_correlation_id_and_in_its_trace() -> None:
    heard = Heard()
    end = "2026-12-01T13:00:00Z"
    correlation = heard.set(load_target(4, "megawatt", end=end, best_effort=True))
    (said,) = heard.look(3e6)
    assert {
        k: said[k] for k in ("specversion", "type", "source", "subject", "datacontenttype")
    } == {
        "specversion": "1.0.2",
        "type": "grid.powerstate.status.v1",
        "source": "//grid/v1/poweragent/site-7",
        "subject": "powerstate",
        "datacontenttype": "application/json",
    }
    read_event(json.dumps(said).encode())  # it holds to what we ask of others
    assert said["correlationid"] == correlation
    version, trace, span, flags = said["traceparent"].split("-")
    assert (version, trace, flags) == ("00", TRACE.split("-")[1], "01")
    assert span != TRACE.split("-")[2]
    assert feed_of(said) == {
        "metadata": {
            "power_minimum": {"value": 1000.0, "unit": "kilowatt"},
            "power_maximum": {"value": 8000.0, "unit": "kilowatt"},
            "default_constraint": {"value": 6000.0, "unit": "kilowatt"},
        },
        "targets": [
            {
                "active": False,
                "load_constraint": {"value": 4.0, "unit": "megawatt"},
                "interval": {"start_time": "2026-12-01T12:00:00Z", "end_time": end},
                "strategy": {"best_effort": True},
                "correlation_id": correlation,
            }
        ],
        "calculated_load": {"value": 3000.0, "unit": "kilowatt"},
        "in_flight": False,
        "event": "target_set",
        "power_event_start_time": None,
        "compliant": True,
    }


def test_each_ramp_is_told_once_when_it_begins_and_ends() -> None:
    heard = Heard()
    heard.set(load_target(2000))
    heard.look(5e6)
    told = []
    for state, watts in (
        (EventState.RAMPING_DOWN, 4e6),
        (EventState.RAMPING_DOWN, 3e6),
        (EventState.HOLDING, 2e6),
        (EventState.HOLDING, 2e6),
        (EventState.RAMPING_UP, 3e6),
        (EventState.RESTORED, 5e6),
    ):
        heard.enter(state)
        for said in heard.look(watts):
            feed = feed_of(said)
            told.append((
                feed["event"], feed["in_flight"], feed["targets"][0]["active"], feed["compliant"],
                feed["power_event_start_time"],
            ))  # fmt: skip
    began = "2026-12-01T12:00:01Z"
    assert told == [
        ("start_ramp_down", True, True, False, began),
        ("end_ramp_down", False, True, True, began),
        ("start_ramp_up", True, False, False, began),
        ("end_ramp_up", False, False, False, None),
    ]


def test_what_passed_between_two_looks_is_still_told_in_order() -> None:
    heard = Heard()
    heard.set(load_target(2000))
    heard.look(2e6)
    heard.enter(EventState.HOLDING)
    assert [feed_of(s)["event"] for s in heard.look(2e6)] == ["start_ramp_down", "end_ramp_down"]
    heard.events = ()
    assert [feed_of(s)["event"] for s in heard.look(2e6)] == ["start_ramp_up", "end_ramp_up"]


def test_a_site_that_does_not_act_says_that_its_targets_are_not_active() -> None:
    heard = Heard()
    heard.set(load_target(2000))
    heard.enter(EventState.OPTED_OUT)
    (said,) = heard.look(5e6)
    assert feed_of(said)["targets"][0]["active"] is False
    assert feed_of(said)["compliant"] is False


def test_a_heartbeat_comes_once_a_period_and_a_missing_load_is_no_zero() -> None:
    heard = Heard(status_seconds=10.0)
    assert heard.look(None) == []
    assert [feed_of(s)["event"] for s in heard.look(5e6)] == ["periodic"]
    assert heard.look(5e6, 9) == []
    (said,) = heard.look(None, 1)
    assert feed_of(said)["calculated_load"]["value"] == 5000.0
    assert "correlationid" not in said


def test_what_could_not_be_said_is_said_when_the_broker_is_back_and_complained_of_once() -> None:
    heard = Heard()
    first = heard.set(load_target(2000))
    heard.away = True
    with pytest.raises(Unavailable):
        heard.look(5e6)
    second = heard.set(load_target(3000))
    assert heard.look(5e6) == []
    heard.away = False
    assert [said["correlationid"] for said in heard.look(5e6)] == [first, second]
    assert heard.look(5e6) == []


def test_several_power_feeds_share_the_sites_draw_by_what_they_may_draw() -> None:
    feeds = {"a": {"default_kw": 6000.0}, "b": {"default_kw": 2000.0}}
    heard = Heard(feeds=feeds)
    heard.set(load_target(2000, tags=["a"]))
    (said,) = heard.look(3.9e6)
    a, b = feed_of(said, "a"), feed_of(said, "b")
    assert (a["calculated_load"]["value"], b["calculated_load"]["value"]) == (1950.0, 1950.0)
    assert (a["compliant"], b["compliant"], b["targets"]) == (True, True, [])
    heard.enter(EventState.HOLDING)
    said = heard.look(4.4e6)[-1]
    assert (feed_of(said, "a")["compliant"], feed_of(said, "b")["compliant"]) == (False, True)


def test_the_newer_name_of_the_role_is_a_setting() -> None:
    settings = DsxSettings(**{**SETTINGS, "agent_role": "dsx-flex-agent"})
    assert settings.status_topic == "grid/v1/dsx-flex-agent/site-7/powerstate/status"


def test_an_event_that_is_somebody_elses_makes_no_target_active() -> None:
    heard = Heard()
    heard.set(load_target(2000))
    heard.enter(EventState.HOLDING)
    heard.events = (replace(heard.events[0], source_id="another"),)
    assert all(not feed_of(s)["targets"][0]["active"] for s in heard.look(1e6))
