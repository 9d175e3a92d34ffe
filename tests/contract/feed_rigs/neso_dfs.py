"""NESO's data portal: what is said is one more row of the table of requirements."""

import json
from typing import Any

from feed_rigs.base import Said
from feed_rigs.pages import PageRig, StubPage
from gridaware.domain.signal import Signal


class NesoDfsRig(PageRig):
    kind = "neso_dfs"
    begins_at_once = False
    is_pushed = False
    rows: tuple[dict[str, Any], ...] = ()

    def settings(self) -> dict[str, object]:
        return {"acts": {"target": {"limit_kw": 10}, "priority": 2}}

    def page(self, word: str | None) -> bytes:
        return json.dumps({"success": True, "result": {"records": self.rows}}).encode()

    def place(self, feed: Any, page: StubPage) -> None:
        feed._page = page

    def name_of(self, signal: Signal) -> str:
        return signal.source_id.removeprefix("dfs.")

    def say(self, *events: Said) -> None:
        for event in events:
            row = {
                "Event ID": event.name,
                "Delivery Date": "2026-11-30",
                "From_Local": "14:10",
                "To_Local": "15:10",
                "Service Requirement MW": 500,
                "Service Requirement Type": "Live",
            }
            self.rows = (row, *self.rows)
            self.running.poll_once(self.signals.append)
