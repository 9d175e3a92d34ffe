"""CAISO's page: each rule hears one word of the state."""

import json
from typing import Any
from zoneinfo import ZoneInfo

from feed_rigs.pages import RULES, PageRig, StubPage


class CaisoRig(PageRig):
    kind = "caiso"

    def settings(self) -> dict[str, object]:
        rules = [
            {"name": n, "when": {"gridstatus": [n]}, "target": {"limit_kw": 10}, "priority": 2}
            for n in RULES
        ]
        return {"acts": rules}

    def page(self, word: str | None) -> bytes:
        at = self.clock.wall().astimezone(ZoneInfo("America/Los_Angeles"))
        said = {"slotDate": f"{at:%Y-%m-%d %H:%M:%S}", "gridstatus": [word or "Normal"]}
        return json.dumps(said).encode()

    def place(self, feed: Any, page: StubPage) -> None:
        feed._page = page
