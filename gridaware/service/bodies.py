"""What the API takes: the shape of each request, everything wrong with it told at once.

Shapes are checked here; what the values mean is judged by the domain and by control.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["AuthorityBody", "EventBody", "FeedBody", "JobBody", "ReasonBody", "ReleaseBody"]

_ID = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$")
Id = Annotated[str, _ID]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Body(BaseModel):
    """Strict: no unknown key, no number in quotes, no true for 1."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    def given(self) -> dict[str, Any]:
        """What the caller wrote, without our defaults: control has its own."""
        return self.model_dump(exclude_unset=True)


class AuthorityBody(_Body):
    """The most a feed may ask for; beyond it a request is clamped and waits for a person."""

    least_watts: NotNegative = 0.0
    """The lowest site limit it may set, watts at the site meter."""
    greatest_depth: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 1.0
    """The largest share of the reference it may take away, 0 to 1."""
    hours_per_day: Annotated[float, Field(ge=0, le=24, allow_inf_nan=False)] = 24.0
    least_notice_seconds: NotNegative = 0.0
    """The shortest notice it may give."""


class FeedBody(_Body):
    """A source of signals."""

    feed_id: Id
    kind: Annotated[str, Field(min_length=1, max_length=64)]
    """``webhook``, ``schedule`` or ``file``."""
    programme_id: Id
    """The programme it speaks for."""
    authority: AuthorityBody = AuthorityBody()
    settings: dict[str, Any] = {}
    """The kind's own settings; secrets by reference (``env:NAME`` or ``file:PATH``)."""


class EventBody(_Body):
    """A period in which the site shall draw less. One of end, duration and open_end."""

    id: Id
    revision: Annotated[int, Field(ge=0, le=2**31)] = 0
    """A higher one replaces a lower one."""
    kind: Literal["live", "test", "drill"] = "live"
    start: str
    """RFC 3339 with an offset, or ``now``."""
    end: str | None = None
    duration: str | None = None
    """ISO 8601, such as ``PT1H``."""
    open_end: bool | None = None
    target: dict[str, float]
    """One of ``limit_kw``, ``limit_percent_of_baseline``, ``reduce_kw``, ``reduce_percent``."""
    priority: Annotated[int, Field(ge=0, le=2**31)] | None = None
    """Lower wins within one programme."""


class JobBody(_Body):
    """A job that Ray will run."""

    job_id: Id
    entrypoint: Annotated[str, Field(min_length=1, max_length=16384)]
    """The command line."""
    gpus: Annotated[int, Field(ge=0, le=1_000_000)]
    """How many it takes, all at once. The controller allows fewer, and keeps its refusals."""
    tier: Literal["firm", "flex-1", "flex-2", "flex-3", "preemptible"] = "firm"
    """How much mean throughput it may lose over 6 h: 0, 10, 25, 50 or 100 %."""
    team: Id = "default"
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Higher starts first and is shed last."""
    placement: Literal["entrypoint", "workers"] = "entrypoint"
    """Whose GPUs they are: the entrypoint's own, or those its Ray workers ask for."""
    workload: Annotated[str, Field(max_length=64)] | None = None
    """Name of a cap-to-throughput class; a generic one where unset."""
    pausable: bool = True
    """Whether it honours checkpoint requests (it uses ``gridaware.train``)."""
    min_cap_watts: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The owner's own floor for the cap of each GPU."""
    checkpoint_grace_seconds: Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)] = 60.0
    expected_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Declared running time."""
    max_retries: Annotated[int, Field(ge=0, le=1000)] = 0
    runtime_env: dict[str, Any] = {}
    """Ray's own."""
    metadata: dict[str, str] = {}
    entrypoint_num_cpus: NotNegative = 0.0
    entrypoint_resources: dict[str, NotNegative] = {}
    cluster_id: Id = "default"
    may_stop: bool = False
    """Whether it may be stopped, and queued again, where nothing milder meets what binds."""


class ReasonBody(_Body):
    """Why a person does this."""

    reason: Annotated[str, Field(min_length=1, max_length=400)] | None = None
    """Kept in the ledger with the person's name."""


class ReleaseBody(_Body):
    """Whether a release may break what acting events ask."""

    confirm: Literal["opt out"] | None = None
    """Opts out of every acting event; without it they forbid a release."""
    reason: Annotated[str, Field(max_length=200)] = ""
    """Told to the programmes beside the name of whoever releases."""
    at_once: bool = False
    """Faster than the site's ramp allows; only with ``confirm``."""
