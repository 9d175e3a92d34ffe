"""A test VTN, and the levels of SIMPLE."""

import json
import weakref
from pathlib import Path

from feed_rigs.base import SECRET, Rig, Said
from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.feeds.kind import Push
from gridaware.sim.grid.vtn3 import Vtn


class OpenAdr3Rig(Rig):
    kind = "openadr3"
    meant = TargetSpec(Quantity.REDUCTION_FRACTION, 0.25)  # the second level
    asks_for_anything = False
    numbers_revisions = False

    def __init__(self, clock: ManualClock, folder: Path) -> None:
        self.vtn = Vtn(clients={"ven-client": SECRET.decode()}, clock=clock)
        weakref.finalize(self, self.vtn.close)
        self.program = self.vtn.add_program("dr")
        self.ids: dict[str, str] = {}
        super().__init__(clock, folder)

    def settings(self) -> dict[str, object]:
        return {
            "vtn_url": self.vtn.url,
            "client_id": "ven-client",
            "client_secret": "env:CONTRACT_SECRET",
            "callback_url": "https://site.invalid/api/v1/signals/grid",
        }

    def name_of(self, signal: Signal) -> str:
        return str(json.loads(signal.raw)["eventName"])

    def say(self, *events: Said) -> None:
        for event in events:
            body = {
                "eventName": event.name,
                "priority": 2,
                "intervalPeriod": {"start": "2026-11-30T08:10:00-06:00", "duration": "PT1H"},
                "intervals": [{"id": 0, "payloads": [{"type": "SIMPLE", "values": [2]}]}],
            }
            if event.name in self.ids:
                self.vtn.change_event(self.ids[event.name], body)
            else:
                self.ids[event.name] = self.vtn.add_event(self.program, body)["id"]

    def say_raw(self, message: bytes) -> None:
        bearer = self.running.memory.get("bearer")
        headers = {"authorization": f"Bearer {bearer}"}
        push = Push(headers, message, self.clock.wall(), self.clock.monotonic_seconds())
        try:
            self.running.feed.hook(push)
        except GridawareError as error:
            self.running.refused(error, "")
