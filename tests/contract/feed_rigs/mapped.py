"""An aggregator of our own making, whose map says what its fields mean."""

import hashlib
import hmac
import json

from feed_rigs.base import SECRET, Rig, Said
from gridaware.domain.errors import GridawareError
from gridaware.domain.signal import Signal
from gridaware.feeds.kind import Push

MAP = {
    "items": "events[]",
    "id": ["name"],
    "start": "from",
    "end": "until",
    "test": {"path": "mode", "values": ["test"]},
    "revision": "version",
    "target": {"path": "percent", "unit": "percent", "means": "reduce"},
    "priority": "rank",
    "auth": {"scheme": "hmac", "header": "x-signature", "prefix": "sha256="},
}


class MappedRig(Rig):
    kind = "mapped"
    is_pushed = True
    asks_for_anything = False

    def settings(self) -> dict[str, object]:
        return {"map": MAP, "secrets": ["env:CONTRACT_SECRET"], "rate_per_second": 1000}

    def say(self, *events: Said) -> None:
        for event in events:
            said = {
                "name": event.name,
                "version": event.revision,
                "from": "2026-11-30T08:10:00-06:00",
                "until": "2026-11-30T15:10:00Z",
                "percent": event.value,
                "rank": 2,
            }
            self.say_raw(json.dumps({"events": [said]}).encode())

    def say_raw(self, message: bytes) -> None:
        digits = hmac.new(SECRET, message, hashlib.sha256).hexdigest()
        headers = {"x-signature": f"sha256={digits}"}
        push = Push(headers, message, self.clock.wall(), self.clock.monotonic_seconds())
        try:
            self.signals.extend(self.running.feed.hook(push).signals)
        except GridawareError as error:
            self.running.refused(error, "")
        self.clock.advance(1)

    def heard(self) -> list[Signal]:
        return self.signals
