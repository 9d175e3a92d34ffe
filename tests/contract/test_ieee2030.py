"""The IEEE 2030.5 client against a server that is wrong in every way seen in the field."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvicorn

from gridaware.clock import ManualClock, SystemClock
from gridaware.control.ports import FeedReport, FeedTelemetry, Receipt
from gridaware.domain.advisory import Advisory
from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput, Refused, Unavailable
from gridaware.domain.event import Clocks, EventState, GridEvent
from gridaware.domain.fixes import fix_for
from gridaware.domain.moment import Moment
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import EventRequest, Signal
from gridaware.feeds import check_settings
from gridaware.feeds.http_listener import build_app
from gridaware.feeds.ieee2030.identity import lfdi_of_file
from gridaware.feeds.ieee2030.kind import Ieee2030
from gridaware.feeds.kind import FeedContext, Push
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.runner import FeedRunner
from gridaware.planning.targets import binding_events
from gridaware.sim.grid.der_quirks import Quirk
from gridaware.sim.grid.der_server import DerServer
from gridaware.wiring.identity import issue, make_ca

NOW = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)
T0 = int(NOW.timestamp())
DATA = Path(__file__).parents[1] / "data" / "feeds" / "ieee2030"


class Site:
    """One feed, and what it said."""

    def __init__(
        self, server: DerServer, clock: ManualClock, folder: Path, **settings: object
    ) -> None:
        self.server, self.clock, self.folder = server, clock, folder
        self.given = {
            "server_url": server.url,
            "certificate_file": str(folder / "device.pem"),
            "key_file": str(folder / "device.key"),
        } | settings
        self.refused: list[str] = []
        self.advice: list[Advisory] = []
        self.feed = self.open()

    def open(self) -> Ieee2030:
        def refuse(error: GridawareError, raw: str) -> None:
            assert fix_for(error.code), error.code
            assert error.message.isascii()
            self.refused.append(error.code)

        memory = FeedMemory(self.folder / "memory.json")
        context = FeedContext("utility", self.clock, NOW, refuse, memory, self.advice.append)
        settings = Ieee2030.settings_model.model_validate(self.given)
        return Ieee2030(context, settings)

    def restart(self) -> None:
        self.feed = self.open()

    def poll(self, after_seconds: float = 0.0) -> dict[str, Signal]:
        """By the beginning of the source id: mRIDs of these tests have two characters."""
        self.clock.advance(after_seconds)
        signals = self.feed.poll()
        for thread in threading.enumerate():  # answers wait for nobody, and nobody for them
            if thread.name == "feed-utility-respond":
                thread.join(10)
        return {signal.source_id[:2]: signal for signal in signals}

    def fails(self, after_seconds: float = 0.0) -> str:
        with pytest.raises(Unavailable) as caught:
            self.poll(after_seconds)
        assert fix_for(caught.value.code)
        return caught.value.code

    def tell(self, signal: Signal, status: str) -> None:
        assert signal.request is not None
        event = GridEvent(
            f"utility.{signal.source_id}", "utility", "emergency", signal.source_id,
            signal.revision, signal.request, EventState.HOLDING, "TargetReached", NOW, NOW,
            Clocks(0.0),
        )  # fmt: skip
        self.feed.tell(FeedReport(event, status, self.clock.wall()))

    def answers(self) -> list[tuple[str, int]]:
        return [(each["subject"], int(each["status"])) for each in self.server.responses]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def folder(tmp_path: Path, clock: ManualClock) -> Path:
    make_ca(tmp_path, clock)
    issue(tmp_path, "device", clock)
    return tmp_path


@pytest.fixture
def server(clock: ManualClock, folder: Path) -> Iterator[DerServer]:
    with DerServer(clock=clock) as server:
        server.add_device("0" * 40)
        server.add_device(lfdi_of_file(str(folder / "device.pem")))
        server.add_program("F1", primacy=5)
        yield server


Sites = Callable[..., Site]


@pytest.fixture
def site(server: DerServer, clock: ManualClock, folder: Path) -> Sites:
    return lambda **settings: Site(server, clock, folder, **settings)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def request(signal: Signal) -> EventRequest:
    assert signal.request is not None
    return signal.request


def add(server: DerServer, mrid: str, start: int = 600, watts: float = 250_000, **more: object):
    program = str(more.pop("program", "F1"))
    server.add_control(program, mrid, start=T0 + start, watts=watts, **more)


# What is asked -----------------------------------------------------------------------------------


def test_the_whole_tree_is_walked_to_the_limit(server: DerServer, site: Sites) -> None:
    add(server, "A1", watts=1_234_000, seconds=900)
    ours = site()
    signal = ours.poll()["A1"]
    asked = request(signal)
    assert (asked.start, asked.end) == (at(600), at(1500))
    assert asked.target.value == 1_234_000
    assert asked.priority == 5
    assert signal.raw.startswith("<DERControl ")
    paths = [path.partition("?")[0] for _, path in server.asked]
    assert paths[:6] == ["/dcap", "/tm", "/edev", "/edev/2/fsa", "/derp", "/derp/F1/derc"]
    assert ours.refused == []
    # Our EndDevice is known from now on, and asked for itself.
    ours.poll()
    assert "/edev/2" in [path for _, path in server.asked]


def test_a_change_is_the_next_revision_and_the_same_is_none(server: DerServer, site: Sites) -> None:
    add(server, "A1")
    ours = site()
    first = ours.poll()["A1"]
    assert ours.poll(30)["A1"].revision == first.revision == 0
    server.change_control("A1", seconds=1800)
    second = ours.poll(30)["A1"]
    assert (second.source_id, second.revision) == (first.source_id, 1)
    assert request(second).end == at(600 + 1800)


@pytest.mark.parametrize("quirk", [Quirk.UNVERSIONED, Quirk.SMALL_PAGES])
def test_harmless_deviations_are_read_through(server: DerServer, site: Sites, quirk: Quirk) -> None:
    for number in range(5):
        add(server, f"A{number}", start=600 + 7200 * number)
    server.quirks.add(quirk)
    assert sorted(site().poll()) == ["A0", "A1", "A2", "A3", "A4"]


def test_what_only_informs_is_an_advisory(server: DerServer, site: Sites) -> None:
    server.add_control("F1", "A1", start=T0, body=server.power("opModExpLimW", 5000.0))
    ours = site()
    assert ours.poll() == {}
    (advisory,) = ours.advice
    assert (advisory.quantity, advisory.value, advisory.unit) == ("op_mod_exp_lim_w", 5000.0, "W")
    assert (advisory.start, advisory.end) == (NOW, at(3600))


def test_a_disconnection_is_zero_watts_where_it_is_agreed(server: DerServer, site: Sites) -> None:
    server.add_control("F1", "A1", start=T0, body="<opModEnergize>false</opModEnergize>")
    assert site().poll() == {}
    asked = request(site(disconnects=True).poll()["A1"])
    assert (asked.target.value, asked.priority) == (0.0, 0)


# Time --------------------------------------------------------------------------------------------


def test_controls_are_in_the_servers_time(server: DerServer, site: Sites) -> None:
    server.quirks.add(Quirk.CLOCK_OFF)
    add(server, "A1", start=3600 + 600)  # ten minutes from now, by a clock an hour ahead
    ours = site()
    asked = request(ours.poll()["A1"])
    assert abs((asked.start - at(600)).total_seconds()) <= 1.0
    assert ours.refused == ["ieee2030-clock-offset"]
    # A start that moved with each reading would be another one each time; and told once.
    for part in (0.3, 0.4, 29.6):
        assert ours.poll(part)["A1"].revision == 0
    ours.restart()
    assert ours.poll(0.2)["A1"].request == asked
    server.quirks.clear()
    assert ours.poll(30)["A1"].revision == 1  # it is right now: the control is in an hour
    assert request(ours.poll()["A1"]).start == at(3600 + 600)


def test_a_clock_that_began_anew_is_not_believed(server: DerServer, site: Sites) -> None:
    add(server, "A1")
    ours = site()
    ours.poll()
    server.quirks.add(Quirk.CLOCK_RESET)
    assert ours.fails(30) == "ieee2030-clock-absurd"
    server.quirks.clear()
    assert ours.poll(30)["A1"].revision == 0


def test_without_a_time_the_clocks_are_taken_to_agree(server: DerServer, site: Sites) -> None:
    server.quirks.add(Quirk.NO_TIME)
    add(server, "A1")
    ours = site()
    assert request(ours.poll()["A1"]).start == at(600)
    ours.poll(30)
    assert ours.refused == ["ieee2030-no-time"]


def test_random_times_are_drawn_once_in_the_direction_of_their_sign(
    server: DerServer, site: Sites
) -> None:
    add(server, "A1", seconds=600, randomize_start=-60, randomize_seconds=120)
    ours = site()
    asked = request(ours.poll()["A1"])
    assert asked.end is not None
    assert at(540) <= asked.start <= at(600)
    assert 600 <= (asked.end - asked.start).total_seconds() <= 720
    ours.restart()
    assert ours.poll(30)["A1"].request == asked


# Cancelled, superseded, vanished -----------------------------------------------------------------


def test_a_cancelled_control_is_taken_back_at_once(server: DerServer, site: Sites) -> None:
    add(server, "A1", start=-60)
    ours = site()
    ours.poll()
    server.set_status("A1", 2)
    signal = ours.poll(30)["A1"]
    assert (signal.request, signal.revision) == (None, 1)
    # Servers list it until its end, and that changes nothing (olp 169).
    add(server, "A2", start=7200)
    again = ours.poll(30)
    assert again["A1"].revision == 1
    assert request(again["A2"])


def test_a_random_cancellation_ends_within_its_spread_of_when_it_was_said(
    server: DerServer, site: Sites
) -> None:
    add(server, "A1", start=-60, randomize_seconds=200)
    ours = site()
    before = request(ours.poll()["A1"])
    server.set_status("A1", 3)
    asked = ours.poll(30)["A1"]
    if asked.request is not None:  # else it was drawn to end at once
        assert asked.request.start == before.start
        assert asked.request.end is not None
        assert NOW < asked.request.end <= at(200)
        ours.restart()
        assert ours.poll(0)["A1"].request == asked.request
    assert "A1" not in ours.poll(300) or ours.poll(0)["A1"].request is None


def test_the_newer_creation_supersedes_and_that_is_remembered(
    server: DerServer, site: Sites
) -> None:
    add(server, "A1", start=0, watts=100_000, created=T0 - 100)
    add(server, "A2", start=600, seconds=300, watts=400_000, created=T0 - 50)
    ours = site()
    got = ours.poll()
    assert (request(got["A1"]).end, request(got["A2"]).end) == (at(600), at(900))
    assert request(got["A2"]).target.value == 400_000
    ours.poll(700)
    server.remove_control("A2")  # it is deleted once it is over
    ours.restart()
    assert "A1" not in ours.poll(300)


def test_a_newer_one_that_is_cancelled_before_it_begins_gives_the_older_back(
    server: DerServer, site: Sites
) -> None:
    add(server, "A1", start=0, created=T0 - 100)
    add(server, "A2", start=600, created=T0 - 50)
    ours = site()
    assert request(ours.poll()["A1"]).end == at(600)
    server.set_status("A2", 2)
    got = ours.poll(30)
    assert request(got["A1"]).end == at(3600)
    assert got["A2"].request is None


def test_what_the_server_calls_superseded_is_taken_back(server: DerServer, site: Sites) -> None:
    add(server, "A1", start=0)
    ours = site()
    ours.poll()
    server.set_status("A1", 4)
    assert ours.poll(30)["A1"].request is None


def test_a_vanished_control_is_cancelled_after_two_whole_walks_a_minute_apart(
    server: DerServer, site: Sites
) -> None:
    add(server, "A1", start=0)
    add(server, "A2", start=7200)
    ours = site()
    ours.poll()
    server.remove_control("A1")
    assert request(ours.poll(30)["A1"])
    assert request(ours.poll(59)["A1"])
    gone = ours.poll(1)
    assert gone["A1"].request is None
    assert request(gone["A2"])


def test_a_control_that_comes_back_after_all_is_asked_under_another_name(
    server: DerServer, site: Sites
) -> None:
    # Control begins nothing again under a name that was taken back.
    add(server, "A1", start=0, created=T0)
    ours = site()
    first = ours.poll()["A1"]
    server.remove_control("A1")
    ours.poll(30)
    assert ours.poll(60)["A1"].request is None
    add(server, "A1", start=0, created=T0)
    ours.clock.advance(30)
    (second,) = [signal for signal in ours.feed.poll() if signal.request is not None]
    assert (second.source_id, second.revision) == (f"{first.source_id}.r1", 0)
    assert request(second) == request(first)
    ours.restart()
    assert second.source_id in {signal.source_id for signal in ours.feed.poll()}


def test_a_control_that_is_lengthened_after_its_end_is_asked_under_another_name(
    server: DerServer, site: Sites
) -> None:
    add(server, "A1", start=0, seconds=60)
    ours = site()
    first = ours.poll()["A1"]
    assert ours.poll(90) == {}
    server.change_control("A1", seconds=3600)
    assert ours.poll(30)["A1"].source_id == f"{first.source_id}.r1"


def test_a_server_that_forgot_us_cancels_nothing(server: DerServer, site: Sites) -> None:
    add(server, "A1", start=0)
    ours = site()
    ours.poll()
    server.forget_devices()
    server.remove_control("A1")
    for _ in range(5):
        assert ours.fails(60) == "ieee2030-not-listed"
    # Another device gets our old number: it is not us.
    for number in (1, 2):
        server.add_device(f"{number}" * 40)
    assert ours.fails(60) == "ieee2030-not-listed"
    server.forget_devices()
    for lfdi in ("1" * 40, ours.feed.lfdi):
        server.add_device(lfdi)
    for _ in range(3):  # it knows us anew, under our old number: what it no longer lists is held
        assert request(ours.poll(90)["A1"])


def test_programs_that_are_no_longer_assigned_cancel_nothing(
    server: DerServer, site: Sites
) -> None:
    add(server, "A1", start=0)
    ours = site()
    ours.poll()
    del server.programs["F1"]
    for _ in range(4):
        assert request(ours.poll(60)["A1"])
    assert ours.refused == ["ieee2030-no-programs"]
    ours.restart()
    assert ours.poll(60) == {}  # nothing is taken back either


BROKEN = {
    Quirk.TRUNCATED: "ieee2030-truncated",
    Quirk.REPEATED_PAGE: "ieee2030-truncated",
    Quirk.ERRORS: "ieee2030-refused",
    Quirk.HTML: "ieee2030-namespace",
    Quirk.OLD_VOCABULARY: "ieee2030-namespace",
    Quirk.LINKS_ELSEWHERE: "ieee2030-elsewhere",
}


@pytest.mark.parametrize(("quirk", "code"), BROKEN.items(), ids=list(BROKEN))
def test_from_a_walk_that_is_not_whole_nothing_is_concluded(
    server: DerServer, site: Sites, quirk: Quirk, code: str
) -> None:
    for number in range(3):
        add(server, f"A{number}", start=0, created=T0 - 100)
    ours = site()
    before = ours.poll()
    server.quirks.add(quirk)
    for _ in range(3):
        assert ours.fails(90) == code
    server.quirks.clear()
    after = ours.poll(90)
    assert {k: s.revision for k, s in after.items()} == {k: s.revision for k, s in before.items()}


@pytest.mark.slow
@pytest.mark.parametrize("quirk", [Quirk.SLOW, Quirk.DRIPPING])
def test_a_server_that_is_slow_or_drips_is_left_at_the_deadline(
    server: DerServer, site: Sites, quirk: Quirk
) -> None:
    add(server, "A1", start=0)
    ours = site()
    ours.poll()
    server.quirks.add(quirk)
    if quirk is Quirk.DRIPPING:
        assert ours.fails(90) == "answer-too-late"
    else:
        assert request(ours.poll(90)["A1"])  # each answer within five seconds


@pytest.mark.parametrize("quirk", [Quirk.NO_MULTIPLIER, Quirk.OTHER_VOCABULARY])
def test_a_control_that_can_no_longer_be_read_holds_as_it_was(
    server: DerServer, site: Sites, quirk: Quirk
) -> None:
    add(server, "A1", start=0)
    ours = site()
    ours.poll()
    server.quirks.add(quirk)
    for _ in range(3):
        assert ours.poll(90) == {}  # nothing new is said, and nothing is taken back
    assert len(ours.refused) == 1
    server.set_status("A1", 2)
    assert ours.poll(30)["A1"].request is None


def test_one_bad_control_hides_no_other(server: DerServer, site: Sites) -> None:
    add(server, "A1")
    add(server, "A2", start=7200, seconds=0)
    add(server, "A3", start=14400)
    ours = site()
    assert sorted(ours.poll()) == ["A1", "A3"]
    ours.poll(30)
    assert ours.refused == ["ieee2030-control"]


def test_one_bad_program_hides_no_other_and_holds_what_it_asked(
    server: DerServer, site: Sites
) -> None:
    server.add_program("F2", primacy=1)
    add(server, "A1")
    add(server, "A2", program="F2")
    ours = site()
    ours.poll()
    server.programs["F2"].primacy = 300
    for _ in range(3):
        got = ours.poll(60)
        assert request(got["A1"])
        assert request(got["A2"])
    assert ours.refused == ["ieee2030-control"]


def test_a_control_of_more_than_ten_years_has_no_end(server: DerServer, site: Sites) -> None:
    add(server, "A1", seconds=2**32 - 1)
    assert request(site().poll()["A1"]).end is None


# Programs and defaults ---------------------------------------------------------------------------


def test_between_programs_the_lower_primacy_is_the_lower_priority(
    server: DerServer, site: Sites
) -> None:
    server.add_program("F2", primacy=1)
    add(server, "A1", watts=100_000)
    add(server, "A2", watts=400_000, program="F2")
    got = site().poll()
    assert (request(got["A1"]).priority, request(got["A2"]).priority) == (5, 1)
    assert request(got["A1"]).end == at(4200)  # nothing of it is superseded


def test_the_default_holds_without_an_end_beneath_every_control(
    server: DerServer, site: Sites
) -> None:
    server.set_default("F1", 50_000)
    add(server, "A1", watts=500_000)
    ours = site()
    default = ours.poll()["de"]
    asked = request(default)
    assert (asked.start, asked.end, asked.target.value) == (NOW, None, 50_000)
    assert asked.priority == 256 + 5
    server.set_default("F1", 60_000)
    changed = ours.poll(30)["de"]
    assert (changed.source_id, changed.revision) == (default.source_id, 1)
    assert (request(changed).start, request(changed).target.value) == (NOW, 60_000)
    ours.restart()
    assert ours.poll(30)["de"].request == changed.request


def test_control_follows_the_event_while_it_lasts_and_the_default_around_it(
    server: DerServer, site: Sites
) -> None:
    server.set_default("F1", 50_000)
    add(server, "A1", start=600, seconds=900, watts=500_000)  # an envelope: more than the default
    events = [
        GridEvent(
            f"utility.{name}", "utility", "flexible", signal.source_id, 0, request(signal),
            EventState.SCHEDULED, "Accepted", NOW, NOW, Clocks(0.0),
            limit_watts=request(signal).target.value,
        )
        for name, signal in site().poll().items()
    ]  # fmt: skip
    bound = [
        binding_events(events, Moment(seconds, at(seconds)))[0].limit_watts
        for seconds in (0, 599, 600, 1499, 1500)
    ]
    assert bound == [50_000, 50_000, 500_000, 500_000, 50_000]


def test_a_default_that_vanished_is_held_and_comes_back_as_another(
    server: DerServer, site: Sites
) -> None:
    server.set_default("F1", 50_000)
    ours = site()
    first = ours.poll()["de"]
    server.set_default("F1", None)
    assert ours.poll(30)["de"].request == first.request
    ours.restart()
    assert ours.poll(1) == {}  # held, though nothing of it is known any more
    assert ours.poll(60)["de"].request is None
    server.set_default("F1", 70_000)
    second = next(s for s in ours.feed.poll() if s.request is not None)
    assert second.source_id != first.source_id
    assert request(second).start == at(91)


def test_a_neutral_default_asks_for_nothing(server: DerServer, site: Sites) -> None:
    server.set_default("F1", 900_000)
    ours = site(neutral_kw=900.0)
    assert ours.poll() == {}
    server.set_default("F1", 800_000)
    assert request(ours.poll(30)["de"]).target.value == 800_000
    server.set_default("F1", 950_000)
    assert ours.poll(30)["de"].request is None


# Rates and notifications -------------------------------------------------------------------------


CALLBACK = "https://site.invalid/api/v1/signals/utility"


def push(body: bytes, ours: Site, token: str | None = None) -> Push:
    clock = ours.clock
    if token is None:
        token = str(ours.feed.context.memory.get("callback"))
    query = {"token": token}
    return Push({}, body, clock.wall(), clock.monotonic_seconds(), query=query)


def test_the_servers_poll_rate_is_kept_until_it_notifies(server: DerServer, site: Sites) -> None:
    server.poll_rate = 900
    add(server, "A1", start=0)
    ours = site(slowest_poll_seconds=300.0, callback_url=CALLBACK)
    ours.poll()
    asked = len(server.asked)
    server.set_status("A1", 2)
    assert request(ours.poll(200)["A1"])
    assert len(server.asked) == asked
    notice = (DATA / "cancelled_notice.xml").read_bytes()
    hooked = ours.feed.hook(push(notice, ours))
    assert (hooked.wake, hooked.signals) == (True, ())  # it moves nothing by itself
    assert ours.poll()["A1"].request is None
    assert len(server.asked) > asked
    asked = len(server.asked)
    ours.poll(250)
    assert len(server.asked) > asked  # 300 s, with the cadence's jitter, are over


def test_envoy_378_a_notice_of_a_cancelled_subscription_tears_nothing_down(
    server: DerServer, site: Sites
) -> None:
    add(server, "A1", start=0)
    ours = site(callback_url=CALLBACK)
    ours.poll()
    ours.feed.hook(push((DATA / "cancelled_notice.xml").read_bytes(), ours))
    assert request(ours.poll()["A1"])


def test_what_is_no_notification_or_was_not_asked_for_is_refused(site: Sites) -> None:
    notice = (DATA / "cancelled_notice.xml").read_bytes()
    unasked = site()
    with pytest.raises(Refused, match="callback_url"):
        unasked.feed.hook(push(notice, unasked))
    ours = site(callback_url=CALLBACK)
    with pytest.raises(InvalidInput):
        ours.feed.hook(push((DATA / "default.xml").read_bytes(), ours))
    for token in ("", "guessed", "\u0661"):
        with pytest.raises(Refused, match="token"):
            ours.feed.hook(push(notice, ours, token))


def test_what_matters_is_subscribed_to_once_and_again_when_it_is_lost(
    server: DerServer, site: Sites
) -> None:
    ours = site(callback_url=CALLBACK)
    ours.poll()
    ours.poll(30)
    token = ours.feed.context.memory.get("callback")
    assert sorted(server.subscriptions) == [
        (resource, f"{CALLBACK}?token={token}")
        for resource in ("/derp", "/derp/F1/dderc", "/derp/F1/derc")
    ]
    del server.subscriptions[0]
    ours.restart()
    ours.poll(30)
    assert len(server.subscriptions) == 3
    assert ours.refused == []


def test_a_server_that_offers_no_subscriptions_is_polled_all_the_same(
    server: DerServer, site: Sites
) -> None:
    server.quirks.add(Quirk.NO_SUBSCRIPTIONS)
    add(server, "A1")
    ours = site(callback_url=CALLBACK)
    for _ in range(3):
        assert request(ours.poll(200)["A1"])
    assert ours.refused == ["ieee2030-unsubscribed"]


def test_a_notification_over_the_listener_brings_a_control_before_the_next_poll(
    server: DerServer, site: Sites
) -> None:
    heard: list[Signal] = []
    came = threading.Event()

    def emit(signal: Signal) -> None:
        heard.append(signal)
        came.set()

    runner = FeedRunner(SystemClock(), emit, lambda *_: None, lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1/signals/utility"
        given = site(callback_url=url, poll_seconds=3600.0).given
        app = build_app(runner, never, SystemClock())
        web = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=web.run, kwargs={"sockets": [listener]})
        thread.start()
        server.clock = SystemClock()
        runner.start()
        try:
            settings = json.dumps(given)
            runner.add(FeedSpec("utility", "ieee2030", "emergency", settings_json=settings), NOW)
            deadline = SystemClock().monotonic_seconds() + 20
            while len(server.subscriptions) < 3:
                assert SystemClock().monotonic_seconds() < deadline
                came.wait(0.01)
            server.add_control("F1", "A1", start=server.now + 60, watts=100_000)
            assert server.notify("/derp/F1/derc") == [201]
            assert came.wait(20)
        finally:
            runner.stop()
            web.should_exit = True
            thread.join()
    assert heard[0].source_id.startswith("A1.")


async def never(signal: Signal) -> Receipt:
    raise AssertionError("a notification carries no signal")


# Responses ---------------------------------------------------------------------------------------


def test_a_control_is_answered_from_received_to_completed_once_each(
    server: DerServer, site: Sites
) -> None:
    add(server, "A1", start=10)
    ours = site()
    signal = ours.poll()["A1"]
    assert ours.answers() == [("A1", 1)]
    assert server.responses[0]["endDeviceLFDI"] == ours.feed.lfdi
    assert server.responses[0]["createdDateTime"] == str(T0)
    for status in ("opted-in", "active", "active", "completed"):
        ours.tell(signal, status)
    ours.restart()
    ours.poll(30)
    ours.tell(signal, "completed")
    assert ours.answers() == [("A1", 1), ("A1", 2), ("A1", 3)]


def test_only_what_is_wanted_is_answered(server: DerServer, site: Sites) -> None:
    add(server, "A1", required="00")
    add(server, "A2", start=7200, required="02")
    add(server, "A3", start=14400, required="01")
    ours = site()
    for signal in ours.poll().values():
        ours.tell(signal, "active")
    assert sorted(ours.answers()) == [("A2", 2), ("A3", 1)]


def test_who_asks_for_the_customers_choice_alone_hears_of_an_opting_out(
    server: DerServer, site: Sites
) -> None:
    add(server, "A1", required="04")
    ours = site()
    signal = ours.poll()["A1"]
    for status in ("active", "opted-out"):
        ours.tell(signal, status)
    assert ours.answers() == [("A1", 8)]


@pytest.mark.parametrize(("status", "answer"), [(2, 6), (3, 6), (4, 7)])
def test_what_the_server_took_back_is_answered_as_that(
    server: DerServer, site: Sites, status: int, answer: int
) -> None:
    add(server, "A1", start=-10)
    ours = site()
    signal = ours.poll()["A1"]
    ours.tell(signal, "active")
    server.set_status("A1", status)
    ours.poll(30)
    for told in ("cancelled", "completed"):
        ours.tell(signal, told)
    assert ours.answers() == [("A1", 1), ("A1", 2), ("A1", answer)]


def test_opted_out_before_it_began_and_after(server: DerServer, site: Sites) -> None:
    add(server, "A1")
    add(server, "A2", start=7200)
    ours = site()
    got = ours.poll()
    ours.tell(got["A1"], "opted-out")
    ours.tell(got["A2"], "active")
    ours.tell(got["A2"], "failed")
    assert ours.answers()[2:] == [("A1", 4), ("A2", 2), ("A2", 8)]


def test_what_was_over_or_unreadable_when_it_came_is_answered(
    server: DerServer, site: Sites
) -> None:
    add(server, "A1", start=-7200)
    add(server, "A2", start=600, seconds=0)
    ours = site()
    ours.poll()
    ours.poll(30)
    assert sorted(ours.answers()) == [("A1", 254), ("A2", 253)]


def test_envoy_260_answers_outlive_the_control_and_a_restart(
    server: DerServer, site: Sites
) -> None:
    add(server, "A1", start=-10)
    server.quirks.add(Quirk.RESPONSES_FAIL)
    ours = site()
    signal = ours.poll()["A1"]
    ours.tell(signal, "active")
    server.set_status("A1", 2)
    ours.poll(30)
    assert ours.refused == ["ieee2030-response-late"]
    assert ours.answers() == []
    server.remove_control("A1")
    server.quirks.clear()
    ours.restart()
    ours.poll(30)
    assert ours.answers() == [("A1", 1), ("A1", 2), ("A1", 6)]


def test_an_answer_that_the_server_refuses_is_not_sent_again(
    server: DerServer, site: Sites
) -> None:
    add(server, "A1")
    server.quirks.add(Quirk.RESPONSES_REFUSED)
    ours = site()
    ours.poll()
    ours.poll(30)
    assert [path for method, path in server.asked if method == "POST"] == ["/rsp"]
    assert ours.refused == ["ieee2030-response-refused"]


# Telemetry ---------------------------------------------------------------------------------------


def test_the_sites_power_is_mirrored_and_what_is_missing_is_left_out(
    server: DerServer, site: Sites
) -> None:
    ours = site(telemetry_seconds=60.0)
    ours.poll()
    for second in range(241):
        watts = None if 60 <= second < 120 else 1000.0 + second
        sample = FeedTelemetry(
            at(second), 1000.0 + second, watts, "good", None, act=True, events=()
        )
        ours.feed.report(sample)
    (made, body), *readings = server.mirrored
    assert made == "/mup"
    assert f"<deviceLFDI>{ours.feed.lfdi}</deviceLFDI>" in body
    assert [path for path, _ in readings] == ["/mup/1"] * 3
    starts = [int(text.split("<start>")[1].split("<")[0]) for _, text in readings]
    assert starts == [T0, T0 + 120, T0 + 180]
    # A sample stands until the next one: 1000 to 1059 W in the first minute, a second each.
    values = [int(text.split("<value>")[1].split("<")[0]) for _, text in readings]
    assert values == [1030, 1150, 1210]
    assert all("<uom>38</uom>" in text and "<qualityFlags>0001<" in text for _, text in readings)


# Settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"server_url": "http://utility.example/dcap"}, "ieee2030-url"),
        ({"server_url": "ftp://127.0.0.1/dcap"}, "ieee2030-url"),
        ({"ca_file": "/nowhere/ca.pem"}, "ieee2030-ca-file"),
        ({"certificate_file": "/nowhere/device.pem"}, "ieee2030-certificate"),
        ({"key_file": "/nowhere/device.key"}, "client-certificate"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(
    site: Sites, changed: dict[str, object], code: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        site(**changed)
    assert caught.value.code == code
    assert fix_for(code)


def test_a_setting_that_is_misspelt_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ca_file'"):
        check_settings("ieee2030", '{"server_url": "https://x/dcap", "ca_fil": "x"}')
