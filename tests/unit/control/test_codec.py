"""What is ledgered comes back as it was: every stimulus, every instruction, the whole state."""

from dataclasses import fields

import pytest

from gridaware.control import instructions as i
from gridaware.control import stimuli as s
from gridaware.control.codec import (
    decode_instruction,
    decode_stimulus,
    encode,
    from_builtins,
    to_builtins,
)
from gridaware.control.replay import Replayed, rebuild, replay, snapshot_of
from gridaware.control.state import State
from gridaware.domain import wire
from gridaware.domain.errors import InvalidInput
from gridaware.domain.job import JobSpec, Placement, Tier
from gridaware.domain.lease import ArmedResponse, Lease, RestoreSlot, ScheduledResponse
from gridaware.domain.programme import FeedSpec

LEASE = Lease("d1-1", (("g", 200.0),), None, RestoreSlot(1.0, 2.0), event_ids=("f.e",))
SPEC = JobSpec("j", "x", 2, Tier.FLEX_1, placement=Placement.WORKERS, metadata=(("a", "b"),))
REQUEST = wire.CheckpointRequest("r1-1", "j", 1, True, 30.0, "event")
INSTRUCTIONS = (
    i.SendLease("n1", 3, "d1-1", LEASE),
    i.SendCheckpoint("n1", REQUEST),
    i.SampleAt(10.0),
    i.SubmitJob("j", 2),
    i.StopJob("j", 2),
    i.TellFeed("f.e", "active"),
    i.Answer("accepted", "f.e", revision=2),
    i.Alarm("opted-out", "words", "f.e"),
    i.Decide(
        "d1-1",
        ("f.e",),
        "tiers",
        9.0,
        None,
        8.0,
        0.0,
        (("j", "SET_CAP", 1.0, 2.0, 0.5, "r", (1.0,)),),
    ),
    i.SettleEvent("f.e", True),
    i.Publish("job", "j"),
    i.SendArms(
        "n1", 2, 900.0, (ArmedResponse("p", 1, 0.2, LEASE),), (ScheduledResponse(60.0, LEASE),)
    ),
    i.SendTrigger("n1", wire.Trigger(1, 4, "d1-2", 2, "p", 1, "f.e", None)),
)


@pytest.fixture
def stimuli(bench) -> tuple:
    """One of each kind."""
    bench.start_job()
    bench.post(bench.signal())
    wall = bench.now().wall
    seen = {type(stimulus): stimulus for stimulus, _ in bench.posted}
    lock = wire.LockHeld(1000.0, "kept", 990.0)
    result = wire.GpuResult("g10", 200.0, 200.0, None, 0.1, lock)
    more = (
        s.FeedAdded(FeedSpec("n", "webhook", "p"), "u"),
        s.FeedRemoved("n", "u"),
        s.Dispatched("d1-1"),
        s.InputRefused("feed:f", "signature-bad", "words", "raw"),
        s.NodeLost("n1"),
        s.NodeCommanded("n1", "cordon", "u"),
        s.JobSubmitted(SPEC, "u"),
        s.JobCommanded("j", "hold", "u"),
        s.SubmitFailed("j", 1, "ray", "words", True),
        s.EventCommanded("f.e", "cancel", "u"),
        s.FleetReleased("u", "words", True),
        wire.NodeFault("n1", "driver-slow", None, "words", over=True),
        wire.Acknowledged("n1", 1, 1, "d1-1", (result,), True, wall),
        wire.JobGone("n1", "j", 1, 0, 7, (8,)),
        wire.CheckpointReport("n1", "r1-1", "j", 1, "saved", 5, "/p"),
        wire.ArmedAcknowledged("n1", 1, 2),
        wire.Fired("n1", "p", 1, 0.2, "frequency-p-1", "frequency", 49.6, wall, 0.1, None),
    )
    return tuple((seen | {type(thing): thing for thing in more}).values())


def test_every_stimulus_comes_back_as_it_was(stimuli, bench) -> None:
    assert {type(thing) for thing in stimuli} == set(s.STIMULI)
    for thing in stimuli:
        assert decode_stimulus(encode(thing, bench.now())) == (thing, bench.now())


def test_every_instruction_comes_back_as_it_was(bench) -> None:
    assert {type(thing) for thing in INSTRUCTIONS} == set(i.INSTRUCTIONS)
    for thing in INSTRUCTIONS:
        assert decode_instruction(encode(thing, bench.now())) == thing


def test_a_state_in_the_middle_of_an_event_comes_back_as_it_was(bench) -> None:
    bench.start_job()
    bench.post(bench.signal(depth=0.4))
    bench.ticks(3)
    assert from_builtins(to_builtins(bench.state), State) == bench.state
    for field in fields(State):
        assert hasattr(bench.state, field.name)


@pytest.mark.parametrize("decode", [decode_stimulus, decode_instruction])
def test_what_is_none_of_ours_is_refused(decode, bench) -> None:
    with pytest.raises(InvalidInput) as unknown:
        decode({"type": "Nothing", "value": {}, "moment": {}})
    assert unknown.value.code in {"stimulus-unknown", "instruction-unknown"}
    name = "NodeLost" if decode is decode_stimulus else "SampleAt"
    with pytest.raises(InvalidInput) as malformed:
        decode({"type": name, "value": {}, "moment": to_builtins(bench.now())})
    assert malformed.value.code == "value-malformed"


def ledger_of(bench) -> list[tuple[str, dict]]:
    """What the loop would have written."""
    again, entries = type(bench.machine)(bench.machine.book), []
    for stimulus, moment in bench.posted:
        entries.append(("stimulus", encode(stimulus, moment)))
        made = again.handle(stimulus, moment)
        kept = (i.Decide, i.SendLease, i.Answer, i.Alarm)
        entries += [("decision", encode(m, moment)) for m in made if isinstance(m, kept)]
    return entries


def test_a_ledger_replays_to_the_same_state_and_decisions(bench) -> None:
    bench.start_job()
    bench.post(bench.signal(depth=0.4))
    bench.ticks(5)
    entries = ledger_of(bench)
    seen: list[str] = []
    run = rebuild(bench.machine.book, None, entries, lambda s, *_: seen.append(type(s).__name__))
    assert run.differences == []
    assert run.decisions >= 2
    assert run.stimuli == len(bench.posted) == len(seen)
    assert run.machine.state == bench.state
    assert run.last == bench.now()


def test_a_snapshot_and_what_follows_it_give_the_same_state(bench) -> None:
    bench.start_job()
    count = len(ledger_of(bench))
    snapshot = snapshot_of(bench.machine, count, bench.now())
    bench.post(bench.signal(depth=0.4))
    bench.ticks(5)
    run = rebuild(bench.machine.book, snapshot, ledger_of(bench)[count:])
    assert run.machine.state == bench.state


def test_a_decision_that_is_not_made_again_is_told(bench) -> None:
    bench.start_job()
    bench.post(bench.signal(depth=0.4))
    entries = ledger_of(bench)
    kind, body = next(e for e in entries if e[0] == "decision" and e[1]["type"] == "SendLease")
    forged = body | {"value": body["value"] | {"sequence": 999}}
    changed = [(kind, forged) if e[1] is body else e for e in entries]
    run = replay(Replayed(type(bench.machine)(bench.machine.book)), changed)
    assert [d.partition(": ")[2] for d in run.differences] == ["came out differently"]
    run = replay(Replayed(type(bench.machine)(bench.machine.book)), [(kind, body)])
    assert [d.partition(": ")[2] for d in run.differences] == ["was not made again"]
