"""OpenADR 3 documents as a person reads them: the guide's examples, and one file for each idiom."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gridaware.domain.errors import InvalidInput
from gridaware.feeds.kind import Parsed
from gridaware.feeds.openadr3.parsing import parse_document
from gridaware.feeds.openadr3.reading_settings import ReadingSettings

ROOT = Path(__file__).parents[4]
DATA = ROOT / "tests" / "data" / "feeds" / "openadr3"
GUIDE = ROOT.parent / "shared" / "data" / "openadr3" / "user_guide_3.1.1"
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
BEFORE_THE_GUIDE = datetime(2023, 2, 1, tzinfo=UTC)


def table(name: str) -> dict[str, Any]:
    tables: dict[str, Any] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return tables


def shown(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def as_table(parsed: Parsed, like: dict[str, Any]) -> dict[str, Any]:
    """Rows as the table writes them; prose by its length where the table does."""
    rows = [
        [shown(r.start), shown(r.end), r.type, r.value, r.disposition.value] for r in parsed.events
    ]
    for row, expected in zip(rows, like["rows"], strict=False):
        if str(expected[3]).startswith("text:"):
            row[3] = f"text:{len(str(row[3]))}"
    return {"rows": rows, "refused": [part.code for part in parsed.refused]}


def parsed(name: str, now: datetime = NOW, **settings: Any) -> Parsed:
    return parse_document((DATA / f"{name}.json").read_bytes(), now, ReadingSettings(**settings))


@pytest.mark.parametrize("name", sorted(table("guide_3_1_1.json")))
def test_every_example_event_of_the_guide_is_understood(name: str) -> None:
    path = GUIDE / f"{name}.json"
    if not path.exists():
        pytest.skip("the user guide's examples (../shared/data/openadr3) are not here")
    expected = table("guide_3_1_1.json")[name]
    read = parse_document(path.read_bytes(), BEFORE_THE_GUIDE, None)
    assert as_table(read, expected) == expected
    assert all(row.id == json.loads(path.read_text()).get("id") for row in read.events)


def test_the_table_names_all_24_examples() -> None:
    assert len(table("guide_3_1_1.json")) == 24
    if not GUIDE.is_dir():
        pytest.skip("the user guide's examples (../shared/data/openadr3) are not here")
    assert {path.stem for path in GUIDE.glob("*_event_*.json")} == set(table("guide_3_1_1.json"))


@pytest.mark.parametrize("name", sorted(table("expected.json")))
def test_every_idiom_is_understood(name: str) -> None:
    expected = table("expected.json")[name]
    assert as_table(parsed(name), expected) == expected


def test_every_file_of_ours_has_its_row_in_the_table() -> None:
    files = {path.stem for path in DATA.glob("*.json")} - {"expected", "guide_3_1_1"}
    assert files == set(table("expected.json"))


def test_the_one_bad_report_descriptor_of_the_guide_is_refused_alone() -> None:
    event = {
        "programID": "44",
        "intervalPeriod": {"start": "2026-12-02T00:00:00.000Z", "duration": "PT1H"},
        "reportDescriptors": [{"payLoadType": "USAGE"}, {"payloadType": "USAGE"}],
        "intervals": [{"id": 0, "payloads": [{"type": "PRICE", "values": [0.17]}]}],
    }
    read = parse_document(json.dumps(event).encode(), NOW, None)
    assert [(part.where, part.code) for part in read.refused] == [
        ("event 0, report descriptor 0", "descriptor-malformed")
    ]
    assert "payLoadType" in read.refused[0].reason
    assert [row.value for row in read.events] == [0.17]


def test_one_bad_event_does_not_hide_the_other_49() -> None:
    """Corner case 1: every library examined lost all fifty."""
    good = json.loads((DATA / "now_for_ever.json").read_text())
    for bad in (
        None,
        [],
        "event",
        {**good, "intervals": "none"},
        {**good, "intervalPeriod": {"start": "tomorrow"}},
        {**good, "id": {"is": "no id"}},
        {**good, "targets": "everybody"},
        {"objectType": "PROGRAM", "programName": "p"},
    ):
        events: list[Any] = [{**good, "id": f"e{n}"} for n in range(50)]
        events[17] = bad
        read = parse_document(json.dumps(events).encode(), NOW, None)
        assert [row.id for row in read.events] == [f"e{n}" for n in range(50) if n != 17]
        assert [part.where for part in read.refused] == ["event 17"]


def test_a_naive_time_is_refused_or_read_in_the_zone_that_was_named() -> None:
    """User case 28: documented, or refused."""
    assert parsed("naive").refused[0].code == "time-naive"
    (row,) = parsed("naive", naive_timezone="America/Chicago").events
    assert (shown(row.start), shown(row.end)) == ("2026-12-01T20:00:00Z", "2026-12-02T08:00:00Z")


def test_no_length_from_now_on_is_for_ever_in_3_0_1_and_a_cancellation_in_3_1() -> None:
    """Corner case 2."""
    (row,) = parsed("now_without_length", version="3.0.1").events
    assert (row.start, row.end, row.value, row.disposition) == (NOW, None, 800, "act")
    (row,) = parsed("now_without_length").events
    assert (row.type, row.disposition, row.reason) == (
        None,
        "advisory",
        "taken back by its sender",
    )


def test_what_was_over_before_it_was_heard_is_not_acted_on() -> None:
    later = datetime(2026, 12, 1, 16, 10, tzinfo=UTC)
    rows = parsed("cut_off", later).events
    assert [row.disposition.value for row in rows] == ["refused", "refused", "act"]
    assert rows[0].reason == "over before it was heard"


def test_an_event_for_others_alone_is_left_to_them() -> None:
    """User case 23: servers were seen that show a client what is not for it."""
    assert parsed("targets_3_0_1", targets=("site-7",)).events[0].disposition == "act"
    (row,) = parsed("targets_3_0_1", targets=("site-9",)).events
    assert (row.disposition, row.reason) == ("refused", "its targets name others alone")


def test_maps_let_instructions_alerts_and_private_types_act() -> None:
    cut = {"reduce_percent": 30}
    told = parsed(
        "instructions",
        meanings={
            "DISPATCH_INSTRUCTION": {"shed": cut},
            "CONTROL_SETPOINT": {"true": cut, "false": None},
        },
    ).events
    assert [row.disposition.value for row in told] == ["act", "act"]
    assert told[0].reason == "as the map says; not in it: page the operator"
    alerts = parsed("alerts", meanings={"ALERT_BLACK_START": {"*": cut}}).events
    assert [row.type for row in alerts if row.disposition == "act"] == ["ALERT_BLACK_START"]
    (private,) = [
        row
        for row in parsed("informing", meanings={"X-ACME-SHED": {"1": cut}}).events
        if row.disposition == "act"
    ]
    assert private.target is not None
    assert private.target.value == 0.3


def test_a_document_of_which_nothing_can_be_read_is_refused_as_a_whole() -> None:
    for body, code in (
        (b"", "event-not-json"),
        (b"\xff\xfe", "event-not-utf8"),
        (b"17", "event-not-object"),
        (b'"[', "event-not-json"),
        (b"[" * 100_000, "event-nested"),
        (b"<html>502 Bad Gateway</html>", "event-not-json"),
    ):
        with pytest.raises(InvalidInput) as caught:
            parse_document(body, NOW, None)
        assert caught.value.code == code


def test_a_page_an_empty_list_and_a_single_event_read_the_same() -> None:
    event = json.loads((DATA / "now_for_ever.json").read_text())
    one = parse_document(json.dumps(event).encode(), NOW, None)
    for document in ([event], {"events": [event]}, {"objectType": "EVENT", "object": event}):
        assert parse_document(json.dumps(document).encode(), NOW, None) == one
    assert parse_document(b"[]", NOW, None) == replace(one, events=())


def test_an_integer_of_thousands_of_digits_is_only_a_bad_value() -> None:
    body = (DATA / "now_for_ever.json").read_bytes().replace(b"   2\n", b"   " + b"9" * 9000)
    assert b"9" * 9000 in body
    (row,) = parse_document(body, NOW, None).events
    assert row.disposition == "refused"
