"""A whole site answers the frequency: nobody calls, agents fire, control makes an event of it."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import yaml

from gridaware.client import Client
from gridaware.clock import SystemClock
from gridaware.sim.cluster import SiteOptions, VirtualSite
from gridaware.sim.frequency import DatagramMeter
from gridaware.sim.window import GpuSlot, Window
from gridaware.sim.workloads import keep_busy

CLOCK = SystemClock()
DEPTH = 0.25
POLICY = {
    "name": "everybody",
    "description": "Every GPU gives its share.",
    "strategy": "proportional",
    "unmanaged_tier": "preemptible",
}
SETTINGS = {
    "site": {
        "overhead": {"fixed_watts": 130.0, "slope": 1.13},
        "reference_window_seconds": 10,
        "settle_after_seconds": 2,
    },
    "control": {"policy": "everybody", "policy_dir": "policies"},
    "programmes": [
        {"id": "demand-response"},
        {
            "id": "reserve",
            "deadline_seconds": 0.25,
            "settlement_interval_seconds": 5,
            "armed_depths": [0.1, DEPTH],
            "frequency": {"rule": "ercot-ffr"},
        },
    ],
}


class Grid:
    """Shows every agent the same frequency, which moves at 1 Hz/s to where it is told."""

    def __init__(self, meter: DatagramMeter) -> None:
        self.hz = 60.0
        self._meter = meter
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        shown = self.hz
        while not self._over.wait(0.02):
            shown += min(max(self.hz - shown, -0.02), 0.02)
            self._meter.show(shown)

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._meter.close()


def _until(true: Callable[[], object], seconds: float) -> None:
    ends = CLOCK.monotonic_seconds() + seconds
    while not true():
        assert CLOCK.monotonic_seconds() < ends, "it did not come to that"
        time.sleep(0.05)


def _load(window: Window, nodes: int) -> None:
    """Let this process keep work queued on every GPU, for good."""
    for node in range(nodes):
        for gpu in window.gpus_of(node):
            keep_busy(gpu, "bert")


@pytest.fixture
def site() -> Iterator[VirtualSite]:
    made = VirtualSite(
        SiteOptions(gpus_per_node=4, gpu="v100-250", settings=SETTINGS, frequency_meters=True)
    )
    try:
        made.start_plant()
        made.configure()
        policies = made.settings_file.parent / "policies"
        policies.mkdir()
        (policies / "everybody.yaml").write_text(yaml.safe_dump(POLICY))
        serve = made.start_serve_soon()
        made.wait_for_api(serve)
        made.start_agents()
        yield made
    finally:
        made.end()


def _slots(site: VirtualSite, window: Window) -> list[GpuSlot]:
    return [slot for n in range(len(site.nodes)) for slot in window.gpus_of(n)]


def _armed(client: Client) -> bool:
    """Both levels of the reserve on both nodes, by what the jobs draw now."""
    nodes = client.nodes()
    return len(nodes) == 2 and all(node["armed_responses"] == 2 for node in nodes)


@pytest.mark.slow
def test_a_crossing_becomes_an_event_that_is_held_given_back_and_settled(site) -> None:
    client, window = Client(site.web_url, site.api_key), site.window()
    grid = Grid(DatagramMeter([site.meter_place(n) for n in range(2)]))
    try:
        _load(window, 2)
        _until(lambda: _armed(client), 30)
        time.sleep(12.0)  # the reference window, and caps by what is drawn now
        before = window.header.true_site_watts
        grid.hz = 59.8
        _until(lambda: window.header.true_site_watts <= (1 - DEPTH) * before, 3)
        _until(lambda: client.events(), 5)
        highest = 0.0
        for _ in range(100):
            highest = max(highest, window.header.true_site_watts)
            time.sleep(0.05)
        assert highest <= (1 - DEPTH) * before * 1.01
        grid.hz = 60.0
        slots = _slots(site, window)
        _until(lambda: all(s.requested_watts == s.default_watts for s in slots), 15)
        _until(lambda: client.events()[0]["state"] == "settled", 20)
        (event,) = client.events()
        assert event["programme_id"] == "reserve"
        assert event["request"]["target"] == {"quantity": "reduction_fraction", "value": DEPTH}
        assert event["unresolved_watts"] == 0.0
    finally:
        grid.end()
