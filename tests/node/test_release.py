"""Release and removal with real processes: one node, its agent's death, and a whole fleet."""

import asyncio
import json
import subprocess
import sys

import pytest
import yaml

from gridaware.clock import SystemClock
from gridaware.domain.errors import ConfigError, Refused
from gridaware.domain.lease import Lease, RestoreSlot
from gridaware.domain.wire import Desired, Release
from gridaware.store.controller import ControllerStore
from gridaware.wiring.config import Settings, load_settings
from gridaware.wiring.release import NodeRelease, release_fleet

CLOCK = SystemClock()
SLOT = RestoreSlot(0.5, 1.5)
FOUND, HELD = [400.0] * 4, [200.0] * 4


def for_event(rig, watts: float, event_id: str = "f.e", epoch: int = 1) -> Desired:
    """A lease of an event, with a slot that can be seen."""
    plain = rig.desired(watts, 120.0, epoch=epoch)
    limits = plain.lease.limits_watts
    lease = Lease(plain.lease.lease_id, limits, 120.0, SLOT, event_ids=(event_id,))
    return Desired(epoch, plain.sequence, plain.decision_id, plain.sent_at, plain.expires_at, lease)


async def watched(rig, ready, seconds: float = 15.0) -> list[float]:
    """The first GPU's limit until ``ready()``, as often as it can be looked at."""
    seen = [rig.enforced()[0]]
    async with asyncio.timeout(seconds):
        while not ready():
            await asyncio.sleep(0.02)
            seen.append(rig.enforced()[0])
    return seen


def test_a_confirmed_release_rises_in_the_slot_and_control_hears_who_and_why(rig, heard):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await rig.applied(heard, server, for_event(rig, 200.0))
            assert (await rig.ask("release", confirm="n0", reason="smoke", actor="alice"))["ok"]
            seen = await watched(rig, lambda: rig.enforced() == FOUND)
            assert seen == sorted(seen)
            assert 300.0 in seen, "in steps of its slot, not in one jump"
            released = await heard.until(
                lambda: [h.releases for h in heard.hellos if h.releases and h.releases[0].restored]
            )
            (fact,) = released[-1]
            assert (fact.actor, fact.reason, fact.event_ids) == ("alice", "smoke", ("f.e",))
            # A controller that plans on as before does not get the node back for that event.
            await rig.applied(heard, server, for_event(rig, 150.0))
            assert rig.enforced() == FOUND
            await rig.applied(heard, server, for_event(rig, 250.0, "f.next"))
            assert rig.enforced() == [250.0] * 4

    asyncio.run(story())


def test_a_release_with_no_controller_is_told_after_the_agents_own_death(rig, heard, eventually):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await rig.applied(heard, server, for_event(rig, 200.0))
        asked = await rig.ask(
            "release", confirm="n0", reason="smoke", actor="alice", at_once="true"
        )
        assert asked["ok"]
        await eventually(lambda: rig.enforced() == FOUND)
        rig.kill()
        rig.start(port)
        async with rig.link(heard, port=port, epoch=2):
            told = await heard.until(lambda: [h for h in heard.hellos if h.releases])
            (fact,) = told[-1].releases
            assert (fact.actor, fact.event_ids, fact.at_once) == ("alice", ("f.e",), True)
            assert told[-1].lease is None

    asyncio.run(story())


def removal(rig, *more: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gridaware.wiring.agent", "--uninstall"]
    return subprocess.run(
        [*command, "--config", str(rig.folder / "agent.yaml"), "--log-level", "warning", *more],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("alive", [True, False])
def test_an_agent_is_removed_only_with_everything_given_back(rig, heard, alive):
    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await rig.applied(heard, server, for_event(rig, 200.0))
            assert rig.process is not None
            if not alive:
                rig.kill()
            refused = await asyncio.to_thread(removal, rig)
            assert (refused.returncode, rig.enforced()) == (4, HELD)
            assert "lease-alive" in refused.stderr
            done = await asyncio.to_thread(removal, rig, "--confirm", "n0", "--reason", "scrapped")
            assert done.returncode == 0, done.stderr
            assert rig.enforced() == FOUND
            facts = [h.releases[-1] for h in heard.hellos if h.releases]
            assert facts, "a controller that is there is told before the agent ends"
            assert facts[-1].reason == "scrapped"
            if alive:
                assert await asyncio.to_thread(rig.process.wait, 15) == 0

    asyncio.run(story())


# The fleet, with control down ----------------------------------------------------------------


def site(rig, port: int) -> Settings:
    """Control's settings over the rig's own CA; its store has an epoch and knows a second node."""
    (rig.folder / "tls").mkdir(exist_ok=True)
    files = {"ca.pem": rig.controller.ca, "controller.pem": rig.controller.certificate}
    for name, path in {**files, "controller.key": rig.controller.key}.items():
        (rig.folder / "tls" / name).write_bytes(path.read_bytes())
    path = rig.folder / "site.yaml"
    control = {"agents_port": port, "state_dir": "control", "tls_dir": "tls"}
    path.write_text(yaml.safe_dump({"site": {"name": "s"}, "control": control}))
    return load_settings(path)


def known(settings: Settings, *node_ids: str) -> int:
    """What an earlier controller left: its epoch."""
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    store = ControllerStore(settings.store_url, site_id="s", started_at=CLOCK.wall())
    for node_id in node_ids:
        body = json.dumps({"node_id": node_id}).encode()
        store.documents.put("node", node_id, "connected", body, CLOCK.wall())
    store.close()
    return store.epoch


def test_with_control_down_a_stand_in_releases_the_fleet_and_says_who_is_missing(rig, heard):
    said: list[NodeRelease] = []

    async def story() -> None:
        async with rig.link(heard) as (server, port):
            rig.start(port)
            await rig.applied(heard, server, for_event(rig, 200.0))
        settings = site(rig, port)
        assert known(settings, "n0", "n9") == 1
        order = Release("bob", "wrong tariff")
        releasing = asyncio.ensure_future(
            asyncio.to_thread(
                release_fleet, settings, CLOCK, order, wait_seconds=8.0, say=said.append
            )
        )
        seen = await watched(rig, releasing.done)
        assert 300.0 in seen, "each in its slot"
        nodes = {node.node_id: node.state for node in await releasing}
        assert nodes == {"n0": "released", "n9": "waiting"}
        assert [node.state for node in said] == ["releasing", "released"], said
        assert rig.enforced() == FOUND
        # Whoever comes after it is obeyed, and hears of it.
        async with rig.link(heard, port=port, epoch=known(settings)) as (server, _):
            told = await heard.until(lambda: [h for h in heard.hellos if h.releases])
            (fact,) = told[-1].releases
            assert (fact.actor, fact.reason, fact.event_ids) == ("bob", "wrong tariff", ("f.e",))

    asyncio.run(story())


def test_while_a_controller_lives_no_stand_in_listens(rig):
    settings = site(rig, 1)
    settings.state_dir.mkdir(parents=True)
    store = ControllerStore(settings.store_url, site_id="s", started_at=CLOCK.wall())
    with pytest.raises(Refused) as refused:
        release_fleet(settings, CLOCK, Release("bob", "x"), wait_seconds=1.0, say=print)
    assert refused.value.code == "store-locked"
    store.close()


def test_with_the_store_lost_the_epoch_must_be_given(rig, heard):
    async def story() -> None:
        async with rig.link(heard, epoch=7) as (server, port):
            rig.start(port)
            await rig.applied(heard, server, for_event(rig, 200.0, epoch=7))
        settings = site(rig, port)
        settings.state_dir.mkdir(parents=True)
        (settings.state_dir / "gridaware.db").write_bytes(b"no database at all" * 100)

        async def release(after_epoch: int) -> list[NodeRelease]:
            return await asyncio.to_thread(
                release_fleet,
                settings,
                CLOCK,
                Release("bob", "x", at_once=True),
                wait_seconds=8.0,
                after_epoch=after_epoch,
                say=print,
            )

        with pytest.raises(ConfigError) as unknown:
            await release(0)
        assert unknown.value.code == "epoch-unknown"
        assert rig.enforced() == HELD
        assert [node.state for node in await release(7)] == ["released"]
        assert rig.enforced() == FOUND

    asyncio.run(story())
