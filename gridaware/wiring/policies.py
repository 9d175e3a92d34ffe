"""Reads ``policies/``: one YAML file a policy, naming one strategy and its numbers."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gridaware.control.site import Policy
from gridaware.domain.errors import ConfigError, GridawareError, NotFound
from gridaware.domain.job import JobState, Tier
from gridaware.domain.situation import JobView, Situation
from gridaware.planning.model import CurveBook
from gridaware.planning.strategies import STRATEGIES
from gridaware.planning.strategy import Params
from gridaware.wiring.data import data_path
from gridaware.wiring.settings_errors import Complaint, complaints_of, refusal
from gridaware.wiring.settings_file import read_settings_file

__all__ = ["load_policies", "load_policy", "read_policy", "rehearse"]


class _PolicyFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: str = Field(min_length=1, max_length=64)
    description: str = ""
    strategy: str
    params: dict[str, float] = {}
    unmanaged_tier: Literal[Tier.FLEX_1, Tier.FLEX_2, Tier.FLEX_3, Tier.PREEMPTIBLE] | None = None


def load_policies(folder: Path | None = None) -> tuple[Policy, ...]:
    """Every policy of a folder; None = those that come with gridaware.

    Raises:
        ConfigError: a file is malformed; every complaint has its line.
    """
    place = data_path("policies") if folder is None else folder
    return tuple(read_policy(path) for path in sorted(place.glob("*.yaml")))


def load_policy(name: str, folder: Path | None = None) -> Policy:
    """The policy called ``name``.

    Raises:
        NotFound: there is none; the message names those that exist.
        ConfigError: its file is malformed.
    """
    policies = load_policies(folder)
    for policy in policies:
        if policy.name == name:
            return policy
    known = ", ".join(policy.name for policy in policies)
    raise NotFound("policy-unknown", f"there is no policy called {name!r}; known: {known}")


def read_policy(path: Path) -> Policy:
    """One policy file, its strategy and numbers checked.

    Raises:
        ConfigError: it is malformed; every complaint has its line.
    """
    file = read_settings_file(path)
    try:
        read = _PolicyFile.model_validate(dict(file.values))
    except ValidationError as error:
        raise refusal(file, complaints_of(error, _PolicyFile)) from error
    complaints = []
    try:
        STRATEGIES.get(read.strategy)
    except GridawareError as error:
        complaints.append(Complaint(("strategy",), f"is {read.strategy!r}: {error.message}"))
    for name, value in read.params.items():
        try:
            Params.of({name: value})
        except ConfigError as error:
            complaints.append(Complaint(("params", name), f"is {value:g}: {error.message}"))
    if complaints or file.duplicates:
        raise refusal(file, complaints)
    return Policy(read.name, read.strategy, dict(read.params), read.unmanaged_tier)


def rehearse(policy: Policy, book: CurveBook) -> None:
    """Plan once for an invented job.

    What planning loads at first use is then there when the first signal comes.
    """
    gpu = book.entries[0].gpu
    job = JobView(
        job_id="rehearsal",
        tier=Tier.PREEMPTIBLE,
        priority=0,
        state=JobState.RUNNING,
        gpu_count=1,
        draw_watts=gpu.greatest_watts,
        cap_watts=gpu.greatest_watts,
        found_watts=gpu.greatest_watts,
        least_cap_watts=gpu.least_watts,
        curve=book.curve(gpu.name, None, gpu.limits),
        loss_budget_seconds=0.0,
        pausable=False,
    )
    situation = Situation((job,), 0.0, 0.8 * gpu.greatest_watts, 60.0)
    STRATEGIES.get(policy.strategy)(situation, policy.params)
