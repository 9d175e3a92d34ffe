"""Whatever a server lists: no crash, no event hidden by another, nothing released by garbage."""

import copy
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError, Unavailable
from gridaware.feeds.kind import FeedContext, check_provenance
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.openadr3.listing import Programs
from gridaware.feeds.openadr3.reading_settings import rules_of
from gridaware.feeds.openadr3.settings import OpenAdr3Settings
from gridaware.feeds.openadr3.standing import Standing
from gridaware.feeds.revisions import Heard, event_name

NOW = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)
GOOD: dict[str, Any] = {
    "id": "good",
    "createdDateTime": "2026-11-30T13:00:00Z",
    "objectType": "EVENT",
    "programID": "p",
    "priority": 1,
    "targets": ["a"],
    "duration": "PT2H",
    "intervalPeriod": {
        "start": "2026-11-30T15:00:00Z",
        "duration": "PT1H",
        "randomizeStart": "PT5M",
    },
    "payloadDescriptors": [{"payloadType": "IMPORT_CAPACITY_SUBSCRIPTION", "units": "KW"}],
    "reportDescriptors": [{"payloadType": "USAGE"}],
    "intervals": [
        {
            "id": 0,
            "payloads": [
                {"type": "SIMPLE", "values": [2]},
                {"type": "IMPORT_CAPACITY_SUBSCRIPTION", "values": [500.0]},
            ],
        }
    ],
}


def standing(refuse: Callable[[GridawareError, str], None] | None = None) -> Standing:
    model = OpenAdr3Settings(vtn_url="https://vtn.example")
    context = FeedContext("grid", ManualClock(NOW), NOW, refuse or (lambda *_: None))
    programs = Programs(model, lambda _: None)
    return Standing(context, rules_of(model), Heard(FeedMemory(), "https://vtn"), programs)


def step(at: Standing, listing: list[object], *gone: str, minutes: float = 0) -> dict[str, Any]:
    now = NOW + timedelta(minutes=minutes)
    at.read(listing, now)
    signals = at.conclude(gone, "w", now, minutes * 60)
    return {check_provenance("grid", s).source_id: s for s in signals}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["P9999Y", "PT0S", "0001-01-01", "SIMPLE", "-P1M", "2026-02-30T25:00:00Z"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*GOOD, "id", "payloads", "values"]), inner, max_size=5)
    ),
    max_leaves=12,
)


def mutated(drawn: random.Random, value: object) -> object:
    """The good event with one place of it replaced."""
    event = copy.deepcopy(GOOD) | {"id": "other"}
    places: list[tuple[Any, Any]] = []
    waiting: list[Any] = [event]
    while waiting:
        node = waiting.pop()
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                waiting.append(node[key])
    node, key = drawn.choice(places)
    node[key] = value
    return event


@settings(max_examples=150, deadline=None)
@given(st.lists(JSON, max_size=3), JSON, st.randoms(use_true_random=False))
def test_no_listing_hides_the_good_event_or_takes_it_back(
    junk: list[object], value: object, drawn: random.Random
) -> None:
    at = standing()
    name = event_name("good", "2026-11-30T13:00:00Z")
    first = step(at, [GOOD])
    assert len(first) == 4  # two payloads, in an hour that its duration repeats
    garbled = step(at, [*junk, mutated(drawn, value), GOOD], minutes=1)
    for key, signal in first.items():
        assert key.startswith(name)
        assert garbled[key].request == signal.request
        assert garbled[key].revision == 0


@settings(max_examples=150, deadline=None)
@given(JSON)
def test_garbage_under_the_same_id_releases_nothing(value: object) -> None:
    at = standing()
    step(at, [GOOD])
    garbage = GOOD | {"intervals": value}
    for signal in step(at, [garbage], minutes=1).values():
        if signal.request is None:  # a readable event that no longer asks
            assert value is None or isinstance(value, list)


def test_a_memory_that_cannot_be_written_hides_no_signal() -> None:
    told: list[str] = []
    at = standing(lambda error, _: told.append(error.code))

    def unwritable(key: str, value: object) -> None:
        raise Unavailable("feed-memory-unwritable", "no space left")

    at._heard._memory.put = unwritable  # type: ignore[method-assign]
    assert len(step(at, [GOOD])) == 4
    assert told == ["feed-memory-unwritable"]


def test_a_cancelled_event_that_is_listed_again_is_asked_under_another_name() -> None:
    at = standing()
    name = event_name("good", "2026-11-30T13:00:00Z")
    step(at, [GOOD])
    taken = step(at, [], name, minutes=2)
    assert {(s.revision, s.request) for s in taken.values()} == {(1, None)}
    again = step(at, [GOOD], minutes=3)
    # Control begins nothing again under the name that was taken back.
    told = {s.source_id: (s.revision, s.request is None) for s in again.values()}
    assert told == dict.fromkeys(taken, (1, True)) | {f"{key}.r1": (0, False) for key in taken}


def test_an_event_moved_into_the_past_is_taken_back() -> None:
    at = standing()
    step(at, [GOOD])
    moved = copy.deepcopy(GOOD)
    moved["intervalPeriod"]["start"] = "2026-11-30T11:00:00Z"
    assert {s.request for s in step(at, [moved], minutes=1).values()} == {None}


def test_an_event_whose_targets_became_others_is_taken_back_and_one_without_ours_too() -> None:
    model = OpenAdr3Settings(vtn_url="https://vtn.example", targets=("a",))
    context = FeedContext("grid", ManualClock(NOW), NOW, lambda *_: None)
    heard = Heard(FeedMemory(), "https://vtn")
    at = Standing(context, rules_of(model), heard, Programs(model, lambda _: None))
    assert all(s.request for s in step(at, [GOOD]).values())
    assert {s.request for s in step(at, [GOOD | {"targets": ["b"]}]).values()} == {None}


def test_what_another_server_once_said_is_no_matter_of_this_one() -> None:
    memory = FeedMemory()
    heard = Heard(memory, "https://one")
    heard.meet("e", NOW)
    heard.keep(NOW, ["e"])
    assert Heard(memory, "https://one").seen_under == {"e": None}
    assert Heard(memory, "https://two").seen_under == {}
