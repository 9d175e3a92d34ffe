"""Reading messages of DSX Flex 1.7.0 against its schema: what is required, and what is refused."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError
from gridaware.domain.fixes import FIXES
from gridaware.domain.signal import Quantity, TargetSpec
from gridaware.feeds.dsx.informing import advisory_of
from gridaware.feeds.dsx.messages import read_event, read_targets
from gridaware.feeds.dsx.parsing import parse_message
from gridaware.feeds.dsx.settings import DsxSettings
from gridaware.feeds.kind import Disposition
from gridaware.sim.grid.dsx import Isv, load_target

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
DATA = Path(__file__).parents[3] / "data" / "feeds" / "dsx"
ISV = Isv("acme-energy", ManualClock(NOW))


def read(body: bytes) -> None:
    event = read_event(body)
    assert isinstance(event.data, dict)
    read_targets(event.data)


def code_of(body: bytes) -> str:
    with pytest.raises(GridawareError) as caught:
        read(body)
    assert caught.value.code in FIXES
    return caught.value.code


@pytest.mark.parametrize(
    ("otherwise", "code"),
    [
        ({"specversion": "0.3"}, "dsx-attribute"),
        ({"specversion": None}, "dsx-attribute"),
        ({"id": "dr-1"}, "dsx-attribute"),
        ({"id": None}, "dsx-attribute"),
        ({"source": "acme"}, "dsx-attribute"),
        ({"source": "//grid/v1/utility/acme"}, "dsx-attribute"),
        ({"source": "//grid/v1/isv/acme/x"}, "dsx-attribute"),
        ({"type": None}, "dsx-attribute"),
        ({"type": "grid.loadtarget.set.v2"}, "dsx-type"),
        ({"time": None}, "time-type"),
        ({"time": "2026-12-01T12:00:00"}, "time-naive"),
        ({"datacontenttype": "text/plain"}, "dsx-attribute"),
        ({"subject": None}, "dsx-attribute"),
        ({"correlationid": "x"}, "dsx-attribute"),
        ({"traceparent": None}, "dsx-traceparent"),
        ({"traceparent": "00-" + "0" * 32 + "-b7ad6b7169203331-01"}, "dsx-traceparent"),
        ({"traceparent": "ff-" + "1" * 32 + "-b7ad6b7169203331-01"}, "dsx-traceparent"),
        ({"traceparent": "00-" + "A" * 32 + "-b7ad6b7169203331-01"}, "dsx-traceparent"),
        ({"tracestate": "x" * 513}, "dsx-attribute"),
        ({"data": None, "data_base64": "e30="}, "dsx-attribute"),
        ({"data": []}, "dsx-attribute"),
    ],
)
def test_an_envelope_that_is_not_the_schemas_is_refused(
    otherwise: dict[str, Any], code: str
) -> None:
    assert code_of(ISV.message([load_target(6)], **{"data": {}, **otherwise})) == code


def test_what_libraries_of_cloudevents_write_is_taken_too() -> None:
    body = ISV.message([load_target(6)], specversion="1.0", anextension="x", correlationid=None)
    event = read_event(body)
    assert (event.correlation_id, event.subject) == (None, "loadtarget")
    assert event.time == NOW


def test_targets_are_read_with_their_units_and_defaults() -> None:
    full, least, back = read_targets(
        {
            "targets": [
                load_target(
                    6, "megawatt", start="2026-12-01T06:00:00-06:00",
                    end="2026-12-01T13:00:00Z", tags=["main-a"], best_effort=True,
                ),
                load_target(250, "watt"),
                load_target(None, tags=[]),
            ]
        }
    )  # fmt: skip
    assert (full.start, full.end) == (NOW, NOW + timedelta(hours=1))
    assert (full.watts, full.value, full.unit) == (6e6, 6.0, "megawatt")
    assert (full.tags, full.best_effort) == (("main-a",), True)
    assert (least.start, least.end, least.watts, least.tags) == (None, None, 250.0, ())
    assert least.best_effort is False
    assert (back.watts, back.tags) == (None, ())


def changed(**otherwise: object) -> dict[str, object]:
    return {**load_target(6), **otherwise}


@pytest.mark.parametrize(
    ("targets", "code"),
    [
        ([], "dsx-targets"),
        ({}, "dsx-targets"),
        (None, "dsx-targets"),
        ([load_target(1)] * 301, "dsx-targets"),
        ([1], "dsx-target-malformed"),
        ([{"interval": {}}], "dsx-target-malformed"),
        ([{"load_constraint": None}], "dsx-target-malformed"),
        ([changed(load_constraint=6)], "dsx-target-malformed"),
        ([changed(load_constraint={"value": 6})], "dsx-target-unit"),
        ([changed(load_constraint={"value": 6, "unit": "MW"})], "dsx-target-unit"),
        ([changed(load_constraint={"value": 6, "unit": ["watt"]})], "dsx-target-unit"),
        ([changed(load_constraint={"value": "6", "unit": "watt"})], "dsx-target-value"),
        ([changed(load_constraint={"value": True, "unit": "watt"})], "dsx-target-value"),
        ([changed(load_constraint={"value": 0, "unit": "watt"})], "dsx-target-value"),
        ([changed(load_constraint={"value": -1, "unit": "watt"})], "dsx-target-value"),
        ([changed(load_constraint={"value": 1e6, "unit": "megawatt"})], "dsx-target-value"),
        ([changed(load_constraint={"value": 10**400, "unit": "watt"})], "dsx-target-value"),
        ([changed(load_constraint={"value": 6, "units": "watt"})], "dsx-target-key-unknown"),
        ([changed(interval=None)], "dsx-target-malformed"),
        ([changed(interval={"start": "x"})], "dsx-target-key-unknown"),
        ([changed(interval={"end_time": 1})], "time-type"),
        ([load_target(6, end="2026-12-01T12:00:00")], "time-naive"),
        (
            [load_target(6, start="2026-12-01T12:00:00Z", end="2026-12-01T12:00:00Z")],
            "end-before-start",
        ),
        ([changed(feed_tags="main-a")], "dsx-target-malformed"),
        ([changed(feed_tags=[1])], "dsx-target-malformed"),
        ([changed(feed_tags=["x"] * 65)], "dsx-target-malformed"),
        ([changed(strategy={"best_effort": "yes"})], "dsx-target-malformed"),
        ([changed(feedtags=["main-a"])], "dsx-target-key-unknown"),
        ([load_target(6), changed(load_constraint=6)], "dsx-target-malformed"),
    ],
)
def test_one_target_that_is_none_refuses_the_whole_statement(targets: object, code: str) -> None:
    assert code_of(ISV.message([], data={"targets": targets})) == code


def rows(name: str, settings: DsxSettings | None = None) -> Any:
    return parse_message((DATA / f"{name}.json").read_bytes(), NOW, settings)


def test_a_file_of_targets_is_shown_target_by_target() -> None:
    parsed = rows("set_signed")
    assert parsed.refused == ()
    assert [(r.id, r.value, r.disposition) for r in parsed.events] == [
        ("7d0e2f4c-3f0b-4f52-9a3a-1f5a0a2b9c11.0", 20e6, Disposition.ACT),
        ("7d0e2f4c-3f0b-4f52-9a3a-1f5a0a2b9c11.1", None, Disposition.ACT),
        ("7d0e2f4c-3f0b-4f52-9a3a-1f5a0a2b9c11.2", 5e6, Disposition.REFUSED),
    ]
    first = parsed.events[0]
    assert (first.start, first.end) == (NOW + timedelta(hours=2), NOW + timedelta(hours=4))
    assert first.target == TargetSpec(Quantity.LIMIT_WATTS, 20e6)
    assert "not checked" in first.reason


def test_with_the_feeds_settings_the_signature_the_source_and_the_tags_are_checked(
    tmp_path: Path,
) -> None:
    key = tmp_path / "isv.pem"
    key.write_text((DATA / "isv_public.pem").read_text())
    key.chmod(0o600)
    given: dict[str, Any] = {
        "url": "mqtt://127.0.0.1:1",
        "isv_id": "acme-energy",
        "agent_id": "site-7",
        "feeds": {"other": {"default_kw": 6000.0}},
        "keys": {"acme-2026": f"file:{key}"},
    }
    parsed = rows("set_signed", DsxSettings(**given))
    assert [r.disposition for r in parsed.events] == [
        Disposition.ADVISORY, Disposition.ACT, Disposition.REFUSED,
    ]  # fmt: skip
    assert "not checked" not in parsed.events[1].reason
    for changed_settings, code in (
        ({"isv_id": "somebody"}, "dsx-source"),
        ({"keys": {"another": f"file:{key}"}}, "jws-key-unknown"),
        ({"oldest_hours": 0.01}, "dsx-stale"),
    ):
        parsed = rows("set_signed", DsxSettings(**{**given, **changed_settings}))
        assert [part.code for part in parsed.refused] == [code]
    assert [part.code for part in rows("set_plain", DsxSettings(**given)).refused] == [
        "dsx-unsigned"
    ]


def test_alerts_and_enforcement_inform_and_ask_for_nothing() -> None:
    (alert,) = rows("breach_alert").events
    (enforced,) = rows("breach_enforcement").events
    (status,) = rows("power_state").events
    assert {alert.disposition, enforced.disposition, status.disposition} == {Disposition.ADVISORY}
    assert alert.value == 24e6
    assert alert.reason == "main-a: active, critical; 24000 kW against 20000 kW"
    assert enforced.reason == "main-a: applied, partial; 2 resources; one BMC unreachable"


@pytest.mark.parametrize("missing", ["breach", "feed_tag", "measured_load", "target", "status"])
def test_an_alert_that_lacks_something_is_refused(missing: str) -> None:
    body = json.loads((DATA / "breach_alert.json").read_bytes())
    del body["data"][missing]
    with pytest.raises(GridawareError) as caught:
        advisory_of(body["type"], body["data"], "grid", NOW)
    assert caught.value.code == "dsx-inform-malformed"
