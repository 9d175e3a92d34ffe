"""ERCOT's grid conditions: each rule hears one word of the state."""

import json
from typing import Any

from feed_rigs.pages import RULES, PageRig, StubPage
from gridaware.sim.grid.pages import ercot_prc


class ErcotRig(PageRig):
    kind = "ercot"

    def settings(self) -> dict[str, object]:
        rules = [
            {"name": name, "when": {"states": [name]}, "target": {"limit_kw": 10}, "priority": 2}
            for name in RULES
        ]
        return {"acts": rules, "price_point": None, "frequency_page": None}

    def page(self, word: str | None) -> bytes:
        page = ercot_prc(self.clock.wall(), prc_megawatts=9000, state=word or "normal")
        return json.dumps(page).encode()

    def place(self, feed: Any, page: StubPage) -> None:
        feed._conditions = page
