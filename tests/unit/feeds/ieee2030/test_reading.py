"""Controls as servers write them, and what of them a load follows."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from gridaware.domain.errors import InvalidInput
from gridaware.domain.signal import Quantity, TargetSpec
from gridaware.feeds.ieee2030.parsing import parse_document
from gridaware.feeds.ieee2030.settings import ReadingSettings
from gridaware.feeds.kind import Disposition, Parsed, ParsedRow

DATA = Path(__file__).parents[3] / "data" / "feeds" / "ieee2030"
NOW = datetime(2026, 12, 1, tzinfo=UTC)
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
ONE = datetime(2026, 12, 1, 13, tzinfo=UTC)


def parsed(name: str, now: datetime = NOW, **settings: object) -> Parsed:
    given = ReadingSettings.model_validate(settings)
    return parse_document((DATA / f"{name}.xml").read_bytes(), now, given)


def watts(row: ParsedRow) -> float | None:
    if row.target is None:
        return None
    assert row.target.quantity is Quantity.LIMIT_WATTS
    return row.target.value


@pytest.mark.parametrize("name", ["envelope", "unversioned"])
def test_envoys_limit_is_123_kw_and_not_12_3(name: str) -> None:
    limit = parsed(name).events[0]
    assert (limit.start, limit.end, limit.type) == (NOON, ONE, "opModImpLimW")
    assert limit.disposition is Disposition.ACT
    assert limit.target == TargetSpec(Quantity.LIMIT_WATTS, 123_000.0)


def test_a_limit_of_export_informs_a_load() -> None:
    export = parsed("envelope").events[1]
    assert (export.type, export.value) == ("opModExpLimW", 5000.0)
    assert export.disposition is Disposition.ADVISORY


def test_only_what_is_scheduled_or_active_is_asked_for() -> None:
    rows = {row.id: (watts(row), row.reason) for row in parsed("statuses").events}
    assert rows["A0"] == (100_000.0, "asked for")
    assert rows["A1"] == (101_000.0, "asked for")
    assert [rows[name][0] for name in ("A2", "A3", "A4")] == [None] * 3
    assert "cancelled" in rows["A2"][1]
    assert "superseded" in rows["A4"][1]


def test_what_is_over_is_refused() -> None:
    rows = parsed("envelope", now=ONE).events
    assert rows[0].disposition is Disposition.REFUSED


def test_one_bad_control_hides_no_other() -> None:
    document = parsed("one_bad")
    assert [row.id for row in document.events if row.disposition is Disposition.ACT] == ["C1", "C3"]
    (bad,) = [row for row in document.events if row.disposition is Disposition.REFUSED]
    assert (bad.id, bad.reason) == ("C2", "opModImpLimW has no multiplier")
    (part,) = document.refused
    assert (part.where, part.code) == ("DERControl 3", "ieee2030-control")


def test_a_notice_that_a_subscription_was_cancelled_is_read_by_its_control_alone() -> None:
    (row,) = parsed("cancelled_notice").events
    assert (row.id, row.reason) == ("30000000000000006A62CD2100000000", "cancelled by its server")


AGREED: list[tuple[Mapping[str, object], str, float | None]] = [
    ({}, "B1", None),
    # 7500 hundredths of a percent of 2 MW
    ({"limit_by": "opModMaxLimW", "rated_kw": 2000.0}, "B1", 1_500_000.0),
    # -4000 hundredths of a percent: to consume 40 % of 2 MW
    ({"limit_by": "opModFixedW", "rated_kw": 2000.0}, "B2", 800_000.0),
    ({}, "B3", None),
    ({"disconnects": True}, "B3", 0.0),
    ({"disconnects": True, "device_category": "00000200"}, "B3", 0.0),
    ({"disconnects": True, "device_category": "00004000"}, "B3", None),
]


@pytest.mark.parametrize(("settings", "name", "expected"), AGREED)
def test_the_standards_own_modes_act_only_as_agreed(
    settings: Mapping[str, object], name: str, expected: float | None
) -> None:
    row = next(row for row in parsed("modes", **settings).events if row.id == name)
    assert watts(row) == expected
    acts = Disposition.ADVISORY if expected is None else Disposition.ACT
    assert row.disposition is acts


def test_a_share_of_nothing_known_is_refused_with_the_settings() -> None:
    with pytest.raises(ValidationError, match="rated_kw"):
        ReadingSettings(limit_by="opModMaxLimW")


def test_a_default_control_has_no_end_and_a_neutral_one_asks_for_nothing() -> None:
    (row,) = parsed("default").events
    assert (row.end, watts(row), row.disposition) == (None, 50_000.0, Disposition.ACT)
    (row,) = parsed("default", neutral_kw=50.0).events
    assert (watts(row), row.disposition) == (None, Disposition.ADVISORY)


POWER = (
    '<DERControl xmlns="urn:ieee:std:2030.5:ns" xmlns:c="{space}"><mRID>0A1B</mRID>'
    "<creationTime>1796083100</creationTime><EventStatus><currentStatus>0</currentStatus>"
    "</EventStatus><interval><duration>900</duration><start>1796126400</start></interval>"
    "<DERControlBase>{base}</DERControlBase></DERControl>"
)
LIMIT = "<c:opModImpLimW><multiplier>{0}</multiplier><value>{1}</value></c:opModImpLimW>"


def one(base: str, space: str = "https://csipaus.org/ns", **settings: object) -> ParsedRow:
    body = POWER.format(base=base, space=space).encode()
    given = ReadingSettings.model_validate(settings)
    (row,) = parse_document(body, NOW, given).events
    return row


@pytest.mark.parametrize(
    ("multiplier", "value", "expected"),
    [
        ("0", "32767", 32_767.0),
        ("3", "1250", 1_250_000.0),
        ("-1", "125", 12.5),
        ("-3", "1", 0.001),
        ("0", "0", 0.0),
        (" 1 ", "\n7\n", 70.0),
    ],
)
def test_a_power_is_its_value_times_ten_to_its_multiplier(
    multiplier: str, value: str, expected: float
) -> None:
    assert watts(one(LIMIT.format(multiplier, value))) == expected


@pytest.mark.parametrize(
    ("multiplier", "value", "code"),
    [
        ("0", "32768", "int16"),
        ("0", "-32769", "int16"),
        ("10", "1", "multiplier"),
        ("9", "101", "100 GW"),
        ("0", "-5", "feed in"),
        ("0", "1.5", "whole number"),
        ("0", "1e3", "whole number"),
        ("0", "\u0661", "whole number"),
        ("0", "9" * 5000, "whole number"),
        ("0", "", "whole number"),
        ("", "5", "whole number"),
    ],
)
def test_a_power_that_is_none_is_refused(multiplier: str, value: str, code: str) -> None:
    row = one(LIMIT.format(multiplier, value))
    assert row.disposition is Disposition.REFUSED
    assert row.target is None
    assert code in {"int16", "multiplier"} or code in row.reason


def test_a_vocabulary_not_known_is_refused_and_not_passed_over() -> None:
    row = one(LIMIT.format("1", "5"), space="https://csipaus.org/ns/v9.0")
    assert row.disposition is Disposition.REFUSED
    assert "vocabulary" in row.reason


def test_a_load_takes_the_consuming_side_of_a_set_point_of_output() -> None:
    target = "<opModTargetW><multiplier>3</multiplier><value>{}</value></opModTargetW>"
    assert watts(one(target.format(-250), limit_by="opModTargetW")) == 250_000.0
    assert watts(one(target.format(0), limit_by="opModTargetW")) == 0.0
    refused = one(target.format(250), limit_by="opModTargetW")
    assert (refused.disposition, watts(refused)) == (Disposition.REFUSED, None)


def test_the_2023_edition_limits_what_is_absorbed() -> None:
    watts_of = (
        "<opModMaxLimWAbsorb><multiplier>1</multiplier><value>{}</value></opModMaxLimWAbsorb>"
    )
    assert watts(one(watts_of.format(65_535), limit_by="opModMaxLimWAbsorb")) == 655_350.0
    assert one(watts_of.format(-1)).disposition is Disposition.REFUSED  # it is unsigned
    share = "<DERControlBase_r2_3/><opModMaxLimPctWAbsorb>2500</opModMaxLimPctWAbsorb>"
    row = one(share, limit_by="opModMaxLimPctWAbsorb", rated_kw=400.0)
    assert (watts(row), row.value) == (100_000.0, 25.0)


def test_a_mode_that_is_disabled_asks_for_nothing() -> None:
    limit = LIMIT.format(1, 5).replace("<c:opModImpLimW>", '<c:opModImpLimW disabled="true">')
    row = one(limit)
    assert (row.disposition, row.target) == (Disposition.ACT, None)


def test_a_power_where_a_percentage_belongs_is_refused() -> None:
    base = "<opModMaxLimW><multiplier>0</multiplier><value>5000</value></opModMaxLimW>"
    row = one(base, limit_by="opModMaxLimW", rated_kw=100.0)
    assert row.disposition is Disposition.REFUSED


@pytest.mark.parametrize(
    "body",
    [
        b"<DeviceCapability xmlns='urn:ieee:std:2030.5:ns'/>",
        b"<DERControlList xmlns='http://zigbee.org/sep' all='0' results='0'/>",
        b"{}",
    ],
)
def test_a_document_of_something_else_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"neither|vocabulary|no XML"):
        parse_document(body, NOW, None)
