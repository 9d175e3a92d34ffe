"""Pages of a series: each threshold hears values of a height of its own."""

import json
from datetime import timedelta
from itertools import pairwise
from typing import Any

from feed_rigs.base import Said
from feed_rigs.pages import RULES, PageRig, StubPage
from gridaware.domain.signal import Signal

LOW, STEP = 50.0, 100.0
SPAN_MINUTES = 60
"""For so long a height lasts: as long as what has begun is held."""
THRESHOLDS = [
    {
        "name": name,
        "above": STEP * (n + 1) - 1,
        "hold_minutes": SPAN_MINUTES,
        "target": {"limit_kw": 10},
        "priority": 2,
    }
    for n, name in enumerate(RULES)
]


class SeriesRig(PageRig):
    """A height that one threshold hears is beyond those below it, too: they are not looked at."""

    said: frozenset[str] = frozenset()

    def rows(self, word: str | None, minutes: int) -> list[tuple[str, str, float]]:
        now = self.clock.wall()
        begin = now.replace(minute=now.minute - now.minute % minutes, second=0, microsecond=0)
        height = LOW if word is None else STEP * (RULES.index(word) + 1)
        times = [begin + timedelta(minutes=minutes * n) for n in range(6)]
        high = SPAN_MINUTES // minutes
        return [
            (f"{at:%Y-%m-%dT%H:%MZ}", f"{after:%Y-%m-%dT%H:%MZ}", height if n < high else LOW)
            for n, (at, after) in enumerate(pairwise(times))
        ]

    def say(self, *events: Said) -> None:
        self.said |= {event.name for event in events}
        super().say(*events)

    def heard(self) -> list[Signal]:
        return [s for s in super().heard() if s.source_id.rsplit("-2026", 1)[0] in self.said]


class PriceRig(SeriesRig):
    kind = "price"

    def settings(self) -> dict[str, object]:
        columns = {"start": "t", "end": "e", "value": "p"}
        source = {"url": "https://prices.example/now", "columns": columns}
        return {"currency": "USD", "source": source, "acts": THRESHOLDS}

    def page(self, word: str | None) -> bytes:
        rows = self.rows(word, 15)
        return json.dumps([{"t": t, "e": e, "p": p} for t, e, p in rows]).encode()

    def place(self, feed: Any, page: StubPage) -> None:
        feed._page = page
