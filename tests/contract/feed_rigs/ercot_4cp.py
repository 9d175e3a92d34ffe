"""ERCOT's load forecast: what is said is a day called, after the one before was taken back."""

import json
from datetime import timedelta
from typing import Any

from feed_rigs.base import Said
from feed_rigs.pages import PageRig, StubPage
from gridaware.domain.signal import Signal
from gridaware.feeds.runner import RunningFeed


class Ercot4cpRig(PageRig):
    kind = "ercot_4cp"
    begins_at_once = False

    def settings(self) -> dict[str, object]:
        window = {"start": "08:10", "end": "09:10", "target": {"limit_kw": 10}, "priority": 2}
        return {"months": [11, 12], "acts": window}

    def page(self, word: str | None) -> bytes:
        """A day that is called where there is a word; the day after it is the month's peak else."""
        now = self.clock.wall()
        begin = now.replace(hour=6, minute=0, second=0) - timedelta(days=1)  # 00:00 in Texas
        rows = []
        for hour in range(72):
            at = begin + timedelta(hours=hour)
            megawatts = 70_000 if (hour // 24 == 1) is (word is not None) else 50_000
            row = {"epoch": int(at.timestamp() * 1000), "demand": megawatts, "forecast": 1}
            rows.append(row | {"forecast": int(at > now)})
        stamp = now - timedelta(hours=6)
        return json.dumps(
            {"lastUpdated": f"{stamp:%Y-%m-%d %H:%M:%S}-0600", "data": rows, "forecast": []}
        ).encode()

    def place(self, feed: Any, page: StubPage) -> None:
        feed._page = page

    def open(self) -> RunningFeed:
        self.names: dict[str, str] = {}
        self.last: Said | None = None
        return super().open()

    def name_of(self, signal: Signal) -> str:
        return self.names[signal.source_id]

    def say(self, *events: Said) -> None:
        for event in events:
            if self.last not in (None, event):
                self.word = None
                self.running.poll_once(lambda _: None)
            self.last, self.word = event, event.name
            self.running.poll_once(self.signals.append)
            self.names[self.signals[-1].source_id] = event.name
