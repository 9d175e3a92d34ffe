"""Reports of the OpenADR 3 client, as a VTN receives them."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from gridaware.clock import ManualClock
from gridaware.control.ports import FeedTelemetry
from gridaware.domain.errors import Refused, Unavailable
from gridaware.domain.event import Clocks, EventState, GridEvent
from gridaware.domain.signal import Signal
from gridaware.feeds import check_settings
from gridaware.feeds.kind import FeedContext
from gridaware.feeds.openadr3.kind import OpenAdr3
from gridaware.sim.grid.vtn3 import Quirk, Vtn

from feed_rigs import NOW  # isort: skip

ASKED = [{"payloadType": kind} for kind in ("DEMAND", "OPERATING_STATE")]
BODY = {
    "intervalPeriod": {"start": "2026-11-30T14:00:00Z", "duration": "PT1M"},
    "intervals": [{"id": i, "payloads": [{"type": "SIMPLE", "values": [1]}]} for i in range(2)],
    "reportDescriptors": ASKED,
}


class Reporter:
    """A feed that reports to a VTN."""

    def __init__(self, vtn: Vtn, clock: ManualClock, folder: Path, **settings: object) -> None:
        self.clock = clock
        self.refused: list[str] = []
        context = FeedContext("grid", clock, NOW, lambda error, _: self.refused.append(error.code))
        given = {
            "vtn_url": vtn.url,
            "client_id": "ven-client",
            "client_secret": "env:VTN_SECRET",
            **settings,
        }
        self.feed = OpenAdr3(context, check_settings("openadr3", json.dumps(given)))  # type: ignore[arg-type]
        self.mine: tuple[GridEvent, ...] = ()

    def poll(self) -> list[Signal]:
        signals = list(self.feed.poll())
        self.mine = tuple(
            GridEvent(
                f"grid.{s.source_id}",
                "grid",
                "p",
                s.source_id,
                0,
                s.request,
                EventState.HOLDING,
                "",
                NOW,
                NOW,
                Clocks(0.0),
            )
            for s in signals
            if s.request is not None
        )
        return signals

    def run(self, seconds: int, watts: float | None = 9e4, *, act: bool = True) -> None:
        for _ in range(seconds):
            at = self.clock.wall()
            second = self.clock.monotonic_seconds()
            self.clock.advance(1)
            self.feed.report(
                FeedTelemetry(at, second, watts, "good" if watts else "", 1e4, act, self.mine)
            )


@pytest.fixture
def reporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Reporter]:
    monkeypatch.setenv("VTN_SECRET", "a-secret-of-the-ven")
    return lambda vtn, **settings: Reporter(vtn, vtn.clock, tmp_path, **settings)


Reporters = Callable[..., Reporter]


@pytest.mark.parametrize("version", ["3.0.1", "3.1"])
def test_a_report_names_its_event_and_resource_in_the_shape_of_the_version(
    reporter: Reporters, version: str
) -> None:
    told = "3.0.1" if version == "3.0.1" else "3.1.0"
    with Vtn(version=told, clock=ManualClock(NOW), quirks={Quirk.REFUSES_NULLS}) as vtn:
        program = vtn.add_program("dr")
        event = vtn.add_event(program, BODY)
        ours = reporter(vtn, version=version, resource_name="row-1")
        ours.poll()
        ours.run(125)
        (report,) = vtn.reports
        assert (report["objectType"], report["eventID"]) == ("REPORT", event["id"])
        assert report["clientName"] == "gridaware-grid"
        assert report.get("programID") == (program["id"] if version == "3.0.1" else None)
        assert report["payloadDescriptors"] == ASKED
        ((resource),) = report["resources"]
        assert resource["resourceName"] == "row-1"
        payloads = [
            {p["type"]: p["values"] for p in each["payloads"]} for each in resource["intervals"]
        ]
        assert payloads == [{"DEMAND": [90.0], "OPERATING_STATE": ["RUNNING_CURTAILED"]}] * 2


def test_while_the_site_does_not_act_it_says_opted_out(reporter: Reporters) -> None:
    with Vtn(clock=ManualClock(NOW)) as vtn:
        vtn.add_event(vtn.add_program("dr"), BODY)
        ours = reporter(vtn)
        ours.poll()
        ours.run(125, act=False)
        (report,) = vtn.reports
        states = {
            p["values"][0]
            for each in report["resources"][0]["intervals"]
            for p in each["payloads"]
            if p["type"] == "OPERATING_STATE"
        }
        assert states == {"RUNNING_OPTED_OUT"}


def test_sums_are_reported_as_sums(reporter: Reporters) -> None:
    with Vtn(clock=ManualClock(NOW)) as vtn:
        asked = [{"payloadType": "DEMAND", "aggregate": True}]
        vtn.add_event(vtn.add_program("dr"), BODY | {"reportDescriptors": asked})
        ours = reporter(vtn)
        ours.poll()
        ours.run(125)
        assert vtn.reports[0]["resources"][0]["resourceName"] == "AGGREGATED_REPORT"


def test_ri_2_a_report_that_was_stored_and_answered_500_is_sent_once(reporter: Reporters) -> None:
    with Vtn(clock=ManualClock(NOW)) as vtn:
        vtn.add_event(vtn.add_program("dr"), BODY)
        ours = reporter(vtn)
        ours.poll()
        vtn.quirks.add(Quirk.STORES_THEN_500)
        with pytest.raises(Unavailable):
            ours.run(125)
        ours.run(30)
        assert len(vtn.reports) == 1


def test_a_report_waits_until_the_server_is_back(reporter: Reporters) -> None:
    with Vtn(clock=ManualClock(NOW)) as vtn:
        vtn.add_event(vtn.add_program("dr"), BODY)
        ours = reporter(vtn)
        ours.poll()
        vtn.quirks.add(Quirk.HTML_ERRORS)
        with pytest.raises(Unavailable):
            ours.run(125)
        vtn.quirks.clear()
        ours.run(5)
        assert vtn.reports == []  # it is left alone for ten seconds
        ours.run(10)
        assert len(vtn.reports) == 1


def test_olr_22_a_report_that_is_not_wanted_is_told_and_no_token_is_asked_for(
    reporter: Reporters, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Vtn(clock=ManualClock(NOW)) as vtn:
        vtn.add_event(vtn.add_program("dr"), BODY)
        ours = reporter(vtn)
        ours.poll()
        monkeypatch.setattr("gridaware.sim.grid.vtn3.http._WRITABLE", {"vens"})
        asked = len([path for _, path in vtn.asked if path == "/auth/token"])
        with pytest.raises(Refused) as caught:
            ours.run(125)
        assert caught.value.code == "openadr3-report-refused"
        ours.run(5)
        assert len([path for _, path in vtn.asked if path == "/auth/token"]) == asked


def test_a_report_that_nobody_has_is_told_once(reporter: Reporters) -> None:
    with Vtn(clock=ManualClock(NOW)) as vtn:
        asked = [{"payloadType": "STORAGE_CHARGE_LEVEL"}, *ASKED]
        vtn.add_event(vtn.add_program("dr"), BODY | {"reportDescriptors": asked})
        ours = reporter(vtn)
        ours.poll()
        ours.poll()
        assert ours.refused == ["openadr3-report-unknown"]
        ours.run(125)
        assert len(vtn.reports) == 1


def test_olp_104_a_slow_report_delays_no_poll(reporter: Reporters) -> None:
    with Vtn(clock=ManualClock(NOW)) as vtn:
        vtn.add_event(vtn.add_program("dr"), BODY)
        ours = reporter(vtn)
        ours.poll()
        ours.clock.advance(0)
        # Polls and reports share no lock: a poll in the middle of a report's call is served.
        seen: list[int] = []
        handler = vtn.add_of_client

        def slow(kind: str, body: dict[str, object], client: str) -> dict[str, object]:
            seen.append(len(ours.poll()))
            return handler(kind, body, client)

        vtn.add_of_client = slow  # type: ignore[method-assign, assignment]
        ours.run(125)
        assert seen == [0]  # both intervals are over
        assert len(vtn.reports) == 1
        assert ours.clock.wall() - NOW == timedelta(seconds=125)
