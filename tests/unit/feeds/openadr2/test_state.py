"""The events of one server, list by list: numbers, cancellations, restarts."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from gridaware.domain.advisory import Advisory
from gridaware.domain.errors import GridawareError
from gridaware.domain.signal import EventKind, Signal
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.openadr2.reading_settings import ReadingSettings, rules_of
from gridaware.feeds.openadr2.state import EventBook, Listed
from gridaware.feeds.openadr2.xmltree import read_xml
from gridaware.sim.grid.vtn2 import DrEvent, DrSignal, distributed
from gridaware.sim.grid.vtn2.messages import POWER_KW

NOW = datetime(2026, 11, 30, 14, tzinfo=UTC)
START = NOW + timedelta(hours=1)
US, OLD, NEW = "VEN-1", "registration-1", "registration-2"


class Book:
    """An event book with its surroundings, told lists as a poll tells them."""

    def __init__(self, memory: FeedMemory | None = None, **settings: object) -> None:
        self.memory = memory or FeedMemory()
        self.refused: list[str] = []
        self.advised: list[Advisory] = []
        self.now = NOW
        self.book = EventBook(
            "utility",
            rules_of(ReadingSettings.model_validate(settings)),
            self.memory,
            "https://vtn.example",
            self.refuse,
            self.advised.append,
        )
        self.answers: list[Listed] = []

    def refuse(self, error: GridawareError, raw: str) -> None:
        self.refused.append(error.code)

    def hear(self, *events: DrEvent | str, under: str = OLD) -> dict[str, Signal]:
        """A whole list, as the answer to a request for it."""
        root = read_xml(distributed(events), keep="oadrEvent")
        nodes = [node for node in root.walk() if node.name == "oadrEvent"]
        self.answers = self.book.read(nodes, self.now, under, US)
        return self.signals(self.book.missing(under))

    def signals(self, gone: Iterable[str] = ()) -> dict[str, Signal]:
        found = self.book.conclude(gone, self.now, 0.0)
        assert len({signal.source_id for signal in found}) == len(found)
        return {signal.source_id.split(".")[0]: signal for signal in found}


@pytest.fixture
def book() -> Book:
    return Book()


def level(signal: Signal) -> float | None:
    return None if signal.request is None else signal.request.target.value


def event(name: str, value: float = 2, **rest: object) -> DrEvent:
    signals = (DrSignal(intervals=(("PT1H", value),)),)
    return DrEvent(name, START, signals=signals, **rest)  # type: ignore[arg-type]


def test_case_1_what_is_missing_from_a_list_is_cancelled(book: Book) -> None:
    assert set(book.hear(event("a"), event("b"))) == {"a", "b"}
    heard = book.hear(event("b"))
    assert (heard["a"].request, heard["a"].revision) == (None, 1)
    assert heard["b"].request is not None


def test_case_2_an_empty_list_cancels_all_the_active_one_included(book: Book) -> None:
    book.hear(event("a"), event("b"))
    book.now = START + timedelta(minutes=10)
    heard = book.hear()
    assert {name: signal.request for name, signal in heard.items()} == {"a": None, "b": None}


def test_a_list_without_news_changes_nothing(book: Book) -> None:
    first = book.hear(event("a"))
    assert book.hear(event("a")) == first
    assert book.signals() == first


def test_case_3_duration_zero_lasts_until_it_is_cancelled(book: Book) -> None:
    signals = (DrSignal(intervals=(("PT0S", 2),)),)
    until = DrEvent("a", START, "PT0S", signals=signals)
    (signal,) = book.hear(until).values()
    assert signal.request is not None
    assert signal.request.end is None
    book.now = NOW + timedelta(days=300)
    assert level(book.hear(until)["a"]) == 0.25
    assert level(book.hear()["a"]) is None


def test_case_5_an_event_for_another_ven_is_refused_and_ours_beside_it_acts(book: Book) -> None:
    heard = book.hear(
        event("theirs", targets={"venID": ["VEN-2"]}), event("ours", targets={"venID": [US]})
    )
    assert set(heard) == {"ours"}
    assert book.refused == ["event-for-others"]
    assert {each.event_id: each.code for each in book.answers} == {"theirs": 462, "ours": 200}


def test_case_6_a_cancelled_event_that_stays_listed_hides_no_new_one(book: Book) -> None:
    book.hear(event("a"))
    cancelled = event("a", modification=1, status="cancelled")
    first = book.hear(cancelled)
    assert (first["a"].request, first["a"].revision) == (None, 1)
    for _ in range(3):
        again = book.hear(cancelled)
        assert again["a"] == first["a"]
    heard = book.hear(cancelled, event("b"))
    assert level(heard["b"]) == 0.25
    assert heard["a"].request is None
    assert book.refused == []


def test_case_7_a_cancel_carries_the_status_as_it_came(book: Book) -> None:
    book.hear(event("a"))
    (signal,) = book.hear(event("a", modification=1, status="cancelled")).values()
    assert signal.request is None
    assert "<ei:eventStatus>cancelled</ei:eventStatus>" in signal.raw
    assert signal.received_at == NOW


def test_a_cancel_needs_no_higher_number(book: Book) -> None:
    book.hear(event("a"))
    assert book.hear(event("a", status="cancelled"))["a"].request is None


def test_an_event_that_was_cancelled_before_it_was_heard_asks_for_nothing(book: Book) -> None:
    assert book.hear(event("a", status="cancelled")) == {}
    assert [each.wants_answer for each in book.answers] == [True]


def test_an_event_completed_early_is_taken_back(book: Book) -> None:
    book.hear(event("a"))
    book.now = START + timedelta(minutes=10)
    assert book.hear(event("a", modification=0, status="completed"))["a"].request is None


def test_a_higher_number_is_a_revision(book: Book) -> None:
    assert level(book.hear(event("a", 2))["a"]) == 0.25
    heard = book.hear(event("a", 3, modification=4))
    assert (level(heard["a"]), heard["a"].revision) == (0.5, 1)
    heard = book.hear(event("a", 3, modification=5))
    assert (level(heard["a"]), heard["a"].revision) == (0.5, 1), "nothing of it changed"


def test_a_stale_number_is_refused_and_what_stood_stands(book: Book) -> None:
    book.hear(event("a", 3, modification=5))
    heard = book.hear(event("a", 1, modification=4))
    assert (level(heard["a"]), heard["a"].revision) == (0.5, 0)
    assert book.refused == ["openadr2-stale"]
    assert [(each.code, each.modification) for each in book.answers] == [(450, 4)]


def test_the_same_number_with_another_content_is_refused(book: Book) -> None:
    book.hear(event("a", 3))
    assert level(book.hear(event("a", 1))["a"]) == 0.5
    assert book.refused == ["openadr2-same-number"]


def test_what_was_cancelled_does_not_come_back_under_its_number(book: Book) -> None:
    book.hear(event("a"))
    book.hear(event("a", modification=1, status="cancelled"))
    heard = book.hear(event("a", modification=1, status="active"))
    assert heard["a"].request is None
    assert book.refused == ["openadr2-same-number"]


def test_a_changed_status_alone_is_no_change(book: Book) -> None:
    first = book.hear(event("a", status="far"))
    for status in ("near", "active"):
        heard = book.hear(event("a", status=status))
        assert (heard["a"].revision, heard["a"].request) == (0, first["a"].request)
    assert book.refused == []


def test_case_17_a_broken_event_costs_the_others_nothing(book: Book) -> None:
    broken = event("b").xml().replace("PT1H", "soon")
    heard = book.hear(event("a"), broken, event("c"))
    assert set(heard) == {"a", "c"}
    assert {each.event_id: each.code for each in book.answers} == {"a": 200, "b": 454, "c": 200}


def test_what_cannot_be_read_any_more_holds_as_it_was(book: Book) -> None:
    book.hear(event("a"))
    broken = event("a", modification=1).xml().replace("PT1H", "soon")
    assert level(book.hear(broken)["a"]) == 0.25
    odd = DrEvent("a", START, signals=(DrSignal(intervals=(("PT1H", 9),)),), modification=2)
    book.hear(odd)
    assert book.signals(book.book.missing(OLD)) == {}
    assert book.refused == ["duration-malformed", "payload-level"]
    assert book.hear()["a"].request is None


def test_a_list_with_something_nameless_cancels_nothing(book: Book) -> None:
    book.hear(event("a"), event("b"))
    nameless = re.sub("<ei:eventID>.*?</ei:eventID>", "", event("b").xml())
    heard = book.hear(nameless)
    assert [level(heard[name]) for name in ("a", "b")] == [0.25, 0.25]


def test_case_8_what_a_restarted_server_lost_is_held_until_its_end(book: Book) -> None:
    book.hear(event("a"), under=OLD)
    heard = book.hear(event("b"), under=NEW)
    assert (level(heard["a"]), level(heard["b"])) == (0.25, 0.25)
    heard = book.hear(under=NEW)
    assert (level(heard["a"]), level(heard["b"])) == (0.25, None)
    book.now = START + timedelta(hours=2)
    assert "a" not in book.signals()


def test_under_a_new_registration_numbers_begin_anew(book: Book) -> None:
    book.hear(event("a", 1, modification=7), under=OLD)
    heard = book.hear(event("a", 3, modification=0), under=NEW)
    assert (level(heard["a"]), heard["a"].revision) == (0.5, 1)
    assert book.refused == []


def test_a_restart_of_ours_says_the_same_and_still_knows_the_numbers(book: Book) -> None:
    first = book.hear(event("a", 3, modification=5), event("b"))
    again = Book(book.memory)
    assert again.hear(event("a", 1, modification=4), event("b"))["b"] == first["b"]
    assert again.refused == ["openadr2-stale"]
    assert again.signals(["a"])["a"].revision == 1


def test_after_a_restart_of_ours_a_missing_event_is_cancelled(book: Book) -> None:
    book.hear(event("a"), event("b"))
    heard = Book(book.memory).hear(event("b"))
    assert (heard["a"].request, heard["a"].revision) == (None, 1)


def test_a_random_start_is_drawn_once_also_over_restarts(book: Book) -> None:
    spread = event("a", start_after="PT30M")
    first = book.hear(spread)["a"].request
    assert first is not None
    assert START <= first.start <= START + timedelta(minutes=30)
    assert first.end == first.start + timedelta(hours=1)
    assert Book(book.memory).hear(spread)["a"].request == first
    drawn = {Book().hear(spread)["a"].request for _ in range(10)}
    assert len(drawn) > 1


def test_a_test_event_informs_unless_the_settings_let_it_act(book: Book) -> None:
    assert book.hear(event("a", test="true")) == {}
    assert [advisory.quantity for advisory in book.advised] == ["openadr_simple_level"]
    (signal,) = Book(test_events="act").hear(event("a", test="true")).values()
    assert signal.request is not None
    assert signal.request.kind is EventKind.TEST


def test_a_price_informs_per_megawatt_hour_once_a_revision(book: Book) -> None:
    kwh = ("oadr:currencyPerKWh", "currencyPerKWh", "USD", "none")
    price = DrSignal("ELECTRICITY_PRICE", "price", (("PT1H", 0.12),), kwh)
    for _ in range(3):
        assert book.hear(DrEvent("a", START, signals=(price,))) == {}
    (advisory,) = book.advised
    assert (advisory.quantity, advisory.value, advisory.unit) == ("price_per_mwh", 120, "USD/MWh")


def test_priority_0_is_none_and_1_the_highest(book: Book) -> None:
    heard = book.hear(event("a", priority=1), event("b", priority=0), event("c"))
    priorities = {n: s.request.priority for n, s in heard.items() if s.request is not None}
    assert priorities == {"a": 1, "b": None, "c": None}


def test_every_interval_of_every_signal_is_a_signal_of_its_own(book: Book) -> None:
    steps = DrSignal(intervals=(("PT30M", 1), ("PT30M", 3)))
    limit = DrSignal("LOAD_DISPATCH", "setpoint", (("PT1H", 500),), POWER_KW)
    book.hear(DrEvent("a", START, signals=(steps, limit)))
    found = book.book.conclude((), NOW, 0.0)
    assert sorted(signal.source_id for signal in found) == [
        "a.sig-LOAD_DISPATCH.0",
        "a.sig-SIMPLE.0",
        "a.sig-SIMPLE.1",
    ]
    assert set(book.book.sources.values()) == {"a"}
    book.now = START + timedelta(minutes=45)
    assert len(book.book.conclude((), book.now, 0.0)) == 2


def test_case_18_never_is_remembered_with_the_event(book: Book) -> None:
    book.hear(event("a", response="never"), event("b", response="always"))
    assert {each.event_id: each.wants_answer for each in book.answers} == {"a": False, "b": True}


def test_a_long_id_is_shortened_and_stays_one(book: Book) -> None:
    name = "E" * 200
    book.hear(event(name))
    (signal,) = book.book.conclude((), NOW, 0.0)
    assert len(signal.source_id) <= 64
    assert book.book.sources == {signal.source_id: name}
    (signal,) = book.book.conclude(book.book.missing(OLD), NOW, 0.0)
    assert signal.request is not None
