"""Public pages made wrong in every way a seed gives: nothing crashes, hangs, or acts by mistake."""

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mutate import MESSAGES, hang_guard, mutants

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError, Unavailable
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import Quantity, TargetSpec
from gridaware.feeds import FeedContext, check_settings, feed_kind, open_feed
from gridaware.feeds.ercot_peaks import read_history
from gridaware.feeds.kind import Disposition, ParsedRow
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.pages import Read

DATA = Path(__file__).parents[1] / "data" / "feeds"
COUNT = MESSAGES if MESSAGES > 2000 else MESSAGES // 8
"""Of each of four kinds and of histories: in `make test` a smaller slice than of one protocol."""
TARGET = {"reduce_percent": 40}
ASKED = TargetSpec(Quantity.REDUCTION_FRACTION, 0.4)


def rule(name: str, **when: object) -> dict[str, object]:
    return {"name": name, "when": when, "target": TARGET}


SETTINGS: Mapping[str, dict[str, Any]] = {
    "ercot": {
        "acts": [
            rule("eea", eea_level=2),
            rule("low", prc_below_mw=3000),
            rule("dear", price_above=1000),
        ]
    },
    "caiso": {
        "acts": [rule("flex", gridstatus=["Flex Alert"]), rule("low", reserve_below_mw=2500)]
    },
    "neso_dfs": {"acts": {"target": TARGET, "zone": 2}},
    "ercot_4cp": {"acts": {"target": TARGET}},
}
NOW = {
    "ercot": datetime(2026, 7, 30, 21, 0, 10, tzinfo=UTC),
    "caiso": datetime(2026, 9, 7, 0, 6, tzinfo=UTC),
    "neso_dfs": datetime(2026, 9, 8, 12, 0, tzinfo=UTC),
    "ercot_4cp": datetime(2026, 8, 10, 15, 3, tzinfo=UTC),
}


def plain(value: object) -> float:
    """A number as any of its shapes means it; NaN where it is none."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9][0-9,]*(\.[0-9]+)?\s*", value):
        return float(value.replace(",", ""))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e15 else math.nan
    return math.nan


def may_ercot(page: Any, row: ParsedRow) -> bool:
    if row.id == "eea":
        return plain(page["current_condition"]["eea_level"]) in {2.0, 3.0}
    if row.id == "low":
        return 0 < plain(page["current_condition"]["prc_value"]) < 3000
    return any(
        plain(each.get("hbHubAvg")) > 1000 for each in page["rtSppData"] if isinstance(each, dict)
    )


def may_caiso(page: Any, row: ParsedRow) -> bool:
    if row.id == "low":
        return 0 < plain(page["Current_reserve"]) < 2500
    return "flexalert" in re.sub(r"[^a-z0-9]", "", json.dumps(page["gridstatus"]).lower())


def may_neso(page: Any, row: ParsedRow) -> bool:
    day_ends = NOW["neso_dfs"].replace(hour=23)
    listed = [each for each in page["result"]["records"] if isinstance(each, dict)]
    live = [each for each in listed if str(each.get("Service Requirement Type")).lower().strip()]
    assert row.start is not None
    assert row.end is not None
    return (
        bool(live)
        and row.end - row.start <= timedelta(hours=12)
        and row.end > day_ends.replace(hour=12)
    )


def may_peak(page: Any, row: ParsedRow) -> bool:
    assert row.start is not None
    local = row.start - timedelta(hours=5)
    return local.hour == 15 and local.month in {6, 7, 8, 9} and "called" in row.reason


MAY: Mapping[str, Callable[[Any, ParsedRow], bool]] = {
    "ercot": may_ercot,
    "caiso": may_caiso,
    "neso_dfs": may_neso,
    "ercot_4cp": may_peak,
}


def good(kind: str) -> list[bytes]:
    found = [path.read_bytes() for path in sorted((DATA / kind).glob("*.json"))]
    if kind == "ercot_4cp":  # only as long as it must be to be judged
        page = json.loads(found[0])
        page["data"] = page["data"][9:21]
        page["forecast"] = page["forecast"][14:21]
        found = [json.dumps(page).encode()]
    return found


class Served:
    """The feed with a page that a test writes."""

    def __init__(self, kind: str) -> None:
        self.clock = ManualClock(NOW[kind])
        self.body = b""
        context = FeedContext("f", self.clock, NOW[kind], lambda *_: None, FeedMemory())
        settings = dict(SETTINGS[kind])
        if kind == "ercot":
            settings["frequency_page"] = None
        self.feed: Any = open_feed(
            FeedSpec("f", kind, "p", settings_json=json.dumps(settings)), context
        )
        self.feed._page = self
        self.feed._conditions = self.feed._prices = self

    def read(self, understand: Callable[[Read], Any]) -> Any:
        at, seconds = self.clock.wall(), self.clock.monotonic_seconds()
        try:
            return understand(Read(self.body, at, seconds, None))
        except (GridawareError, RecursionError, ArithmeticError) as error:
            raise Unavailable("page-garbled", str(error)) from None


def check(kind: str, body: bytes, served: Served, settings: Any) -> int:
    """Read a page as a person and as a feed do; how much of it acts."""
    served.body = body
    served.clock.advance(1)
    try:
        for signal in served.feed.poll():
            request = signal.request
            assert request is None or request.target == ASKED
            assert request is None or request.end is not None
    except Unavailable:
        pass
    reader: Any = feed_kind(kind)
    try:
        parsed = reader.parse(body, NOW[kind], settings)
    except GridawareError:
        return 0
    assert all(part.code and part.reason.isprintable() for part in parsed.refused)
    acting = [row for row in parsed.events if row.disposition is Disposition.ACT]
    page = json.loads(body.decode("utf-8-sig")) if acting else None
    for row in acting:
        assert row.target == ASKED
        assert MAY[kind](page, row), row
    for row in parsed.events:
        assert not isinstance(row.value, float) or math.isfinite(row.value)
        assert str(row.value).isprintable()
    return len(acting)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", list(SETTINGS))
def test_no_page_crashes_hangs_or_acts_without_being_what_may_act(kind: str) -> None:
    served, acted = Served(kind), 0
    settings = check_settings(kind, json.dumps(SETTINGS[kind]))
    for number, body in mutants(good(kind), COUNT):
        try:
            with hang_guard():
                acted += check(kind, body, served, settings) > 0
        except BaseException as error:
            error.add_note(f"message {number}: {body[:500]!r}")
            raise
    assert COUNT * 0.03 < acted < COUNT * 0.95, "the pages are too tame, or too wild"


@pytest.mark.timeout(3600)
def test_no_history_crashes_or_hangs() -> None:
    whole = (DATA / "ercot_4cp" / "history.csv").read_bytes().splitlines(keepends=True)
    read = 0
    for number, body in mutants([b"".join(whole[:6])], COUNT):
        code = ""
        try:
            with hang_guard():
                read += bool(read_history(body))
        except GridawareError as error:
            code = error.code
        assert code in {"", "history-row", "history-header"}, number
    assert COUNT * 0.05 < read < COUNT * 0.95
