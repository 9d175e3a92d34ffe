"""Prices and carbon intensities made wrong in every way a seed gives."""

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mutate import MESSAGES, hang_guard, mutants

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError, Unavailable
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.feeds import FeedContext, check_settings, feed_kind, open_feed
from gridaware.feeds.kind import Disposition, Parsed
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.pages import Read

DATA = Path(__file__).parents[1] / "data" / "feeds"
COUNT = MESSAGES if MESSAGES > 2000 else MESSAGES // 4
NOW = datetime(2026, 7, 30, 12, tzinfo=UTC)
ABOVE = {"name": "much", "above": 200, "target": {"reduce_percent": 40}}
ASKED = TargetSpec(Quantity.REDUCTION_FRACTION, 0.4)
ROWS = {"rows": "data", "start": "start_timestamp", "end": "end_timestamp", "value": "marketprice"}
BESIDE = {"start": "unix_seconds", "value": "price", "minutes": 15}
CSV = {"format": "csv", "start": "time", "value": "price", "timezone": "Europe/Berlin"}


def price(**columns: object) -> dict[str, object]:
    source = {"url": "https://prices.example", "columns": columns}
    return {"currency": "EUR", "source": source, "acts": [ABOVE]}


KINDS = {
    "rows": ("price", "price/rows.json", price(**ROWS)),
    "beside": ("price", "price/beside.json", price(**BESIDE)),
    "csv": ("price", "price/hourly.csv", price(**CSV)),
    "carbon": ("carbon", "carbon/*.json", None),
}


def is_sound(parsed: Parsed) -> bool:
    """Whether what acts is a stretch of values above the threshold, said a second time.

    Where nothing is asked for twice, each hour that acts is covered by shown values above it.
    """
    points = [
        row
        for row in parsed.events
        if row.disposition is Disposition.ADVISORY and row.start and row.end
    ]
    for row in points:
        assert isinstance(row.value, float)
        assert math.isfinite(row.value)
    for row in parsed.events:
        if row.disposition is not Disposition.ACT:
            continue
        assert row.target == ASKED
        assert row.start is not None
        assert row.end is not None
        assert row.start < row.end
        inside = [p for p in points if p.start and p.end and row.start <= p.start < row.end]
        assert all(isinstance(p.value, float) and p.value > 200 for p in inside)
        covered = sum(((p.end - p.start) for p in inside if p.end and p.start), timedelta())
        assert covered == row.end - row.start or len(points) >= 1000
    return True


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_series_made_wrong_crashes_nothing_and_acts_only_above_its_threshold(name: str) -> None:
    kind, pattern, given = KINDS[name]
    settings = None if given is None else check_settings(kind, json.dumps(given))
    good = [path.read_bytes() for path in sorted(DATA.glob(pattern))]
    read = 0
    for number, body in mutants(good, COUNT):
        try:
            with hang_guard():
                read += is_sound(feed_kind(kind).parse(body, NOW, settings))  # type: ignore[attr-defined]
        except GridawareError:
            continue
        except BaseException as error:
            error.add_note(f"message {number}: {body[:500]!r}")
            raise
    assert read > COUNT // 20


class Served:
    """A feed of a page that a test writes, and what control would hold of it."""

    def __init__(self, kind: str, settings: dict[str, object]) -> None:
        self.clock = ManualClock(NOW)
        self.body = b""
        context = FeedContext("f", self.clock, NOW, lambda *_: None, FeedMemory())
        spec = FeedSpec("f", kind, "p", settings_json=json.dumps(settings))
        self.feed: Any = open_feed(spec, context)
        (self.feed._provider if kind == "carbon" else self.feed)._page = self
        self.standing: dict[str, Signal] = {}
        self.closed: set[str] = set()

    def aim(self, url: str) -> None:
        """The page stays where it is."""

    def read(self, understand: Callable[[Read], Any]) -> Any:
        read = Read(self.body, self.clock.wall(), self.clock.monotonic_seconds(), None)
        try:
            return understand(read)
        except (GridawareError, RecursionError, ArithmeticError) as error:
            raise Unavailable("page-garbled", str(error)) from None

    def poll(self) -> list[Signal]:
        """What acts now is taken back by the poll."""
        try:
            signals = list(self.feed.poll())
        except Unavailable:
            return []
        now, taken = self.clock.wall(), []
        for signal in signals:
            before = self.standing.get(signal.source_id)
            assert before is None or signal.revision >= before.revision
            if signal.request is None:
                if before is not None and before.request and before.request.start <= now:
                    taken.append(before)
                self.standing.pop(signal.source_id, None)
                self.closed.add(signal.source_id)
                continue
            assert signal.source_id not in self.closed
            assert signal.request.target == ASKED
            assert signal.request.end is not None
            self.standing[signal.source_id] = signal
        return taken

    def acts(self) -> bool:
        now = self.clock.wall()
        requests = [s.request for s in self.standing.values() if s.request is not None]
        return any(r.start <= now and (r.end is None or now < r.end) for r in requests)


POLLED: dict[str, tuple[str, dict[str, object]]] = {
    "price": ("price/rows.json", {**price(**ROWS), "acts": [ABOVE]}),
    "carbon": (
        "carbon/uk_intensity.json",
        {"provider": "uk_carbon_intensity", "acts": [{**ABOVE, "above": 185}]},
    ),
}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", sorted(POLLED))
def test_a_series_made_wrong_releases_nothing_that_it_does_not_show_to_be_over(kind: str) -> None:
    """Each message is polled in turn as time goes on; nothing comes back under a closed name."""
    name, given = POLLED[kind]
    body = (DATA / name).read_bytes()
    low = re.sub(rb"\b2[0-9][0-9]\b", b"170", body.replace(b"1,250.40", b"170"))
    reader: Any = feed_kind(kind)
    settings = check_settings(kind, json.dumps(given))
    served, released, acted = Served(kind, given), 0, 0
    for number, served.body in mutants([body, low], COUNT):
        if number % 40 == 0:
            served = Served(kind, given)
            served.body = body
            served.poll()
            served.clock.advance(3600)
            continue
        served.clock.advance(120)
        now = served.clock.wall()
        try:
            with hang_guard():
                taken = served.poll()
            acted += served.acts()
            if taken and not served.acts():
                released += 1
                shown = reader.parse(served.body, now, settings).events
                present = [
                    row.value
                    for row in shown
                    if row.disposition is Disposition.ADVISORY
                    and row.start
                    and row.end
                    and row.start <= now < row.end
                ]
                assert present
                assert all(value <= given["acts"][0]["above"] for value in present)  # type: ignore[index]
        except BaseException as error:
            error.add_note(f"message {number}: {served.body[:500]!r}")
            raise
    assert acted > COUNT // 20
    assert released > COUNT // 100
