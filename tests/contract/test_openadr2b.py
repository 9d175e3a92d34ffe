"""The `openadr2b` kind against a scripted VTN: registration, events, answers, reports.

Case numbers are those of the project's notes on what users of 2.0b met.
"""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from feed_rigs.openadr2b import decided

from gridaware.clock import ManualClock
from gridaware.control.ports import FeedTelemetry
from gridaware.domain.errors import ConfigError, GridawareError
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import Signal
from gridaware.feeds import open_feed
from gridaware.feeds.kind import FeedContext
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.runner import RunningFeed
from gridaware.sim.grid.vtn2 import DrEvent, DrSignal, Vtn2, created_report, distributed, message
from gridaware.sim.grid.vtn2.messages import report_request, response

NOW = datetime(2026, 11, 30, 14, tzinfo=UTC)
START = NOW + timedelta(hours=1)


@pytest.fixture
def vtn() -> Iterator[Vtn2]:
    with Vtn2() as server:
        yield server


class Site:
    """A feed at work, and control as far as a feed sees it."""

    def __init__(self, vtn: Vtn2, memory: FeedMemory | None = None, **settings: object) -> None:
        self.vtn = vtn
        self.clock = ManualClock(NOW)
        self.memory = memory or FeedMemory()
        self.refused: list[str] = []
        self.signals: list[Signal] = []
        self.act = True
        spec = FeedSpec(
            "grid", "openadr2b", "p", settings_json=json.dumps({"vtn_url": vtn.url, **settings})
        )
        self.running = RunningFeed(
            spec, NOW, self.clock, lambda *what: self.refused.append(what[1]), memory=self.memory
        )
        self.feed: Any = self.running.feed

    def poll(self) -> list[Signal]:
        """Poll once; returns what is new."""
        before = len(self.signals)
        self.running.poll_once(self.signals.append)
        self.clock.advance(10)
        return self.signals[before:]

    def failure(self) -> str:
        return self.running.health.now().reason_code

    def sample(self, watts: float | None = 800_000.0, seconds: float = 1.0) -> None:
        """One sample of the site, a second later."""
        self.clock.advance(seconds)
        at, monotonic = self.clock.wall(), self.clock.monotonic_seconds()
        quality = "missing" if watts is None else "good"
        self.feed.report(FeedTelemetry(at, monotonic, watts, quality, 300e3, self.act, ()))

    def decide(self, status: str, *signals: Signal) -> None:
        """Control has decided about signals."""
        for signal in signals:
            self.feed.tell(decided(signal, status, self.clock.wall()))


@pytest.fixture
def site(vtn: Vtn2) -> Site:
    return Site(vtn)


def event(name: str, value: float = 2, **rest: Any) -> DrEvent:
    return DrEvent(name, START, signals=(DrSignal(intervals=(("PT1H", value),)),), **rest)


def asked(signals: list[Signal]) -> dict[str, float | None]:
    return {
        signal.source_id.split(".")[0]: None
        if signal.request is None
        else signal.request.target.value
        for signal in signals
    }


# Lists ------------------------------------------------------------------------------------------


def test_case_4_the_whole_list_is_asked_for_first_and_after_every_lost_connection(
    vtn: Vtn2, site: Site
) -> None:
    vtn.events = [event("a")]
    assert asked(site.poll()) == {"a": 0.25}
    assert vtn.kinds()[:2] == ["oadrCreatePartyRegistration", "oadrRequestEvent"]
    site.poll()
    vtn.reply("oadrPoll", 503)
    site.poll()
    assert site.failure() == "openadr2-http"
    vtn.asked.clear()
    site.clock.advance(60)
    vtn.events = [event("b")]
    assert asked(site.poll()) == {"a": None, "b": 0.25}
    assert "oadrRequestEvent" in vtn.kinds()
    assert "oadrPoll" not in vtn.kinds()


def test_a_restart_of_ours_registers_no_second_time_and_asks_for_the_list(vtn: Vtn2) -> None:
    first = Site(vtn)
    vtn.say(event("a"), event("b"))
    first.poll()
    vtn.asked.clear()
    vtn.events = [event("b")]
    again = Site(vtn, first.memory)
    assert asked(again.poll()) == {"a": None, "b": 0.25}
    assert vtn.kinds()[0] == "oadrRequestEvent"
    assert "oadrCreatePartyRegistration" not in vtn.kinds()


def test_case_1_what_a_poll_leaves_out_is_cancelled_once_the_list_says_so(
    vtn: Vtn2, site: Site
) -> None:
    vtn.say(event("a"), event("b"))
    site.poll()
    vtn.say(event("b"))
    assert asked(site.poll()) == {"a": None}


def test_a_server_that_sends_only_what_changed_cancels_nothing(vtn: Vtn2, site: Site) -> None:
    vtn.say(event("a"))
    site.poll()
    vtn.events = [event("a"), event("b")]
    vtn.push(distributed([event("b")]))
    assert asked(site.poll()) == {"b": 0.25}


def test_case_2_an_empty_list_cancels_all_the_active_one_included(vtn: Vtn2, site: Site) -> None:
    vtn.say(event("a"), event("b"))
    site.poll()
    site.clock.advance(3700)
    vtn.say()
    assert asked(site.poll()) == {"a": None, "b": None}


def test_an_answer_that_lists_nothing_at_all_releases_nothing(vtn: Vtn2, site: Site) -> None:
    """openleadr's server answers oadrResponse where its list is empty, and after a restart."""
    vtn.say(event("a"))
    site.poll()
    nothing = message("oadrResponse", f"{response()}<ei:venID>VEN-1</ei:venID>")
    site.clock.advance(700)
    vtn.reply("oadrRequestEvent", nothing)
    assert site.poll() == []
    assert site.refused == ["openadr2-lists-nothing"]
    vtn.reply("oadrPoll", distributed([]))
    vtn.reply("oadrRequestEvent", nothing)
    assert site.poll() == []
    assert asked(list(site.feed.poll())) == {"a": 0.25}


@pytest.mark.parametrize(
    "spoil",
    [
        503,
        b"",
        b"<html>Bad gateway</html>",
        distributed([])[:-40],
        distributed([], envelope=False),
        distributed([], vtn_id="ANOTHER_VTN"),
        b'<?xml version="1.0"?><!DOCTYPE a []>' + distributed([])[38:],
        message("oadrResponse", response(500, "internal error")),
    ],
)
def test_a_poll_that_is_not_whole_and_ours_concludes_nothing(
    vtn: Vtn2, site: Site, spoil: bytes | int
) -> None:
    vtn.say(event("a"))
    site.poll()
    for kind in ("oadrPoll", "oadrRequestEvent"):
        vtn.reply(kind, spoil)
        assert site.poll() == []
        assert site.failure()
        site.clock.advance(100)
    assert asked(list(site.feed.poll())) == {"a": 0.25}


def test_case_6_a_cancelled_event_that_stays_listed_hides_no_new_one(vtn: Vtn2, site: Site) -> None:
    vtn.say(event("a"))
    site.poll()
    gone = event("a", modification=1, status="cancelled")
    vtn.say(gone)
    assert asked(site.poll()) == {"a": None}
    vtn.say(gone)
    assert site.poll() == []
    vtn.say(gone, event("b"))
    assert asked(site.poll()) == {"b": 0.25}


def test_one_bad_event_among_fifty_costs_the_others_nothing(vtn: Vtn2, site: Site) -> None:
    events: list[DrEvent | str] = [event(f"e{number}") for number in range(49)]
    vtn.say(*events, event("bad").xml().replace("PT1H", "an hour"))
    assert len(site.poll()) == 49
    assert site.refused == ["duration-malformed"]


def test_what_is_no_list_is_not_taken_for_one(vtn: Vtn2, site: Site) -> None:
    vtn.say(event("a"))
    vtn.reply("oadrRequestEvent", message("oadrCreatedEvent", response()))
    assert site.poll() == []
    assert site.failure() == "openadr2-unexpected"
    site.clock.advance(60)
    assert asked(site.poll()) == {"a": 0.25}
    vtn.push(message("oadrCreatedEvent", response()))
    site.poll()
    assert site.failure() == ""
    assert site.refused == ["openadr2-unexpected"]


# Registration -----------------------------------------------------------------------------------


@pytest.mark.parametrize("told", ["re-register", "463", "452"])
def test_case_8_a_restarted_server_is_joined_again_and_the_cap_kept_meanwhile(
    vtn: Vtn2, site: Site, told: str
) -> None:
    vtn.say(event("a"))
    site.decide("opted-in", *site.poll())
    vtn.forget()
    if told != "re-register":
        vtn.reply("oadrPoll", message("oadrResponse", response(int(told), "not registered")))
    vtn.asked.clear()
    assert site.poll() == []
    assert vtn.kinds()[0] == "oadrPoll"
    assert vtn.kinds()[-2:] == ["oadrCreatePartyRegistration", "oadrRequestEvent"]
    assert site.refused == ["openadr2-not-registered", "openadr2-server-restarted"]
    site.sample()
    assert "oadrRegisterReport" in vtn.kinds()
    vtn.say(event("b"))
    assert asked(site.poll()) == {"b": 0.25}
    assert asked(list(site.feed.poll())) == {"a": 0.25, "b": 0.25}


def test_the_same_ids_after_a_new_registration_release_nothing_either(
    vtn: Vtn2, site: Site
) -> None:
    """A server may know its clients from a file, and have lost its events."""
    vtn.say(event("a"), event("b"))
    site.poll()
    ours = dict(vtn.registered)
    vtn.push(message("oadrRequestReregistration", "<ei:venID>VEN-1</ei:venID>"))
    vtn.events = [event("b")]
    assert site.poll() == []
    assert vtn.registered == ours
    assert vtn.last("oadrCreatePartyRegistration").said("registrationID") == ours["VEN-1"]
    vtn.say()
    assert asked(site.poll()) == {"b": None}
    assert asked(list(site.feed.poll())) == {"a": 0.25, "b": None}


def test_case_10_a_poll_may_bring_anything_that_a_server_pushes(vtn: Vtn2, site: Site) -> None:
    vtn.say(event("a"))
    site.poll()
    vtn.push(created_report([report_request("R-1", "gridaware-usage", ["power"])], "VEN-1"))
    vtn.push(message("oadrRegisterReport", "<pyld:requestID>q</pyld:requestID>"))
    vtn.push(message("oadrUpdateReport", "<pyld:requestID>q</pyld:requestID>"))
    vtn.push(message("oadrCancelReport", "<ei:reportRequestID>R-1</ei:reportRequestID>"))
    vtn.push(message("oadrResponse", response()))
    vtn.asked.clear()
    assert site.poll() == []
    answered = [kind for kind in vtn.kinds() if kind not in {"oadrPoll", "oadrCreatedEvent"}]
    assert answered == [
        "oadrCreatedReport",
        "oadrRegisteredReport",
        "oadrUpdatedReport",
        "oadrCanceledReport",
    ]
    assert site.refused == []


def test_case_10_a_server_that_ends_our_registration_is_left_alone_and_nothing_released(
    vtn: Vtn2, site: Site
) -> None:
    vtn.say(event("a"))
    site.poll()
    registration = vtn.registered["VEN-1"]
    other = "<ei:registrationID>another</ei:registrationID><ei:venID>VEN-1</ei:venID>"
    vtn.push(message("oadrCancelPartyRegistration", other))
    site.poll()
    assert site.refused == ["openadr2-other-ven"]
    ours = f"<ei:registrationID>{registration}</ei:registrationID><ei:venID>VEN-1</ei:venID>"
    vtn.push(message("oadrCancelPartyRegistration", ours))
    assert site.poll() == []
    assert vtn.kinds()[-1] == "oadrCanceledPartyRegistration"
    assert site.failure() == "openadr2-put-out"
    vtn.asked.clear()
    site.clock.advance(60)
    site.poll()
    assert vtn.kinds() == []
    site.clock.advance(300)
    vtn.forget()
    assert site.poll() == []
    assert vtn.kinds()[0] == "oadrCreatePartyRegistration"


def test_a_message_for_another_ven_is_refused(vtn: Vtn2, site: Site) -> None:
    site.poll()
    vtn.push(message("oadrRequestReregistration", "<ei:venID>VEN-9</ei:venID>"))
    site.poll()
    assert site.refused == ["openadr2-other-ven"]
    assert vtn.kinds().count("oadrCreatePartyRegistration") == 1


def test_a_server_that_is_another_than_the_settings_name_is_refused(vtn: Vtn2) -> None:
    site = Site(vtn, vtn_id="UTILITY_VTN")
    assert site.poll() == []
    assert site.failure() == "openadr2-other-vtn"


def test_a_server_is_polled_no_more_often_than_it_wants(vtn: Vtn2) -> None:
    vtn.poll_every = "PT1M"
    site = Site(vtn)
    for _ in range(13):  # two minutes
        site.poll()
    assert vtn.kinds().count("oadrPoll") in {2, 3}
    assert site.running.health.now().failures == 0


def test_a_server_whose_clock_is_wrong_is_told_once(vtn: Vtn2, site: Site) -> None:
    vtn.date = NOW + timedelta(seconds=1)
    site.poll()
    assert site.refused == []
    vtn.date = NOW + timedelta(minutes=5)
    site.poll()
    site.poll()
    assert site.refused == ["openadr2-clock-offset"]


# Answers ----------------------------------------------------------------------------------------


def test_case_19_always_is_answered_before_the_next_poll(vtn: Vtn2, site: Site) -> None:
    site.poll()
    vtn.say(event("a"))
    site.poll()
    assert vtn.answers == {}, "control has not decided"
    vtn.asked.clear()
    site.poll()
    assert vtn.kinds() == ["oadrCreatedEvent", "oadrPoll"]
    assert vtn.answers == {"a": ("optOut", 0, "200")}, "nobody has decided to take part"


def test_an_event_is_answered_as_soon_as_all_of_it_is_decided(vtn: Vtn2, site: Site) -> None:
    steps = DrSignal(intervals=(("PT30M", 1), ("PT30M", 2)))
    vtn.say(DrEvent("a", START, signals=(steps,), modification=3))
    first, second = site.poll()
    site.decide("opted-in", first)
    assert vtn.answers == {}
    site.decide("opted-in", second)
    assert vtn.answers == {"a": ("optIn", 3, "200")}
    said = vtn.last("oadrCreatedEvent").get("eiCreatedEvent", "eventResponses", "eventResponse")
    assert said is not None
    assert said.said("requestID") == "REQ-1"


def test_every_list_is_answered_again_also_after_a_restart_of_ours(vtn: Vtn2, site: Site) -> None:
    vtn.say(event("a"))
    site.decide("opted-in", *site.poll())
    vtn.answers.clear()
    vtn.say(event("a"))
    site.poll()
    assert vtn.answers == {"a": ("optIn", 0, "200")}
    vtn.answers.clear()
    Site(vtn, site.memory).poll()
    assert vtn.answers == {"a": ("optIn", 0, "200")}


def test_what_was_decided_of_an_event_that_is_over_holds_no_longer(vtn: Vtn2, site: Site) -> None:
    """A server gives an old id to a new event; control has closed the old one."""
    vtn.say(event("a"))
    site.decide("opted-in", *site.poll())
    vtn.say()
    site.poll()
    vtn.answers.clear()
    vtn.say(event("a", 3))
    (signal,) = site.poll()
    assert (signal.revision, vtn.answers) == (2, {})
    site.poll()
    assert vtn.answers == {"a": ("optOut", 0, "200")}


def test_case_18_never_is_not_answered(vtn: Vtn2, site: Site) -> None:
    vtn.say(event("a", response="never"))
    site.decide("opted-in", *site.poll())
    site.poll()
    site.poll()
    assert "oadrCreatedEvent" not in vtn.kinds()


def test_case_16_a_site_that_does_not_act_opts_out_of_everything(vtn: Vtn2, site: Site) -> None:
    site.act = False
    site.poll()
    site.sample()
    price = DrSignal("ELECTRICITY_PRICE", "price", (("PT1H", 1),))
    vtn.say(event("a"), DrEvent("price", START, signals=(price,)), event("t", test="true"))
    site.decide("opted-out", *site.poll())
    site.poll()
    assert {name: answer[0] for name, answer in vtn.answers.items()} == {
        "a": "optOut",
        "price": "optOut",
        "t": "optOut",
    }


def test_case_16_a_person_who_opts_out_later_is_told_on(vtn: Vtn2, site: Site) -> None:
    vtn.say(event("a"))
    signals = site.poll()
    site.decide("opted-in", *signals)
    assert vtn.answers["a"][0] == "optIn"
    site.decide("opted-out", *signals)
    assert vtn.answers["a"][0] == "optOut"


def test_what_only_informs_is_taken_part_in_while_the_site_acts(vtn: Vtn2, site: Site) -> None:
    site.poll()
    site.sample()
    price = DrSignal("ELECTRICITY_PRICE", "price", (("PT1H", 1),))
    vtn.say(DrEvent("price", START, signals=(price,)), event("off", status="cancelled"))
    site.poll()
    assert {name: answer[0] for name, answer in vtn.answers.items()} == {
        "price": "optIn",
        "off": "optIn",
    }


def test_case_17_a_broken_event_is_answered_alone(vtn: Vtn2, site: Site) -> None:
    broken = event("b").xml().replace("PT1H", "soon")
    vtn.say(
        event("a"),
        broken,
        event("c", targets={"venID": ["VEN-9"]}),
        event("d", 9),
    )
    site.decide("opted-in", *site.poll())
    assert vtn.answers == {
        "a": ("optIn", 0, "200"),
        "b": ("optOut", 0, "454"),
        "c": ("optOut", 0, "462"),
        "d": ("optOut", 0, "460"),
    }


def test_a_server_that_refuses_an_answer_goes_on_being_polled(vtn: Vtn2, site: Site) -> None:
    vtn.say(event("a"))
    signals = site.poll()
    vtn.reply("oadrCreatedEvent", message("oadrResponse", response(452, "no such event")))
    with pytest.raises(GridawareError, match="no such event"):
        site.decide("opted-in", *signals)
    vtn.say(event("a"), event("b"))
    assert asked(site.poll()) == {"b": 0.25}


def test_what_a_server_calls_its_events_becomes_no_markup_of_ours(vtn: Vtn2, site: Site) -> None:
    name = "</ei:eventID><x a='&'>\u00e9"
    vtn.say(event(name))
    site.decide("opted-in", *site.poll())
    assert vtn.answers == {name: ("optIn", 0, "200")}


# Reports ----------------------------------------------------------------------------------------


def usage_request(*r_ids: str, **rest: Any) -> str:
    return report_request("R-1", "gridaware-usage", r_ids, **rest)


def reported(vtn: Vtn2) -> list[tuple[str, float | str | None, str]]:
    found = []
    content = vtn.last("oadrUpdateReport")
    for interval in (node for node in content.walk() if node.name == "interval"):
        start = interval.said("dtstart", "date-time") or ""
        for payload in interval.all("oadrReportPayload"):
            value = payload.said("payloadFloat", "value")
            shown: float | str | None = None if value is None else float(value)
            if value is None:
                status = payload.get("oadrPayloadResourceStatus")
                assert status is not None
                shown = "/".join(f"{child.text}" for child in status.children)
            found.append((payload.said("rID") or "", shown, start[11:19]))
    return found


def test_telemetry_is_offered_once_and_sent_as_asked(vtn: Vtn2, site: Site) -> None:
    vtn.report_requests = [usage_request("power", "energy", granularity="PT1M", back="PT2M")]
    site.poll()
    site.sample()
    offered = vtn.last("oadrRegisterReport")
    names = [each.said("reportName") for each in offered.all("oadrReport")]
    assert names == ["METADATA_TELEMETRY_USAGE", "METADATA_TELEMETRY_STATUS"]
    pending = vtn.last("oadrCreatedReport").get("oadrPendingReports")
    assert pending is not None
    assert pending.said("reportRequestID") == "R-1"
    for second in range(125):
        site.sample(600_000.0 if second < 61 else 900_000.0)
    assert vtn.kinds().count("oadrRegisterReport") == 1
    rows = reported(vtn)
    assert [row[0] for row in rows] == ["power", "energy", "power", "energy"]
    first_power, first_energy, second_power, second_energy = (row[1] for row in rows)
    assert first_power == pytest.approx(600, abs=6)
    assert first_energy == pytest.approx(10, abs=0.1)
    assert second_power == pytest.approx(900, abs=6)
    assert second_energy == pytest.approx(15, abs=0.1)


def test_what_was_not_measured_is_left_out_and_never_zero(vtn: Vtn2, site: Site) -> None:
    vtn.report_requests = [usage_request("power", "energy", granularity="PT1M", back="PT1M")]
    site.poll()
    for second in range(64):
        site.sample(600_000.0 if second < 45 else None)
    assert [(row[0], row[1]) for row in reported(vtn)] == [("power", pytest.approx(600))]
    for _ in range(61):
        site.sample(None)
    assert vtn.kinds().count("oadrUpdateReport") == 1


def test_the_status_says_whether_the_site_takes_part(vtn: Vtn2, site: Site) -> None:
    vtn.report_requests = [
        report_request("S-1", "gridaware-status", ["status"], granularity="PT0S", back="PT0S")
    ]
    site.act = False
    site.poll()
    site.sample()
    site.sample()
    assert [(row[0], row[1]) for row in reported(vtn)] == [("status", "true/true")]
    site.sample()
    assert vtn.kinds().count("oadrUpdateReport") == 1, "it was asked for once"


def test_a_report_that_we_do_not_have_is_told_and_the_others_stand(vtn: Vtn2, site: Site) -> None:
    vtn.report_requests = [
        report_request("X-1", "somebody-elses", ["volts"]),
        usage_request("frequency"),
        usage_request("power", granularity="PT1S", back="PT1S"),
    ]
    site.poll()
    for _ in range(4):
        site.sample()
    assert site.refused == ["openadr2-report", "openadr2-report"]
    assert {row[0] for row in reported(vtn)} == {"power"}


def test_a_report_ends_with_its_interval_and_can_be_cancelled(vtn: Vtn2, site: Site) -> None:
    vtn.report_requests = [
        usage_request("power", granularity="PT1S", back="PT1S", start=NOW, duration="PT20S")
    ]
    site.poll()  # ten seconds
    for _ in range(20):
        site.sample()
    count = vtn.kinds().count("oadrUpdateReport")
    assert 5 <= count <= 10
    vtn.push(created_report([usage_request("power", granularity="PT1S", back="PT1S")], "VEN-1"))
    site.poll()
    for _ in range(3):
        site.sample()
    assert vtn.kinds().count("oadrUpdateReport") > count
    cancel = "<oadr:oadrCancelReport><ei:reportRequestID>R-1</ei:reportRequestID>"
    vtn.reply(
        "oadrUpdateReport",
        message("oadrUpdatedReport", f"{response()}{cancel}</oadr:oadrCancelReport>"),
    )
    site.sample()
    count = vtn.kinds().count("oadrUpdateReport")
    for _ in range(5):
        site.sample()
    assert vtn.kinds().count("oadrUpdateReport") == count


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (500, "openadr2-http"),
        (b"<html/>", "openadr2-envelope"),
        (message("oadrUpdatedReport", response(461, "not supported")), "openadr2-refused"),
    ],
)
def test_a_report_that_is_not_taken_is_tried_again_later_unless_it_is_not_wanted(
    vtn: Vtn2, site: Site, spoil: bytes | int, code: str
) -> None:
    vtn.report_requests = [usage_request("power", granularity="PT1S", back="PT1S")]
    site.poll()
    site.sample()
    site.sample()
    vtn.reply("oadrUpdateReport", spoil)
    with pytest.raises(GridawareError) as failed:
        site.sample()
    assert failed.value.code == code
    for _ in range(8):
        site.sample()
    assert vtn.kinds().count("oadrUpdateReport") == 1, "it was sent again at once"
    for _ in range(4):
        site.sample()
    starts = [
        node.said("dtstart", "date-time")
        for _, each in vtn.asked
        if each.kind == "oadrUpdateReport"
        for node in each.content.walk()
        if node.name == "interval"
    ]
    again = [start for start in starts if starts.count(start) > 1]
    assert bool(again) is (code != "openadr2-refused")
    assert len(set(starts)) >= 11


def test_an_offer_that_is_refused_is_made_again_minutes_later(vtn: Vtn2, site: Site) -> None:
    site.poll()
    vtn.reply("oadrRegisterReport", message("oadrRegisteredReport", response(461, "no")))
    with pytest.raises(GridawareError, match="no"):
        site.sample()
    for _ in range(100):
        site.sample()
    assert vtn.kinds().count("oadrRegisterReport") == 1
    site.sample(seconds=300)
    assert vtn.kinds().count("oadrRegisterReport") == 2


def test_case_9_a_slow_report_delays_no_poll(vtn: Vtn2, site: Site) -> None:
    vtn.report_requests = [usage_request("power", granularity="PT1S", back="PT1S")]
    site.poll()
    site.sample()
    site.sample()
    answered = vtn.held["oadrUpdateReport"] = threading.Event()
    slow = threading.Thread(target=site.sample)
    slow.start()
    vtn.say(event("a"))
    assert asked(site.poll()) == {"a": 0.25}
    assert slow.is_alive(), "the report was not slow"
    answered.set()
    slow.join()


def test_without_reports_none_are_offered(vtn: Vtn2) -> None:
    site = Site(vtn, reports=False)
    site.poll()
    site.sample()
    assert "oadrRegisterReport" not in vtn.kinds()


# Settings ---------------------------------------------------------------------------------------


def opened(**settings: object) -> None:
    given = {"vtn_url": "https://vtn.example", **settings}
    spec = FeedSpec("grid", "openadr2b", "p", settings_json=json.dumps(given))
    open_feed(spec, FeedContext("grid", ManualClock(NOW), NOW, lambda error, raw: None))


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"vtn_url": "http://vtn.example"}, "openadr2-url"),
        ({"vtn_url": "ftp://vtn.example"}, "openadr2-url"),
        ({"ca_file": "/nowhere/ca.pem"}, "openadr2-ca-file"),
        ({"tls_certificate_file": "/nowhere"}, "feed-settings-invalid"),
        (
            {"tls_certificate_file": "/nowhere", "tls_key_file": "/nowhere"},
            "client-certificate",
        ),
        ({"signing_key_file": "/nowhere"}, "feed-settings-invalid"),
        (
            {"signing_certificate_file": "/nowhere", "signing_key_file": "/nowhere"},
            "openadr2-signing-key",
        ),
        ({"verify_signatures": True}, "openadr2-fingerprint"),
        ({"vtn_fingerprint": "AB:CD"}, "openadr2-fingerprint"),
        ({"vtn_fingerprint": ""}, "openadr2-fingerprint"),
    ],
)
def test_cases_12_and_13_what_is_missing_is_told_at_the_start(
    settings: dict[str, object], code: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        opened(**settings)
    assert refused.value.code == code


def test_http_over_a_network_has_to_be_wanted() -> None:
    opened(vtn_url="http://vtn.example", allow_insecure_http=True)


def test_without_the_library_the_kind_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "openleadr", None)
    with pytest.raises(ConfigError, match=r"gridaware\[openadr2\]") as refused:
        opened()
    assert refused.value.code == "extra-missing"
