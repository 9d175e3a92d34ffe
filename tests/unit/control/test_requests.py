"""Bad input from people: each case with its stable code."""

import pytest

from gridaware.control.requests import feed_spec_of, job_spec_of
from gridaware.domain.errors import InvalidInput
from gridaware.domain.job import Tier

JOB = {"job_id": "a", "entrypoint": "python x.py", "gpus": 2}
FEED = {"feed_id": "f", "kind": "webhook"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"gpu": 3}, "job-key-unknown"),
        ({"runtime_env": []}, None),
        ({"runtime_env": "x"}, "job-runtime-env"),
        ({"metadata": "x"}, "job-field-type"),
        ({"entrypoint_resources": 3}, "job-field-type"),
        ({"gpus": "2"}, "job-field-type"),
        ({"tier": "flex-9"}, "job-field-type"),
        ({"job_id": "../x"}, "job-id-malformed"),
        ({"team": ""}, "team-id-malformed"),
        ({"entrypoint": "  "}, "job-entrypoint"),
        ({"entrypoint": "a\0b"}, "job-entrypoint"),
        ({"entrypoint": "x" * 40_000}, "job-entrypoint"),
        ({"gpus": 0}, "job-gpus"),
        ({"gpus": 200_000}, "job-gpus"),
        ({"priority": 5000}, "job-priority"),
        ({"max_retries": -1}, "job-retries"),
        ({"checkpoint_grace_seconds": float("nan")}, "job-number-range"),
        ({"checkpoint_grace_seconds": 0.0}, "job-number-range"),
        ({"expected_seconds": -5.0}, "job-number-range"),
        ({"min_cap_watts": 1e9}, "job-number-range"),
        ({"entrypoint_num_cpus": float("inf")}, "job-number-range"),
        ({"metadata": {str(n): "v" for n in range(65)}}, "job-too-long"),
        ({"runtime_env": {"a": "x" * 40_000}}, "job-too-long"),
    ],
)
def test_a_malformed_job_is_refused_by_its_code(change: dict, code: str | None) -> None:
    if code is None:
        assert job_spec_of(JOB | change).runtime_env_json == "{}"
        return
    with pytest.raises(InvalidInput) as refused:
        job_spec_of(JOB | change)
    assert refused.value.code == code


def test_a_whole_job_is_read() -> None:
    spec = job_spec_of(
        JOB
        | {
            "tier": "flex-2",
            "metadata": {"b": "2", "a": "1"},
            "runtime_env": {"env_vars": {"X": "1"}},
            "entrypoint_resources": {"disk": 1.0},
        }
    )
    assert spec.tier is Tier.FLEX_2
    assert spec.metadata == (("a", "1"), ("b", "2"))
    assert spec.runtime_env_json == '{"env_vars":{"X":"1"}}'
    assert spec.entrypoint_resources == (("disk", 1.0),)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"colour": "red"}, "feed-key-unknown"),
        ({"settings": []}, None),
        ({"settings": "x"}, "feed-field-type"),
        ({"authority": "all"}, "feed-field-type"),
        ({"authority": {"depth": 1}}, "authority-key-unknown"),
        ({"authority": {"greatest_depth": "deep"}}, "feed-field-type"),
        ({"feed_id": "f/g"}, "feed-id-malformed"),
        ({"programme_id": ""}, "programme-id-malformed"),
    ],
)
def test_a_malformed_feed_is_refused_by_its_code(change: dict, code: str | None) -> None:
    if code is None:
        assert feed_spec_of(FEED | change).settings_json == "{}"
        return
    with pytest.raises(InvalidInput) as refused:
        feed_spec_of(FEED | change)
    assert refused.value.code == code


def test_a_feed_stands_alone_as_its_programme_unless_told() -> None:
    spec = feed_spec_of(FEED | {"authority": {"greatest_depth": 0.3}})
    assert (spec.programme_id, spec.authority.greatest_depth) == ("f", 0.3)
