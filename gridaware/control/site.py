"""The site as the machine knows it: settings that a decision may depend on."""

from dataclasses import dataclass, field
from datetime import datetime

from gridaware.domain.event import GridEvent
from gridaware.domain.job import Tier
from gridaware.domain.programme import FeedSpec, Programme
from gridaware.domain.target import HardLimit, Overhead, Ramp

__all__ = ["ADMIN_FEED", "LOCAL_FEED", "Policy", "Site"]

ADMIN_FEED = "admin"
"""The feed id of events that a person sends through the API; its authority is unrestricted."""
LOCAL_FEED = "local"
"""``local:PROGRAMME`` is the feed of events that nodes begin by themselves, where the site declares
none of kind ``frequency`` for that programme."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One strategy plus its numbers; what a file in ``policies/`` holds."""

    name: str = "default"
    strategy: str = "tiers"
    params: dict[str, float] = field(default_factory=dict)
    unmanaged_tier: Tier | None = None
    """Tier at which GPUs with processes that are not ours may be capped; None = never."""


@dataclass(frozen=True, slots=True)
class Site:
    """Everything an operator has set that decisions depend on."""

    name: str = "site"
    act: bool = False
    """Until True every plan is shown and nothing is touched."""
    overhead: Overhead = Overhead()
    ramp: Ramp = Ramp()
    hard_limit: HardLimit | None = None
    policy: Policy = field(default_factory=Policy)
    programmes: tuple[Programme, ...] = ()
    """Of a programme with several dated versions each, the oldest first."""
    feeds: tuple[FeedSpec, ...] = ()
    reference_window_seconds: float = 60.0
    """Meter-before: the mean over this long before the first notice."""
    stall_seconds: float = 120.0
    """Without a step for this long a job is stalled."""
    settle_after_seconds: float = 60.0
    """After the restore, so that the report sees the rebound."""

    def programme(self, programme_id: str, at: datetime) -> Programme:
        """The programme by that id as its rules are at an instant.

        A plain one where none was declared. The latest version that has begun, else the first.
        """
        versions = [p for p in self.programmes if p.programme_id == programme_id]
        begun = [p for p in versions if p.valid_from is None or p.valid_from <= at]
        return begun[-1] if begun else versions[0] if versions else Programme(programme_id)

    def rules_of(self, event: GridEvent) -> Programme:
        """An event's programme as its rules are on its day."""
        return self.programme(event.programme_id, event.request.start)

    def programmes_at(self, at: datetime) -> tuple[Programme, ...]:
        """Every declared programme as its rules are at an instant."""
        ids = dict.fromkeys(programme.programme_id for programme in self.programmes)
        return tuple(self.programme(programme_id, at) for programme_id in ids)
