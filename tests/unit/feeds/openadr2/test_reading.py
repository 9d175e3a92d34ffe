"""What 2.0b messages mean: our payloads and the published samples, row by row."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput
from gridaware.domain.signal import Quantity, TargetSpec
from gridaware.feeds.kind import Disposition, Parsed, ParsedRow
from gridaware.feeds.openadr2.parsing import parse_message
from gridaware.feeds.openadr2.reading import read_event
from gridaware.feeds.openadr2.reading_settings import ReadingSettings, rules_of
from gridaware.feeds.openadr2.xmltree import BYTES_AT_MOST, read_xml
from gridaware.sim.grid.vtn2 import DrEvent, DrSignal, distributed
from gridaware.sim.grid.vtn2.messages import POWER_KW

DATA = Path(__file__).parents[3] / "data" / "feeds" / "openadr2b"
SAMPLES = Path(__file__).parents[5] / "shared" / "data" / "openadr2b"
EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text())
EXPECTED_SAMPLES: dict[str, Any] = json.loads((DATA / "samples_2_0b.json").read_text())
NOW = datetime(2026, 11, 30, 14, tzinfo=UTC)
AT_3_PM = "2026-11-30T15:00:00Z"


def shown(row: ParsedRow) -> list[object]:
    target = row.target
    return [
        row.id,
        row.start and row.start.isoformat().replace("+00:00", "Z"),
        row.end and row.end.isoformat().replace("+00:00", "Z"),
        row.type,
        row.value,
        row.disposition.value,
        None if target is None else f"{target.quantity.value} {target.value:g}",
    ]


def as_table(parsed: Parsed) -> dict[str, Any]:
    return {
        "rows": [shown(row) for row in parsed.events],
        "refused": [part.code for part in parsed.refused],
    }


@pytest.mark.parametrize("name", sorted(path.stem for path in DATA.glob("*.xml")))
def test_a_message_means_what_its_table_says(name: str) -> None:
    body = (DATA / f"{name}.xml").read_bytes()
    assert as_table(parse_message(body, NOW, None, ven_id="VEN-1")) == EXPECTED[name]


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the published samples are not here")
def test_every_published_sample_means_what_its_table_says() -> None:
    found = {}
    for path in sorted(SAMPLES.glob("*.xml")):
        parsed = parse_message(path.read_bytes(), datetime(2001, 12, 17, 9, tzinfo=UTC), None)
        found[path.stem.split("__")[1]] = as_table(parsed)
    assert len(found) == 56
    assert found == EXPECTED_SAMPLES


def rows(*events: DrEvent, **settings: object) -> list[ParsedRow]:
    chosen = ReadingSettings.model_validate(settings) if settings else None
    return list(parse_message(distributed(events), NOW, chosen).events)


def test_the_settings_say_what_only_the_programme_explains() -> None:
    (capacity,) = rows(one("LOAD_CONTROL", "x-loadControlCapacity", 0.5), capacity_kw=2000.0)
    assert capacity.target == TargetSpec(Quantity.LIMIT_WATTS, 1e6)
    (percent,) = rows(
        one("LOAD_CONTROL", "x-loadControlPercentOffset", -20), percent_offset_unit="percent"
    )
    assert percent.target == TargetSpec(Quantity.REDUCTION_FRACTION, 0.2)
    (share,) = rows(
        one("LOAD_CONTROL", "x-loadControlPercentOffset", -0.2), percent_offset_unit="share"
    )
    assert share.target == TargetSpec(Quantity.REDUCTION_FRACTION, 0.2)
    levels = {"LOAD_CONTROL/x-loadControlLevelOffset": {"-1": {"reduce_kw": 100}, "0": None}}
    found = rows(
        *(one("LOAD_CONTROL", "x-loadControlLevelOffset", value) for value in (-1, 0, 3)),
        meanings=levels,
    )
    assert [row.disposition for row in found] == [
        Disposition.ACT,
        Disposition.ADVISORY,
        Disposition.REFUSED,
    ]
    private = {"x-STORM/level": {"*": {"limit_kw": 50}}}
    (storm,) = rows(one("x-STORM", "level", 7), meanings=private)
    assert storm.target == TargetSpec(Quantity.LIMIT_WATTS, 50_000)
    (less,) = rows(one("LOAD_DISPATCH", "delta", 30, POWER_KW), delta_sign="positive_is_less")
    assert less.target == TargetSpec(Quantity.REDUCTION_WATTS, 30_000)
    (device,) = rows(one("SIMPLE", "level", 1, devices=("EVSE",)), device_classes=("evse",))
    assert device.disposition is Disposition.ACT


def one(
    name: str,
    kind: str,
    value: float,
    item: tuple[str, str, str, str] | None = None,
    devices: tuple[str, ...] = (),
) -> DrEvent:
    return DrEvent("e", AT_3_PM, signals=(DrSignal(name, kind, (("PT1H", value),), item, devices),))


def test_a_level_that_the_settings_do_not_map_is_refused() -> None:
    (row,) = rows(one("SIMPLE", "level", 3), levels={"1": {"reduce_kw": 5}})
    assert (row.disposition, row.target) == (Disposition.REFUSED, None)


def test_a_unit_that_is_worth_nothing_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match="watts"):
        rules_of(ReadingSettings(units={"MW": 0.0}))


def test_case_15_a_custom_unit_acts_only_once_the_settings_say_its_watts() -> None:
    custom = ("oadr:customUnit", "megawatts", "MW", "none")
    event = one("LOAD_DISPATCH", "setpoint", 2, custom)
    (row,) = rows(event)
    assert (row.disposition, row.target) == (Disposition.REFUSED, None)
    (row,) = rows(event, units={"MW": 1e6})
    assert row.target == TargetSpec(Quantity.LIMIT_WATTS, 2e6)


def test_a_kilowatt_is_not_a_megawatt_or_a_milliwatt() -> None:
    def watts(scale: str) -> float:
        item = ("power:powerReal", "RealPower", "W", scale)
        (row,) = rows(one("LOAD_DISPATCH", "setpoint", 3, item))
        assert row.target is not None
        return row.target.value

    assert [watts(scale) for scale in ("none", "m", "k", "M")] == [3.0, 0.003, 3e3, 3e6]


def test_case_20_an_interval_begins_where_the_one_before_it_ends() -> None:
    steps = tuple(("PT20M", level) for level in (1, 2, 3))
    found = rows(DrEvent("e", AT_3_PM, signals=(DrSignal(intervals=steps),)))
    begin = datetime(2026, 11, 30, 15, tzinfo=UTC)
    assert [row.start for row in found] == [begin + timedelta(minutes=m) for m in (0, 20, 40)]


def test_case_14_without_notification_and_ramps_an_event_is_whole() -> None:
    """The server leaves x-eiNotification, x-eiRampUp and x-eiRecovery out: our own ramps hold."""
    body = distributed([DrEvent("e", AT_3_PM)])
    assert b"x-ei" not in body
    (row,) = parse_message(body, NOW, None).events
    assert row.disposition is Disposition.ACT
    assert row.start == datetime(2026, 11, 30, 15, tzinfo=UTC)


def test_a_random_start_is_later_and_never_earlier() -> None:
    event = read_xml(distributed([DrEvent("e", AT_3_PM, start_after="PT10M")]))
    node = next(each for each in event.walk() if each.name == "oadrEvent")
    for drawn, minutes in ((0.0, 0), (1.0, 10), (-1.0, 10), (-0.5, 5)):
        (part,) = read_event(
            node, rules_of(ReadingSettings()), now=NOW, draw=lambda _, value=drawn: value
        ).parts
        begin = datetime(2026, 11, 30, 15, minutes, tzinfo=UTC)
        assert (part.start, part.end) == (begin, begin + timedelta(hours=1))


HOSTILE = {
    "xml-doctype": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><oadrPayload/>',
    "xml-malformed": b"<oadrPayload><oadrSignedObject>",
    "xml-nested": b"<a>" * 100 + b"</a>" * 100,
    "xml-too-large": b"<a>" + b" " * BYTES_AT_MOST + b"</a>",
    "openadr2-envelope": b"<html><body>Service unavailable</body></html>",
}


@pytest.mark.parametrize("code", sorted(HOSTILE))
def test_hostile_xml_is_refused_before_anything_is_read(code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_message(HOSTILE[code], NOW, None)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "body",
    [
        b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>',
        '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE a><a/>'.encode("utf-16"),
        b'<?xml version="1.0"?>\n<!DOCTYPE lolz [<!ENTITY l "l"><!ENTITY m "&l;&l;">]><a>&m;</a>',
        b"<a>&undeclared;</a>",
        b'<?xml version="1.0" encoding="no-such-code"?><a/>',
        b"",
        b"\x00",
    ],
)
def test_no_document_type_and_no_entity_is_ever_taken(body: bytes) -> None:
    with pytest.raises(GridawareError):
        parse_message(body, NOW, None)


def test_text_between_many_elements_is_no_hang() -> None:
    body = b"<a>" + b"x" * 500_000 + b"y<b/>" * 49_000 + b"</a>"
    root = read_xml(body)
    assert len(root.text) == 549_000
    assert len(root.children) == 49_000


def test_the_raw_text_of_an_event_is_kept_as_it_came() -> None:
    first = DrEvent("caf\u00e9 & co", AT_3_PM).xml()
    root = read_xml(distributed([first, DrEvent("b", AT_3_PM)]), keep="oadrEvent")
    raws = [node.raw.decode() for node in root.walk() if node.name == "oadrEvent"]
    assert raws[0] == first.strip()
    assert "caf\u00e9 &amp; co" in raws[0]
    assert raws[1].startswith("<oadr:oadrEvent>")
    assert raws[1].endswith("</oadr:oadrEvent>")
