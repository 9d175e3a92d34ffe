"""docs/failsafe.md, cell by cell: what fails is really killed, cut, filled, locked or stepped.

Each cell is a whole event on a site of real processes. Judged by the plant's own registers: the
promise is kept to its end, what was found stands again within the site's ramp, and the ledger is
whole and gives the same decisions again.
"""

import contextlib
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import SystemClock
from gridaware.sim.failsafe import FAILURES, Phase, Restored

CLOCK = SystemClock()
EVENT_SECONDS = 4.8
OUTAGE_SECONDS = 3.0
LOCKED_SECONDS = 7.0
"""Longer than SQLite waits for a lock (5 s)."""
MATTER_MOST = {
    ("agent", Phase.RAMPING_DOWN),
    ("control", Phase.RAMPING_DOWN),
    ("control", Phase.RAMPING_UP),
    ("driver child", Phase.HOLDING),
    ("network", Phase.HOLDING),
    ("journal lost", Phase.HOLDING),
}
"""In `make test`; the whole table in `make test-all`."""
BY_NAME = {failure.name: failure for failure in FAILURES if not failure.with_jobs}
GRID = [
    pytest.param(name, phase, marks=() if (name, phase) in MATTER_MOST else pytest.mark.slow)
    for phase in Phase
    for name in BY_NAME
]
Mend = Callable[[], None]


def nothing_to_mend() -> None:
    """Its supervisor has mended it."""


# What fails ------------------------------------------------------------------------------------


def kill(victim: str) -> Callable[[Any], Mend]:
    def fail(site) -> Mend:
        site.kill(victim)
        return nothing_to_mend

    return fail


def reboot(*, imaged: bool) -> Callable[[Any], Mend]:
    """The first node's processes and work end, its registers begin anew, then its agent starts."""

    def fail(site) -> Mend:
        virtual, agent = site.virtual, site.agents[0]
        slots = site.window.gpus_of(0)
        loads = [slot.load(0) for slot in slots]
        child = site.pid_of("gridaware.node.child", agent)
        for load in loads:
            load.until_seconds = 0.0
        agent.process.kill()
        agent.process.wait(10)
        site.until(lambda: not Path(f"/proc/{child}").exists(), "the child ends with it", 5)
        for slot in slots:
            slot.requested_watts = slot.default_watts
            site.found_watts[slot.uuid.decode()] = slot.default_watts
        site.window.node(0).reload_requests += 1
        began = f"{CLOCK.boot_seconds() - 5.0:.3f}"
        virtual.boot_file(0).write_text(f"boot-{began} {began}", encoding="ascii")
        if imaged:
            shutil.rmtree(virtual.agent_state_dir(0))
        site.restart_agent(0)

        def work_comes_back() -> None:
            site.all_connected()
            time.sleep(1.5)  # nothing starts before its node is ready
            for load in loads:
                load.until_seconds = float("inf")

        return work_comes_back

    return fail


def cut_network(site) -> Mend:
    site.proxy.cut()
    return site.proxy.mend


def silence_feed(site) -> Mend:
    """A file feed loses its file, and the webhook's listener its patience."""
    notices = site.virtual.home / "notices.jsonl"
    notices.write_text('{"at": "2100-01-01T00:00:00Z", "id": "x", "target": {"limit_kw": 1}}\n')
    site.client.register_feed(
        "notices", kind="file", programme="demand-response", settings={"path": str(notices)}
    )
    notices.unlink()
    address = ("127.0.0.1", site.virtual.ports["signals"])
    mute = [socket.create_connection(address, timeout=5) for _ in range(100)]
    for one in mute:
        one.sendall(b"POST /api/v1/signals/grid HTTP/1.1\r\n")

    def mend() -> None:
        for one in mute:
            one.close()
        site.client.remove_feed("notices")

    return mend


def silence_meter(site) -> Mend:
    site.window.header.meter_fault = 1

    def mend() -> None:
        site.window.header.meter_fault = 0

    return mend


def database(site) -> Path:
    return site.virtual.settings_file.parent / "state" / "gridaware.db"


def lock_store(site) -> Mend:
    locked = sqlite3.connect(database(site), isolation_level=None, timeout=5.0)
    locked.execute("BEGIN IMMEDIATE")
    until = CLOCK.monotonic_seconds() + LOCKED_SECONDS

    def mend() -> None:
        time.sleep(max(until - CLOCK.monotonic_seconds(), 0.0))
        locked.execute("ROLLBACK")
        locked.close()

    return mend


def move_store_away(site) -> Mend:
    path = database(site)
    away = path.parent / "away"
    away.mkdir()
    moved = [file for file in path.parent.glob(path.name + "*") if file.suffix != ".lock"]
    for file in moved:
        file.rename(away / file.name)

    def mend() -> None:
        for file in moved:
            (away / file.name).rename(file)
        away.rmdir()

    return mend


def fill(which: int) -> Callable[[Any], Mend]:
    def fail(site) -> Mend:
        if len(site.mounted) < 2:
            pytest.skip("no privilege to mount a small file system")
        if which == 0:  # what the log of the database has room for is no full disk
            with contextlib.closing(sqlite3.connect(database(site), timeout=5.0)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        filler = site.mounted[which] / "filler"
        with filler.open("wb", buffering=0) as file:
            for chunk in (b"\0" * 65536, b"\0"):  # to the last byte
                with contextlib.suppress(OSError):
                    while file.write(chunk) == len(chunk):
                        pass
        more = site.mounted[which] / "more"
        with pytest.raises(OSError, match="No space left"):
            more.write_bytes(b"x" * 4096)
        more.unlink()
        return filler.unlink

    return fail


def step_clocks(site) -> Mend:
    forward = 3600.0 if len(site.virtual.nodes) and site.events % 2 else -3600.0
    site.set_wall_offset("serve", forward)
    site.set_wall_offset("agents", -forward)

    def mend() -> None:
        site.set_wall_offset("serve", 0.0)
        site.set_wall_offset("agents", 0.0)

    return mend


def lose_journal(site) -> Mend:
    agent = site.agents[0]
    agent.process.kill()
    agent.process.wait(10)
    (site.virtual.agent_state_dir(0) / "journal").unlink(missing_ok=True)
    site.restart_agent(0)
    return nothing_to_mend


DONE: dict[str, Callable[[Any], Mend]] = {
    **{name: kill(name) for name in ("control", "web", "serve", "agent", "driver child")},
    "node": reboot(imaged=False),
    "network": cut_network,
    "feed": silence_feed,
    "meter": silence_meter,
    "store locked": lock_store,
    "store gone": move_store_away,
    "disk full: control": fill(0),
    "disk full: agents": fill(1),
    "clock step": step_clocks,
    "journal lost": lose_journal,
    "node re-imaged": reboot(imaged=True),
}
LASTS = {"feed", "meter", "store gone", "disk full: agents", "clock step"}
"""What has failed before an event is still so during it; anything else is mended before it."""
COMES_BACK_AT_ONCE = {"node", "node re-imaged"}


def test_every_failure_of_the_table_is_made():
    assert set(DONE) == set(BY_NAME)


# What holds ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "phase"), GRID)
def test_what_was_promised_holds_whatever_fails(bare_site, name, phase):
    site, failure = bare_site, BY_NAME[name]
    mend: Mend = nothing_to_mend
    with site.watching() as truth:
        if phase is Phase.BEFORE:
            mend = fails_before(site, name)
        promise = site.ask(seconds=EVENT_SECONDS)
        if phase is not Phase.BEFORE:
            site.reaches(promise, phase.value)
            mend = DONE[name](site)
        if phase is Phase.RAMPING_UP or name in COMES_BACK_AT_ONCE:
            time.sleep(OUTAGE_SECONDS if name == "network" else 0.0)
            mend()
            mend = nothing_to_mend
        site.until(site.is_restored, lambda: f"found limits; now {site.limits()}", 30)
        mend()
        site.all_connected()
        site.comes_back(promise)
    site.was_kept(promise, truth, under_caps=name not in COMES_BACK_AT_ONCE)
    if failure.restored is Restored.FOUND:
        site.rose_within_ramp(promise, truth)
    else:
        assert tuple(site.found_watts.values()) != site.as_made_watts
    is_in_the_ledger(site, promise)


def is_in_the_ledger(site, promise) -> None:
    """The chain is whole, and the machine that is built from it decides and says the same."""
    replayed = site.ledger().follow()
    told = site.client.event(promise.event_id)
    again = replayed.state.events[promise.event_id].event
    assert told["reason"] in {"LimitsRestored", "Settled"}
    assert (again.reference.watts, again.limit_watts) == (
        told["reference"]["watts"],
        told["limit_watts"],
    )


def fails_before(site, name: str) -> Mend:
    """It fails while nothing is asked; what does not last is over when the signal comes."""
    mend = DONE[name](site)
    if BY_NAME[name].refuses_signals:
        time.sleep(6.0 if name == "store locked" else 1.5)  # until a commit has failed
        refused = site.send({"id": "refused", "start": "now", "duration": "PT5S"} | LESS)
        assert refused.status == 503, refused.answer
    if name == "clock step":
        wrong = site.send({"id": "refused", "start": "now", "duration": "PT5S"} | LESS)
        assert wrong.status == 401, "one of the two clocks is an hour off"
        site.grid_offset_seconds = float(site.wall_offset("serve"))
    if name in LASTS:
        return mend
    if name == "network":
        time.sleep(OUTAGE_SECONDS)
    mend()
    site.all_connected()
    site.until(site.is_steady, "a steady reference", 20)
    return nothing_to_mend


LESS: dict[str, Any] = {"target": {"reduce_percent": 20}}


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_the_ceiling_of_the_connection_stands_whatever_fails(ceiling_site, name):
    site = ceiling_site
    ceiling = site.virtual.options.settings["site"]["hard_limit"]
    began = site.now()
    with site.watching() as truth:
        mend = DONE[name](site)
        time.sleep(OUTAGE_SECONDS + 1.0)
        mend()
        site.all_connected()
        time.sleep(2 * OUTAGE_SECONDS)
    means = truth.means_watts(ceiling["averaging_seconds"], began, site.now())
    assert max(means) <= ceiling["watts"], means
    site.ledger().follow()
