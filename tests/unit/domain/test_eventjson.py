"""The JSON of an event request: what it means, and everything that it refuses."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridaware.domain.errors import GridawareError, InvalidInput
from gridaware.domain.eventjson import (
    BODY_BYTES_AT_MOST,
    duration_seconds,
    event_from_json,
    event_from_mapping,
    event_to_json,
    instant,
    json_fault,
)
from gridaware.domain.fixes_feeds import FIXES
from gridaware.domain.signal import EventKind, EventRequest, Quantity, Signal, TargetSpec

RECEIVED = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)
GOOD: dict[str, object] = {
    "id": "dr-1",
    "start": "2026-11-30T15:00:00Z",
    "end": "2026-11-30T16:00:00Z",
    "target": {"reduce_percent": 40},
}
# Shown by control's own catalogue: they are raised by the domain types themselves.
ELSEWHERE = {
    "event-id-malformed",
    "target-not-finite",
    "target-negative",
    "target-absurd",
    "time-naive",
    "end-before-start",
    "duration-absurd",
    "revision-range",
}


def read(body: object) -> Signal:
    text = body if isinstance(body, bytes | str) else json.dumps(body)
    return event_from_json(text, feed_id="utility", received_at=RECEIVED, received_seconds=12.5)


def asked(**changes: object) -> EventRequest:
    request = read({**GOOD, **changes}).request
    assert request is not None
    return request


def refusal(body: object) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        read(body)
    return caught.value


def without(*keys: str) -> dict[str, object]:
    return {key: value for key, value in GOOD.items() if key not in keys}


def test_a_whole_event_is_read_with_its_units_and_its_provenance() -> None:
    body = json.dumps({**GOOD, "revision": 3, "kind": "drill", "priority": 0})
    signal = read(body)
    assert (signal.feed_id, signal.source_id, signal.revision) == ("utility", "dr-1", 3)
    assert (signal.received_at, signal.received_seconds, signal.raw) == (RECEIVED, 12.5, body)
    assert signal.request == EventRequest(
        start=datetime(2026, 11, 30, 15, tzinfo=UTC),
        end=datetime(2026, 11, 30, 16, tzinfo=UTC),
        target=TargetSpec(Quantity.REDUCTION_FRACTION, 0.4),
        kind=EventKind.DRILL,
        priority=0,
    )


@pytest.mark.parametrize(
    ("target", "quantity", "value"),
    [
        ({"limit_kw": 12.5}, Quantity.LIMIT_WATTS, 12_500.0),
        ({"limit_percent_of_baseline": 75}, Quantity.LIMIT_FRACTION, 0.75),
        ({"reduce_kw": 3}, Quantity.REDUCTION_WATTS, 3000.0),
        ({"reduce_percent": 40}, Quantity.REDUCTION_FRACTION, 0.4),
        ({"reduce_percent": 7}, Quantity.REDUCTION_FRACTION, 0.07),
        ({"limit_kw": -0.0}, Quantity.LIMIT_WATTS, 0.0),
        ({"limit_kw": 1e8}, Quantity.LIMIT_WATTS, 1e11),
    ],
)
def test_each_quantity_becomes_watts_or_a_fraction(
    target: dict[str, float], quantity: Quantity, value: float
) -> None:
    assert asked(target=target).target == TargetSpec(quantity, value)
    assert str(asked(target=target).target.value)[0] != "-"


def test_now_is_the_moment_of_receipt() -> None:
    request = read({**without("end"), "start": "now", "duration": "PT45S"}).request
    assert request is not None
    assert request.immediate
    assert (request.start, request.end) == (RECEIVED, RECEIVED + timedelta(seconds=45))


def test_a_retry_of_now_asks_for_the_same_though_it_comes_later() -> None:
    body: dict[str, object] = {**without("end"), "start": "now"}

    def heard(later_seconds: int, **end: object) -> EventRequest:
        request = event_from_mapping(
            {**body, **end},
            feed_id="utility",
            received_at=RECEIVED + timedelta(seconds=later_seconds),
            received_seconds=0,
        ).request
        assert request is not None
        return request

    for end in ({"duration": "PT45S"}, {"end": GOOD["end"]}, {"open_end": True}):
        assert heard(0, **end).same_as(heard(7, **end))
    assert not heard(0, duration="PT45S").same_as(heard(7, duration="PT46S"))
    assert not heard(0, duration="PT45S").same_as(heard(7, open_end=True))
    assert not heard(0, duration="PT45S").same_as(asked())
    assert asked().same_as(asked())
    assert not asked().same_as(asked(priority=1))


def test_an_open_end_has_no_end_and_a_cancellation_no_request() -> None:
    request = read({**without("end"), "open_end": True}).request
    assert request is not None
    assert request.end is None
    assert read({"id": "dr-1", "revision": 1, "cancel": True}).request is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT45S", 45.0),
        ("PT1H30M", 5400.0),
        ("P2D", 172_800.0),
        ("P1W", 604_800.0),
        ("P1DT12H", 129_600.0),
        ("PT0.25S", 0.25),
        ("PT0,5S", 0.5),
        ("PT36H", 129_600.0),
    ],
)
def test_durations_have_their_elapsed_length(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("P1M", "duration-calendar"),
        ("P1Y", "duration-calendar"),
        ("P9999Y", "duration-calendar"),
        ("P1Y2M10DT2H", "duration-calendar"),
        ("P0.5Y", "duration-calendar"),
        ("PT0S", "duration-zero"),
        ("P0D", "duration-zero"),
        ("P", "duration-malformed"),
        ("PT", "duration-malformed"),
        ("P1DT", "duration-malformed"),
        ("1h", "duration-malformed"),
        ("PT-5S", "duration-malformed"),
        ("-PT5S", "duration-malformed"),
        ("PT1H\n", "duration-malformed"),
        ("PT99999999999999S", "duration-malformed"),
        ("PT999999999S", "duration-absurd"),
        (45, "duration-type"),
        (None, "duration-type"),
    ],
)
def test_durations_without_a_fixed_sensible_length_are_refused(text: object, code: str) -> None:
    assert refusal({**without("end"), "duration": text}).code == code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30T08:00:00-06:00", datetime(2026, 11, 30, 14, tzinfo=UTC)),
        ("2026-11-30t14:00:00z", datetime(2026, 11, 30, 14, tzinfo=UTC)),
        ("2026-11-30 14:00Z", datetime(2026, 11, 30, 14, tzinfo=UTC)),
        ("2026-11-30T14:00:00.5+00:00", datetime(2026, 11, 30, 14, 0, 0, 500_000, tzinfo=UTC)),
        (
            "2026-11-30T14:00:00.123456789Z",
            datetime(2026, 11, 30, 14, 0, 0, 123_456, tzinfo=UTC),
        ),
    ],
)
def test_times_are_instants_in_utc(text: str, expected: datetime) -> None:
    read_back = instant(text, "start")
    assert read_back == expected
    assert read_back.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("2026-11-30T14:00:00", "time-naive"),
        ("2026-11-30", "time-malformed"),
        ("2026-W49-1T14:00:00Z", "time-malformed"),
        ("20261130T140000Z", "time-malformed"),
        ("2026-02-30T14:00:00Z", "time-malformed"),
        ("2026-11-30T24:00:00Z", "time-malformed"),
        ("2026-11-30T14:00:60Z", "time-malformed"),
        ("2026-11-30T14:00:00+25:00", "time-malformed"),
        ("٢٠٢٦-11-30T14:00:00Z", "time-malformed"),
        ("tomorrow", "time-malformed"),
        ("0001-01-01T00:00:00+14:00", "time-absurd"),
        ("9999-12-31T23:59:59-14:00", "time-absurd"),
        (1_796_040_000, "time-type"),
        (None, "time-type"),
        (True, "time-type"),
    ],
)
def test_times_that_are_not_one_clear_instant_are_refused(text: object, code: str) -> None:
    assert refusal({**GOOD, "start": text}).code == code


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (without("id"), "event-key-missing"),
        (without("start"), "event-key-missing"),
        (without("target"), "event-key-missing"),
        (without("end"), "event-end-count"),
        ({**GOOD, "duration": "PT1H"}, "event-end-count"),
        ({**GOOD, "open_end": True}, "event-end-count"),
        ({**GOOD, "open_end": "yes"}, "flag-type"),
        ({**GOOD, "cancel": 1}, "flag-type"),
        ({**GOOD, "cancel": True}, "cancel-with-request"),
        ({**GOOD, "id": ""}, "event-id-malformed"),
        ({**GOOD, "id": 7}, "event-id-malformed"),
        ({**GOOD, "id": "../../etc/passwd"}, "event-id-malformed"),
        ({**GOOD, "id": "a" * 65}, "event-id-malformed"),
        ({**GOOD, "id": "dr 1\n"}, "event-id-malformed"),
        ({**GOOD, "id": "dr\ud800"}, "event-id-malformed"),
        ({**GOOD, "revision": True}, "revision-type"),
        ({**GOOD, "revision": 1.0}, "revision-type"),
        ({**GOOD, "revision": "1"}, "revision-type"),
        ({**GOOD, "revision": -1}, "revision-range"),
        ({**GOOD, "revision": 2**40}, "revision-range"),
        ({**GOOD, "kind": "LIVE"}, "kind-unknown"),
        ({**GOOD, "kind": ["live"]}, "kind-unknown"),
        ({**GOOD, "priority": "high"}, "priority-type"),
        ({**GOOD, "priority": False}, "priority-type"),
        ({**GOOD, "priority": -1}, "priority-range"),
        ({**GOOD, "end": "2026-11-30T15:00:00Z"}, "end-before-start"),
        ({**GOOD, "end": "2026-11-30T14:00:00Z"}, "end-before-start"),
        ({**GOOD, "end": "2126-11-30T14:00:00Z"}, "duration-absurd"),
        ({**GOOD, "target": 40}, "target-type"),
        ({**GOOD, "target": {}}, "target-count"),
        ({**GOOD, "target": {"limit_kw": 1, "reduce_kw": 1}}, "target-count"),
        ({**GOOD, "target": {"limit_w": 1}}, "target-key-unknown"),
        ({**GOOD, "target": {"limit_kw": True}}, "target-type"),
        ({**GOOD, "target": {"limit_kw": "12"}}, "target-type"),
        ({**GOOD, "target": {"limit_kw": None}}, "target-type"),
        ({**GOOD, "target": {"limit_kw": -1}}, "target-negative"),
        ({**GOOD, "target": {"limit_kw": 1.01e8}}, "target-absurd"),
        ({**GOOD, "target": {"limit_kw": 10**400}}, "target-absurd"),
        ({**GOOD, "target": {"reduce_percent": 101}}, "target-percent-range"),
        ({**GOOD, "target": {"limit_percent_of_baseline": 1e300}}, "target-percent-range"),
        ({**GOOD, "target": {"reduce_percent": float("nan")}}, "number-not-finite"),
        ({**GOOD, "target": {"limit_kw": float("-inf")}}, "number-not-finite"),
        (b'{"id":"a","start":"now","open_end":true,"target":{"limit_kw":1e999}}', "target-"),
        (b'{"id":"a","id":"b"}', "event-key-repeated"),
        (b'{"target":{"limit_kw":1,"limit_kw":2}}', "event-key-repeated"),
        (b"", "event-not-json"),
        (b"{", "event-not-json"),
        (b"{}x", "event-not-json"),
        (b"\xef\xbb\xbf{}", "event-not-json"),
        (b'{"a":' + b"9" * 5000 + b"}", "event-not-json"),
        (b'{"id":"\xff"}', "event-not-utf8"),
        (b"[]", "event-not-object"),
        (b'"now"', "event-not-object"),
        (b"null", "event-not-object"),
        (b"[" * 60_000, "event-nested"),
        (b'{"a":' * 13_000, "event-nested"),
        (b" " * (BODY_BYTES_AT_MOST + 1), "event-too-large"),
    ],
)
def test_bad_input_is_refused_by_name_and_with_advice(body: object, code: str) -> None:
    error = refusal(body)
    assert error.code.startswith(code)
    assert error.code in FIXES or error.code in ELSEWHERE
    assert error.message.isascii()
    assert len(error.message) < 400


def test_a_misspelt_key_is_refused_with_the_nearest_one() -> None:
    assert "did you mean 'duration'?" in refusal({**GOOD, "durration": "PT1H"}).message
    assert "did you mean 'limit_kw'?" in refusal({**GOOD, "target": {"limit_kW": 5}}).message
    assert "known: id, revision" in refusal({**GOOD, "\u0000": 5}).message
    assert refusal({**GOOD, "k" * 60_000: 5}).code == "event-key-unknown"


requests = st.builds(
    lambda start, length, target, kind, priority: EventRequest(
        start=start,
        end=None if length is None else start + timedelta(seconds=length),
        target=target,
        kind=kind,
        priority=priority,
    ),
    start=st.floats(0, 5e9).map(lambda seconds: datetime.fromtimestamp(1e9 + seconds, UTC)),
    length=st.none() | st.integers(1, 10**8),
    target=st.builds(TargetSpec, st.sampled_from(Quantity), st.floats(0, 1))
    | st.builds(TargetSpec, st.just(Quantity.LIMIT_WATTS), st.floats(0, 9e10)),
    kind=st.sampled_from(EventKind),
    priority=st.none() | st.integers(0, 2**31),
)


@settings(max_examples=300, deadline=None)
@given(request=requests, revision=st.integers(0, 2**31))
def test_what_is_shown_reads_back_as_the_same_request(request: EventRequest, revision: int) -> None:
    signal = Signal("utility", "dr-1", revision, RECEIVED, 12.5, request)
    again = read(event_to_json(signal))
    assert again.revision == revision
    assert again.request is not None
    assert again.request.target.value == pytest.approx(request.target.value, rel=1e-12)
    assert again.request.target.quantity is request.target.quantity
    for name in ("start", "end", "kind", "priority"):
        assert getattr(again.request, name) == getattr(request, name)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
values = (
    scalars
    | st.sampled_from(["now", "PT1H", "P1M", "2026-11-30T14:00:00Z", "live", 10**400, -0.0])
    | st.dictionaries(st.sampled_from(["limit_kw", "reduce_percent", "x"]), scalars, max_size=2)
    | st.lists(scalars, max_size=2)
)
keys = st.sampled_from([*GOOD, "revision", "kind", "duration", "open_end", "priority", "cancel"])


def reads_or_refuses(body: bytes | str) -> None:
    try:
        signal = read(body)
    except GridawareError as error:
        json.dumps([error.code, error.message, error.facts], allow_nan=False).encode("ascii")
    else:
        event_to_json(signal)
        signal.raw.encode("utf-8")


@settings(max_examples=2000, deadline=None)
@given(changes=st.dictionaries(keys | st.text(max_size=5), values, max_size=5))
def test_any_object_is_read_or_refused(changes: dict[str, object]) -> None:
    reads_or_refuses(json.dumps({**GOOD, **changes}))


@settings(max_examples=1000, deadline=None)
@given(body=st.binary(max_size=200) | st.text(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes | str) -> None:
    reads_or_refuses(body)


@settings(max_examples=1000, deadline=None)
@given(place=st.integers(0, 120), noise=st.binary(max_size=4), cut=st.integers(0, 4))
def test_a_damaged_event_is_read_or_refused(place: int, noise: bytes, cut: int) -> None:
    good = json.dumps(GOOD).encode()
    reads_or_refuses(good[:place] + noise + good[place + cut :])


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 10_000, "{", ""])
def test_a_text_that_is_no_json_is_told_in_words_for_its_sender(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)) as caught:
        json.loads(text)
    why = json_fault(caught.value)
    assert why
    assert "Error" not in why
    assert "sys." not in why
