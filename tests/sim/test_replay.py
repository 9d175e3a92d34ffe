"""A ledger replays to the same decisions also after it has been written and read as JSON."""

import json
from collections.abc import Callable

from gridaware.control.machine import Machine
from gridaware.control.replay import Replayed, replay
from gridaware.planning.model import CurveBook
from gridaware.sim.world import World
from gridaware.store.chain import canonical


def as_stored(world: World) -> list[tuple[str, dict]]:
    return [(kind, json.loads(canonical(body))) for kind, body in world.ledger.entries]


def test_an_event_read_back_from_json_is_decided_again_without_a_difference(
    make_world: Callable[..., World], ask: Callable[..., object], book: CurveBook
) -> None:
    world = make_world()
    world.signal("f", "e", ask(world, 0.4))
    world.run(30)
    run = replay(Replayed(Machine(book)), as_stored(world))
    assert run.decisions > 4
    assert run.differences == []


def test_a_decision_that_was_changed_in_the_ledger_is_found_out(
    make_world: Callable[..., World], ask: Callable[..., object], book: CurveBook
) -> None:
    world = make_world()
    world.signal("f", "e", ask(world, 0.4))
    world.run(5)
    entries = as_stored(world)
    leases = [b for kind, b in entries if kind == "decision" and b["type"] == "SendLease"]
    lease = next(b for b in leases if b["value"]["lease"]["limits_watts"])
    lease["value"]["lease"]["limits_watts"][0][1] += 1.0
    run = replay(Replayed(Machine(book)), entries)
    assert len(run.differences) == 1
    assert "SendLease" in run.differences[0]
