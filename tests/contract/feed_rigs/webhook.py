"""A sender of signed event requests."""

import json

from feed_rigs.base import SECRET, Rig, Said
from gridaware.domain.errors import GridawareError
from gridaware.feeds.kind import Push
from gridaware.sim.grid import signed_headers


class WebhookRig(Rig):
    kind = "webhook"
    is_pushed = True

    def settings(self) -> dict[str, object]:
        return {"secrets": ["env:CONTRACT_SECRET"], "rate_per_second": 1000}

    def say(self, *events: Said) -> None:
        for event in events:
            self.say_raw(json.dumps(event.body()).encode())

    def say_raw(self, message: bytes) -> None:
        headers = {k.lower(): v for k, v in signed_headers(SECRET, message, self.clock).items()}
        push = Push(headers, message, self.clock.wall(), self.clock.monotonic_seconds())
        try:
            self.signals.append(self.running.feed.hear(push))
        except GridawareError as error:
            self.running.refused(error, "")
        self.clock.advance(1)  # the next one has another timestamp
