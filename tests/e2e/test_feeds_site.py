"""Feeds on a whole site: what a VTN or a control centre says moves watts, and is told there."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gridaware.sim.grid.dnp3_master import Dnp3Master
from gridaware.sim.grid.vtn3 import Vtn

CLIENT, SECRET = "ven-client", "a-secret-of-the-ven"
FOR_EVER = {"start": "0001-01-01T00:00:00", "duration": "P9999Y"}
CANCELLED = {"start": "0001-01-01", "duration": "PT0S"}
DESCRIPTORS = [
    {"payloadType": "USAGE", "units": "KWH", "frequency": 1, "repeat": -1},
    {"payloadType": "OPERATING_STATE", "frequency": 1, "repeat": -1},
]


def event(level: int, period: dict[str, str]) -> dict[str, Any]:
    interval = {"id": 0, "payloads": [{"type": "SIMPLE", "values": [level]}]}
    return {"intervalPeriod": period, "intervals": [interval], "reportDescriptors": DESCRIPTORS}


@pytest.fixture
def vtn() -> Iterator[Vtn]:
    with Vtn(clients={CLIENT: SECRET}) as made:
        yield made


@pytest.fixture
def openadr(bare_site, vtn: Vtn) -> Iterator[str]:
    """A feed of that server, woken by its webhook; the poll alone would come too late."""
    secret = bare_site.virtual.home / "vtn-secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    hook = bare_site.virtual.signals_url.rpartition("/")[0] + "/vtn"
    bare_site.client.register_feed(
        "vtn",
        kind="openadr3",
        programme="demand-response",
        settings={
            "vtn_url": vtn.url,
            "client_id": CLIENT,
            "client_secret": f"file:{secret}",
            "callback_url": hook,
            "poll_seconds": 30.0,
            "report_seconds": 2.0,
            "levels": {"1": {"reduce_percent": 10}, "2": {"reduce_percent": 20}},
        },
    )
    bare_site.until(lambda: vtn.kept("subscriptions"), "our subscription", 10)
    yield "vtn"
    bare_site.client.remove_feed("vtn")


def test_do_it_now_for_ever_moves_watts_is_reported_back_and_ends_when_it_is_cancelled(
    bare_site, vtn: Vtn, openadr: str
) -> None:
    site, program = bare_site, vtn.add_program("dr")
    before = site.window.header.true_site_watts
    said = vtn.add_event(program, event(2, FOR_EVER))

    def ours() -> dict[str, Any] | None:
        return next((e for e in site.client.events() if e["feed_id"] == openadr), None)

    heard = site.until(ours, "the event", 10)
    limit = site.until(lambda: site.client.event(heard["event_id"])["limit_watts"], "a limit", 5)
    assert limit == pytest.approx(0.8 * before, rel=0.03)
    site.until(lambda: site.window.header.true_site_watts <= limit, "watts below the limit", 5)
    assert heard["request"]["end"] is None

    def reported(kind: str) -> list[Any]:
        payloads = [
            payload
            for report in vtn.reports
            for resource in report["resources"]
            for interval in resource["intervals"]
            for payload in interval["payloads"]
        ]
        return [payload["values"][0] for payload in payloads if payload["type"] == kind]

    site.until(lambda: reported("USAGE"), "a report of energy", 20)
    health = site.until(lambda: site.client.feed(openadr)["health"], "its health", 5)
    assert (health["state"], health["failures"], health["signals"]) == ("ok", 0, 1)
    site.until(lambda: "RUNNING_CURTAILED" in reported("OPERATING_STATE"), "our state", 20)
    # 2 s at no more than the whole site: kWh, neither J nor Wh.
    assert 0 < reported("USAGE")[-1] <= before * 60 / 3.6e6

    vtn.restart()  # it has lost everything, and answers that well
    vtn.expire_tokens()
    site.until(lambda: site.window.header.true_site_watts <= limit, "it holds", 5)
    assert site.client.event(heard["event_id"])["state"] in {"ramping_down", "holding"}
    site.client.cancel_event(heard["event_id"])  # what no server can end, a person does
    site.until(site.is_restored, "found limits", 20)
    assert said["id"] in heard["event_id"]


@pytest.mark.slow
def test_a_cancelled_event_is_let_go_by_the_ramp(bare_site, vtn: Vtn, openadr: str) -> None:
    site, program = bare_site, vtn.add_program("dr")
    said = vtn.add_event(program, event(1, FOR_EVER))

    def state() -> str:
        events = [e for e in site.client.events() if said["id"] in e["event_id"]]
        return events[0]["state"] if events else ""

    site.until(lambda: state() == "holding", "it is held", 15)
    vtn.change_event(said["id"], {"intervalPeriod": CANCELLED, "intervals": []})
    site.until(site.is_restored, "found limits", 20)
    site.until(lambda: state() in {"restored", "settled"}, "its end", 10)


@pytest.mark.slow
def test_a_control_centre_writes_a_limit_and_reads_back_what_is_in_force(bare_site) -> None:
    site = bare_site
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"port": port, "neutral_kw": 10.0, "watts_per_count": 1.0}
    site.client.register_feed("scada", kind="dnp3", programme="demand-response", settings=settings)
    master = Dnp3Master(port)

    def points() -> tuple[Any, Any]:
        read = master.read()
        return read.analog_inputs, read.binary_inputs

    def answers() -> bool:
        try:
            return bool(points()[1][1].value)  # the site acts
        except Exception:  # whatever dnp3py makes of nobody there
            return False

    site.until(answers, "the outstation", 15)
    before = site.window.header.true_site_watts
    limit = round(0.85 * before)
    assert master.write_limit(limit, select=True) == "SUCCESS"
    site.until(lambda: site.window.header.true_site_watts <= limit, "watts below the limit", 5)
    site.until(lambda: points()[0][1].value == limit, "the limit in force", 5)
    site.until(lambda: points()[0][0].value <= limit, "what the site draws", 5)
    assert points()[1][0].value
    assert master.write_limit(20_000) == "SUCCESS"
    site.until(site.is_restored, "found limits", 20)
    site.until(lambda: points()[0][1].value == 10_000, "no limit in force", 5)
    site.client.remove_feed("scada")
