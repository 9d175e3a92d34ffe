"""Great Britain's half-hours of carbon intensity."""

import json
from typing import Any

from feed_rigs.pages import StubPage
from feed_rigs.price import THRESHOLDS, SeriesRig


class AimedPage(StubPage):
    """A page whose window moves with the time."""

    def aim(self, url: str) -> None:
        self.url = url


class CarbonRig(SeriesRig):
    kind = "carbon"

    def settings(self) -> dict[str, object]:
        return {"provider": "uk_carbon_intensity", "acts": THRESHOLDS}

    def page(self, word: str | None) -> bytes:
        data = [
            {"from": t, "to": e, "intensity": {"forecast": g, "actual": None, "index": "low"}}
            for t, e, g in self.rows(word, 30)
        ]
        return json.dumps({"data": data}).encode()

    def place(self, feed: Any, page: StubPage) -> None:
        feed._provider._page = AimedPage(page.body, self.clock)
