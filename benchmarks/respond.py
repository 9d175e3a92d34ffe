"""From a signed signal to watts: four clocks over many trials, on simulated V100s.

``python -m benchmarks.respond --agents 8 --gpus-per-agent 8 --trials 100 -o json``

signed HTTP signal → control's own listener → machine → TLS → agents (a process each, with its
driver child) → simulated driver, every call of which takes at least ``driver_call_ms`` → read-back
→ acknowledgement. Ledger on, every signal durable. *received* is this process's monotonic time just
before it sends; *decided* and *accepted* are control's (the same clock of the same machine, every
GPU's enforced limit read back); *confirmed* is the first 20 Hz sample of the plant's **true** site
power from which all samples of the next 2 s are at or below the target, else the trial failed.

Every GPU carries a load of a process that is not ours, which the policy lets be capped, so no Ray
is needed, and every GPU gives its share, so that each gets a new limit. Each trial asks for a
reduction of 10 to 40 % of the GPU power, at the site meter. The first trials, in which the
controller meets these loads for the first time, are counted too.

``response_record_ms`` is read from the report of each event, which records the clocks of every GPU
since control *received* the signal: the spread over all GPUs of all trials, and how many trials'
slowest GPU is where the event's own *accepted* clock says (``agrees``).

Without ``--prearmed`` nothing is armed: each response is planned when it is asked for. With it
every agent holds its next responses, the run begins once all have said so, and ``fired`` counts the
trials that one trigger a node answered (by the ledger).

``--api-load 200`` submits as many jobs, which wait in the queue, and runs each trial twice by
turns: idle, and ``loaded`` while a process of its own asks for all of them
(``GET /api/v1/jobs?limit=200``; a page holds 100 unless asked) of the web process 200 times a
second. Both stand in one result, with the ratio of their p99.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import requests
import yaml

from benchmarks.apiload import ApiLoad
from benchmarks.program import arguments, quantiles_ms, report
from benchmarks.rawtcp import RawFanout
from gridaware.client import Client
from gridaware.clock import SystemClock
from gridaware.domain.errors import Unavailable
from gridaware.sim.cluster import SiteOptions, VirtualSite
from gridaware.sim.grid import send_signed
from gridaware.sim.window import Window
from gridaware.sim.workloads import keep_busy
from gridaware.store.reader import StoreReader
from gridaware.wiring.config import load_settings

CALL_SECONDS = 0.001
HOLD_SECONDS = 2.0
SAMPLE_SECONDS = 0.05
GIVE_UP_SECONDS = 6.0
AGREES_MS = 1.0
RECORD_SECONDS = 1.5
"""Readings come in frames of a second: a GPU's stay below its limit is known that much later."""
RAW_ROUNDS = 100
JOBS = 200
"""Of the API's load."""
LOAD_SECONDS = 0.5
"""The load runs for this long before a trial."""
WORKLOADS = ("bert", "resnet50")
SLOPE = 1.1
"""Meter watts for a watt of the GPUs."""
POLICY = {
    "name": "everybody",
    "description": "Every GPU gives its share, so that every GPU gets a new limit.",
    "strategy": "proportional",
    "unmanaged_tier": "preemptible",
}
ARMED_DEPTHS = [0.1, 0.2, 0.3, 0.4]


@dataclass(frozen=True)
class Trial:
    """Seconds since the signal was about to be sent; ``confirmed`` None = failed."""

    decided: float
    accepted: float | None
    confirmed: float | None
    reduction: float
    gpus: tuple["GpuClocks", ...] = ()
    """By the response record."""
    agrees: bool = False
    """The record's slowest GPU is where the event's own clock says."""
    loaded: bool = False


@dataclass(frozen=True)
class GpuClocks:
    """One GPU in the response record: milliseconds since control received the signal."""

    decided: float | None
    accepted: float | None
    confirmed: float | None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and print one JSON object."""
    parser = arguments("respond", __doc__)
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--gpus-per-agent", type=int, default=8)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--prearmed", action="store_true", help="fire what is armed ahead")
    parser.add_argument(
        "--api-load", type=float, default=0.0, metavar="N", help="requests a second, by turns"
    )
    return report(measure, parser.parse_args(argv))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Build the site, run every trial, and take it down again."""
    site = VirtualSite(
        SiteOptions(
            nodes=options.agents,
            gpus_per_node=options.gpus_per_agent,
            gpu="v100-250",
            seed=options.seed,
            driver_call_seconds=CALL_SECONDS,
            settings=_settings(options),
        )
    )
    try:
        trials, api = _run(site, options)
        fired = _fired(site) if options.prearmed else None
        with RawFanout(options.agents) as raw:
            fanout = raw.measure(_payload(options.gpus_per_agent), RAW_ROUNDS)
    finally:
        site.end()
    return _summary(options, trials, fanout, api, fired)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    overhead = {"fixed_watts": 1500.0, "slope": SLOPE}
    programme = {
        "id": "demand-response",
        "deadline_seconds": 5.0,
        "settlement_interval_seconds": 5.0,
        "armed_depths": ARMED_DEPTHS if options.prearmed else [],
    }
    return {
        "site": {"overhead": overhead, "settle_after_seconds": 0.5},
        "control": {"policy": "everybody", "policy_dir": "policies"},
        "programmes": [programme],
    }


def _run(
    site: VirtualSite, options: argparse.Namespace
) -> tuple[list[Trial], dict[str, Any] | None]:
    site.start_plant()
    site.configure()
    policies = site.settings_file.parent / "policies"
    policies.mkdir()
    (policies / "everybody.yaml").write_text(yaml.safe_dump(POLICY), encoding="utf-8")
    serve = site.start_serve_soon()
    site.wait_for_api(serve)
    site.start_agents()
    client = Client(site.web_url, site.api_key)
    _until(lambda: client.status()["nodes"]["connected"] == options.agents, 60)
    window = site.window()
    _load(window, options.agents)
    if options.api_load:
        _submit_jobs(client)
    time.sleep(6.0)
    if options.prearmed:
        _until(lambda: all(node["armed"] for node in client.nodes()), 30)
    load = None
    if options.api_load:
        url = f"{site.web_url}/api/v1/jobs?limit={JOBS}"
        load = ApiLoad(url, site.api_key, options.api_load)
    try:
        trials = _trials(site, client, window, options, load)
        return trials, None if load is None else load.end()
    finally:
        if load is not None:
            load.kill()


def _submit_jobs(client: Client) -> None:
    """Fill the queue. Nothing runs them: there is no Ray."""
    for number in range(JOBS):
        client.submit_job("python train.py", gpus=8, tier="flex-2", job_id=f"waiting-{number}")


def _trials(
    site: VirtualSite,
    client: Client,
    window: Window,
    options: argparse.Namespace,
    load: ApiLoad | None,
) -> list[Trial]:
    draw = random.Random(options.seed)
    trials: list[Trial] = []
    with requests.Session() as sender:
        for _ in range(options.trials):
            asked = draw.uniform(0.10, 0.40)
            for loaded in (False,) if load is None else (False, True):
                if load is not None and loaded:
                    load.go()
                    time.sleep(LOAD_SECONDS)
                number = len(trials)
                trial = _trial(site, client, sender, window, number, asked)
                if load is not None:
                    load.rest()
                trials.append(replace(trial, loaded=loaded))
                _note(number, trials[-1])
    return trials


def _fired(site: VirtualSite) -> int:
    """Events that triggers answered, by the ledger."""
    reader = StoreReader(load_settings(site.settings_file).store_url)
    events: set[str] = set()
    try:
        seq = 1
        while entries := reader.ledger(from_seq=seq, kinds=("decision",), limit=1000):
            for entry in entries:
                body = json.loads(entry.body)
                if body["type"] == "SendTrigger":
                    events.add(body["value"]["trigger"]["event_id"])
            seq = entries[-1].seq + 1
    finally:
        reader.close()
    return len(events)


def _load(window: Window, nodes: int) -> None:
    """Let this process keep work queued on every GPU, for good."""
    for node in range(nodes):
        for index, gpu in enumerate(window.gpus_of(node)):
            keep_busy(gpu, WORKLOADS[(node + index) % len(WORKLOADS)])


def _trial(
    site: VirtualSite,
    client: Client,
    sender: requests.Session,
    window: Window,
    number: int,
    reduction: float,
) -> Trial:
    header = window.header
    before = {s.uuid: s.requested_watts for s in _slots(window, site)}
    gpu_watts = sum(slot.true_watts for slot in _slots(window, site))
    target = header.true_site_watts - SLOPE * reduction * gpu_watts
    event = f"trial-{number}"
    body: dict[str, Any] = {
        "id": event,
        "start": "now",
        "duration": "PT60S",
        "target": {"limit_kw": round(target / 1000, 4)},
    }
    secret, clock = site.webhook_secret.encode(), SystemClock()
    sent = send_signed(site.signals_url, secret, body, clock, session=sender)
    if sent.status != 200:
        raise RuntimeError(f"refused: {sent.answer}")
    confirmed = _confirm(window, target, sent.sent_seconds)
    time.sleep(RECORD_SECONDS)
    clocks = client.event(f"grid.{event}")["clocks"]
    capped = all(s.requested_watts < before[s.uuid] for s in _slots(window, site))
    cancel = {"id": event, "revision": 1, "cancel": True}
    send_signed(site.signals_url, secret, cancel, clock, session=sender)
    _until(lambda: client.event(f"grid.{event}")["state"] in {"restored", "settled"}, 30)
    time.sleep(2.0)
    accepted = clocks["accepted_seconds"] if capped else None
    gpus = _recorded(client, f"grid.{event}")
    slowest = max((gpu.accepted or 0.0 for gpu in gpus), default=0.0)
    in_all = 1e3 * ((clocks["accepted_seconds"] or 0.0) - clocks["received_seconds"])
    return Trial(
        decided=clocks["decided_seconds"] - sent.sent_seconds,
        accepted=None if accepted is None else accepted - sent.sent_seconds,
        confirmed=confirmed,
        reduction=reduction,
        gpus=gpus,
        agrees=abs(slowest - in_all) <= AGREES_MS,
    )


def _recorded(client: Client, event_id: str) -> tuple[GpuClocks, ...]:
    """The rows of the response record in the event's report."""
    record = client.event_report(event_id)["response"]
    rows = [] if record is None else record["rows"]
    return tuple(
        GpuClocks(row["decided_ms"], row["accepted_ms"], row["confirmed_ms"]) for row in rows
    )


def _slots(window: Window, site: VirtualSite) -> list[Any]:
    return [slot for n in range(len(site.nodes)) for slot in window.gpus_of(n)]


def _confirm(window: Window, target: float, sent_seconds: float) -> float | None:
    """The first sample from which true power stays at or below the target for 2 s."""
    clock = SystemClock()
    below: float | None = None
    due = clock.monotonic_seconds()
    while True:
        now = clock.monotonic_seconds()
        if window.header.true_site_watts > target:
            below = None
        elif below is None:
            below = now
        if below is not None and now - below >= HOLD_SECONDS:
            return below - sent_seconds
        if now - sent_seconds > GIVE_UP_SECONDS + HOLD_SECONDS:
            return None
        due += SAMPLE_SECONDS
        time.sleep(max(due - clock.monotonic_seconds(), 0.0))


def _payload(gpus: int) -> bytes:
    """As many bytes as one node's desired state takes on the wire."""
    return b"x" * (160 + 52 * gpus)


def _until(ready: Any, seconds: float) -> None:
    clock = SystemClock()
    end = clock.monotonic_seconds() + seconds
    while True:
        with suppress(Unavailable):  # the site is still coming up
            if ready():
                return
        if clock.monotonic_seconds() > end:
            raise TimeoutError("the site did not come to where it should be")
        time.sleep(0.1)


def _note(number: int, trial: Trial) -> None:
    def shown(seconds: float | None) -> str:
        return "failed" if seconds is None else f"{1e3 * seconds:.0f} ms"

    sys.stderr.write(
        f"trial {number + 1}: -{trial.reduction:.0%}  decided {shown(trial.decided)}  "
        f"accepted {shown(trial.accepted)}  confirmed {shown(trial.confirmed)}\n"
    )


def _summary(
    options: argparse.Namespace,
    trials: list[Trial],
    fanout: list[float],
    api: dict[str, Any] | None,
    fired: int | None,
) -> dict[str, Any]:
    idle = [trial for trial in trials if not trial.loaded]
    accepted = [trial.accepted for trial in idle if trial.accepted is not None]
    raw = statistics.median(fanout)
    figures = {
        "agents": options.agents,
        "gpus": options.agents * options.gpus_per_agent,
        "trials": len(idle),
        "driver_call_ms": 1e3 * CALL_SECONDS,
        "seed": options.seed,
        "prearmed": options.prearmed,
        **_clocks(idle),
        "raw_tcp_fanout_ms": quantiles_ms(fanout, highest=False),
        "respond_to_raw_ratio_p50": round(statistics.median(accepted) / raw, 2),
    }
    if fired is not None:
        figures["fired"] = fired
    if api is not None:
        loaded = _clocks([trial for trial in trials if trial.loaded])
        before, after = (f["received_to_accepted_ms"]["p99"] for f in (figures, loaded))
        figures |= {"api": api, "loaded": loaded, "loaded_to_idle_p99": round(after / before, 2)}
    return figures


def _clocks(trials: list[Trial]) -> dict[str, Any]:
    return {
        "failed": sum(t.accepted is None or t.confirmed is None for t in trials),
        "received_to_decided_ms": quantiles_ms([t.decided for t in trials]),
        "received_to_accepted_ms": quantiles_ms([t.accepted for t in trials if t.accepted]),
        "received_to_confirmed_ms": quantiles_ms([t.confirmed for t in trials if t.confirmed]),
        "response_record_ms": _record(trials),
    }


def _record(trials: list[Trial]) -> dict[str, Any]:
    """The spread of each recorded clock over all GPUs of all trials."""
    gpus = [gpu for trial in trials for gpu in trial.gpus]
    spreads: dict[str, Any] = {"gpus": len(gpus), "agrees": sum(t.agrees for t in trials)}
    for clock in ("decided", "accepted", "confirmed"):
        reached = [getattr(gpu, clock) for gpu in gpus if getattr(gpu, clock) is not None]
        spreads[clock] = {"reached": len(reached)}
        if reached:
            spreads[clock] |= quantiles_ms([value / 1e3 for value in reached])
    return spreads


if __name__ == "__main__":
    sys.exit(main())
