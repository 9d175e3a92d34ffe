"""Observations in the ledger: small, and exactly what the machine saw."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridaware.control.codec import decode_stimulus, encode
from gridaware.control.stimuli import Tick
from gridaware.domain.errors import InvalidInput
from gridaware.domain.moment import Moment
from gridaware.domain.reading import (
    Boundary,
    GpuObservation,
    JobObservation,
    Method,
    NodeObservation,
    Observation,
    Quality,
    Reading,
)

NOW = Moment(5000.25, datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC))
METER = Reading(17211.7, NOW.wall, Boundary.SITE, Method.METER)


def gpu(index: int, **over: object) -> GpuObservation:
    """A busy GPU of a site of 8 nodes of 8, as its agent reports it."""
    node = index // 8
    seen = GpuObservation(
        gpu_id=f"GPU-6b09b2c2-dcd7-4557-96f4-{index:012d}",
        power_watts=223.4 + index,
        energy_joules=12144.692 + 7.123 * index,
        energy_epoch=f"boot-{node}-1",
        enforced_limit_watts=250.0,
        requested_limit_watts=250.0,
        unmanaged=True,
        cap_binds=False,
    )
    return replace(seen, **over)


def observation(gpus: list[GpuObservation]) -> Observation:
    nodes = [
        NodeObservation(f"node-{n}", 0.04 + n / 100, tuple(gpus[8 * n : 8 * n + 8]))
        for n in range(max(len(gpus) // 8, 1))
    ]
    return Observation(NOW, METER, tuple(nodes), ray_free_gpus=3.0)


def written(tick: Tick) -> str:
    return msgspec.json.encode(encode(tick, NOW), order="sorted").decode()


def read(text: str) -> Tick:
    stimulus, moment = decode_stimulus(json.loads(text))
    assert isinstance(stimulus, Tick)
    assert moment == NOW
    return stimulus


gpus_seen = st.builds(
    GpuObservation,
    gpu_id=st.text(min_size=1, max_size=8),
    power_watts=st.floats(0, 1500),
    energy_joules=st.none() | st.floats(0, 1e12),
    energy_epoch=st.sampled_from(["", "a", "b"]),
    enforced_limit_watts=st.sampled_from([250.0, 181.5, 0.1 + 0.2]),
    requested_limit_watts=st.floats(0, 1500),
    quality=st.sampled_from(Quality),
    job_id=st.none() | st.sampled_from(["j1", "runs"]),
    attempt=st.integers(0, 3),
    shares=st.sampled_from([1.0, 0.5]),
    unmanaged=st.booleans(),
    cap_binds=st.none() | st.booleans(),
)
nodes_seen = st.builds(
    NodeObservation,
    node_id=st.text(max_size=8),
    age_seconds=st.floats(0, 100),
    gpus=st.lists(gpus_seen, max_size=9).map(tuple),
)


@given(st.lists(nodes_seen, max_size=4))
def test_a_tick_comes_back_from_the_ledger_as_it_was(nodes):
    jobs = (JobObservation("j1", 1, 40, 2.5, 0.3),)
    tick = Tick(Observation(NOW, METER, tuple(nodes), jobs))
    assert read(written(tick)) == tick


def test_a_quiet_site_of_64_gpus_takes_less_than_a_third_of_an_object_for_each():
    tick = Tick(observation([gpu(index) for index in range(64)]))
    assert read(written(tick)) == tick
    assert len(written(tick)) < len(msgspec.json.encode(tick)) / 3


def test_a_site_under_limits_with_jobs_on_it_stays_small():
    gpus = [
        gpu(i, job_id=f"job-{i // 16}", attempt=1, enforced_limit_watts=150.0 + i // 16)
        for i in range(64)
    ]
    tick = Tick(observation(gpus))
    assert read(written(tick)) == tick
    assert len(written(tick)) < len(msgspec.json.encode(tick)) / 2.5


def test_equal_values_are_written_once():
    body = json.loads(written(Tick(observation([gpu(index) for index in range(64)]))))
    columns = body["value"]["observation"]["gpus"]
    assert columns["enforced_limit_watts"] == 250.0
    assert columns["energy_epoch"] == {"runs": [[f"boot-{n}-1", 8] for n in range(8)]}
    assert columns.keys().isdisjoint({"quality", "job_id", "shares", "attempt"})


@pytest.mark.parametrize(
    "spoil",
    [
        lambda packed: packed.pop("nodes"),
        lambda packed: packed["nodes"].append(["node-9", 0.0, 3]),
        lambda packed: packed["nodes"].pop(),
        lambda packed: packed["nodes"].append(["node-9", 0.0, 10**12]),
        lambda packed: packed["nodes"].append(["node-9", 0.0, -1]),
        lambda packed: packed["gpus"].update(power_watts=[1.0]),
        lambda packed: packed["gpus"].update(energy_epoch={"runs": [["x", 10**12]]}),
        lambda packed: packed["gpus"].update(energy_epoch={"lengths": []}),
        lambda packed: packed["gpus"].update(quality="splendid"),
        lambda packed: packed.update(gpus=[]),
    ],
)
def test_what_is_no_observation_is_refused(spoil):
    body = json.loads(written(Tick(observation([gpu(index) for index in range(16)]))))
    spoil(body["value"]["observation"])
    with pytest.raises(InvalidInput) as refused:
        decode_stimulus(body)
    assert refused.value.code == "value-malformed"
