"""What people ask for, as JSON objects, made into the machine's own values: strict and bounded."""

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from gridaware.domain.errors import InvalidInput
from gridaware.domain.eventjson import refuse_unknown_keys
from gridaware.domain.job import JobSpec
from gridaware.domain.programme import Authority, FeedSpec
from gridaware.domain.signal import check_id

__all__ = ["feed_spec_of", "job_spec_of"]

GPUS_AT_MOST = 100_000
TEXT_AT_MOST = 32_768
_JOB_KEYS = (*JobSpec.__dataclass_fields__, "runtime_env")
_FEED_KEYS = ("feed_id", "kind", "programme_id", "authority", "settings")


def job_spec_of(request: Mapping[str, Any]) -> JobSpec:
    """A job from the body of a request; the fields are those of :class:`JobSpec`.

    ``runtime_env`` and ``metadata`` are objects; ``entrypoint_resources`` too.

    Raises:
        InvalidInput: a key is unknown, or a value is not what its key takes.
    """
    values = dict(request)
    refuse_unknown_keys(values, tuple(k for k in _JOB_KEYS if k != "runtime_env_json"), "job")
    runtime_env = values.pop("runtime_env", None) or {}
    if not isinstance(runtime_env, dict):
        raise InvalidInput("job-runtime-env", "runtime_env must be an object")
    values["runtime_env_json"] = json.dumps(runtime_env, sort_keys=True, separators=(",", ":"))
    for key in ("metadata", "entrypoint_resources"):
        table = values.pop(key, None) or {}
        if not isinstance(table, dict):
            raise InvalidInput("job-field-type", f"{key} must be an object", field=key)
        values[key] = sorted(table.items())
    try:
        spec = msgspec.convert(values, JobSpec)
    except msgspec.ValidationError as error:
        raise InvalidInput("job-field-type", f"the job is not well-formed: {error}") from error
    _check_job(spec)
    return spec


def _check_job(spec: JobSpec) -> None:
    check_id("job", spec.job_id)
    check_id("team", spec.team)
    if not spec.entrypoint.strip() or len(spec.entrypoint) > TEXT_AT_MOST:
        raise InvalidInput("job-entrypoint", "the entrypoint must be 1 to 32768 characters")
    if "\0" in spec.entrypoint:
        raise InvalidInput("job-entrypoint", "the entrypoint must not contain NUL")
    if not 1 <= spec.gpus <= GPUS_AT_MOST:
        raise InvalidInput("job-gpus", f"gpus must be 1 to {GPUS_AT_MOST}, not {spec.gpus}")
    if not -1000 <= spec.priority <= 1000:
        raise InvalidInput("job-priority", "priority must be -1000 to 1000")
    if not 0 <= spec.max_retries <= 100:
        raise InvalidInput("job-retries", "max_retries must be 0 to 100")
    _check_number("checkpoint_grace_seconds", spec.checkpoint_grace_seconds, 1.0, 86400.0)
    _check_number("expected_seconds", spec.expected_seconds, 1.0, 366 * 86400.0)
    _check_number("min_cap_watts", spec.min_cap_watts, 1.0, 5000.0)
    _check_number("entrypoint_num_cpus", spec.entrypoint_num_cpus, 0.0, 4096.0)
    if len(spec.runtime_env_json) > TEXT_AT_MOST or len(spec.metadata) > 64:
        raise InvalidInput("job-too-long", "runtime_env or metadata is too long")


def _check_number(name: str, value: float | None, least: float, most: float) -> None:
    if value is not None and not (math.isfinite(value) and least <= value <= most):
        raise InvalidInput(
            "job-number-range", f"{name} must be {least:g} to {most:g}, not {value:g}", field=name
        )


def feed_spec_of(request: Mapping[str, Any]) -> FeedSpec:
    """A feed from the body of a request: ``feed_id, kind, programme_id, authority, settings``.

    Raises:
        InvalidInput: a key is unknown, or a value is not what its key takes.
    """
    values = dict(request)
    refuse_unknown_keys(values, _FEED_KEYS, "feed")
    settings = values.pop("settings", None) or {}
    if not isinstance(settings, dict):
        raise InvalidInput("feed-field-type", "settings must be an object")
    values["settings_json"] = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    authority = values.get("authority") or {}
    if isinstance(authority, dict):
        refuse_unknown_keys(authority, tuple(Authority.__dataclass_fields__), "authority")
    values["authority"] = authority
    values.setdefault("programme_id", values.get("feed_id"))
    try:
        spec = msgspec.convert(values, FeedSpec)
    except msgspec.ValidationError as error:
        raise InvalidInput("feed-field-type", f"the feed is not well-formed: {error}") from error
    check_id("feed", spec.feed_id)
    check_id("programme", spec.programme_id)
    return spec
