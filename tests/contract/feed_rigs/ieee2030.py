"""A 2030.5 server on this machine, and import limits; TLS has tests of its own."""

import re
import weakref
from pathlib import Path

from feed_rigs.base import NOW, Rig, Said
from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.feeds.ieee2030.identity import lfdi_of_file
from gridaware.feeds.kind import Push
from gridaware.sim.grid.der_server import DerServer
from gridaware.wiring.identity import issue, make_ca


class Ieee2030Rig(Rig):
    kind = "ieee2030"
    meant = TargetSpec(Quantity.LIMIT_WATTS, 100e3)
    asks_for_anything = False
    numbers_revisions = False
    orders_words = True
    tells_unasked = True

    def __init__(self, clock: ManualClock, folder: Path) -> None:
        make_ca(folder, clock)
        self.device = issue(folder, "device", clock)
        self.server = DerServer(clock=clock)
        weakref.finalize(self, self.server.close)
        self.server.add_device(lfdi_of_file(str(self.device.certificate)))
        self.program = self.server.add_program()
        self.mrids: dict[str, str] = {}
        super().__init__(clock, folder)

    def settings(self) -> dict[str, object]:
        return {
            "server_url": self.server.url,
            "certificate_file": str(self.device.certificate),
            "key_file": str(self.device.key),
            "callback_url": "https://site.invalid/api/v1/signals/grid",
        }

    def name_of(self, signal: Signal) -> str:
        found = re.search("<description>(.*?)</description>", signal.raw)
        return found.group(1) if found else ""

    def say(self, *events: Said) -> None:
        for event in events:
            mrid = self.mrids.setdefault(event.name, f"A{len(self.mrids)}")
            start = int(NOW.timestamp()) + 600
            self.server.add_control(
                self.program, mrid, start=start, watts=100_000.0, created=start - 900,
                description=event.name,
            )  # fmt: skip

    def say_older(self, event: Said) -> None:
        start = int(NOW.timestamp()) + 600
        self.server.add_control(
            self.program, "B0", start=start, watts=50_000.0, created=start - 1800,
            description=event.name,
        )  # fmt: skip

    def say_raw(self, message: bytes) -> None:
        query = {"token": str(self.running.memory.get("callback"))}
        push = Push({}, message, self.clock.wall(), self.clock.monotonic_seconds(), query=query)
        try:
            self.running.feed.hook(push)
        except GridawareError as error:
            self.running.refused(error, "")
