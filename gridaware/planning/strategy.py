"""What a strategy is: a pure function from a Situation and its numbers to a Plan."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Protocol

from gridaware.domain.errors import ConfigError
from gridaware.domain.plan import Plan
from gridaware.domain.registry import Registry
from gridaware.domain.situation import Situation

__all__ = ["STRATEGIES", "Params", "Strategy"]


@dataclass(frozen=True, slots=True)
class Params:
    """The numbers of a policy. Each file in ``policies/`` says why its values are so."""

    dwell_seconds: float = 120.0
    """A job that came back is not paused again sooner than this while other means are left."""
    rest_seconds: float = 600.0
    """A paused job does not come back sooner than this while a target holds."""
    resume_margin: float = 0.10
    """While a target holds, a paused job counts as drawing this share more than it would, so that
    it comes back only where there is clearly room."""
    band: float = 0.05
    """Delivered beyond what was asked, as a share of it, that is still worth a cheaper plan."""
    pause: float = 1.0
    """0 = never pause; caps only."""

    @classmethod
    def of(cls, numbers: Mapping[str, float]) -> "Params":
        """Defaults, overridden by a policy's numbers.

        Raises:
            ConfigError: a name is unknown, or a value is negative or no number.
        """
        known = {field.name for field in fields(cls)}
        for name, value in numbers.items():
            if name not in known:
                raise ConfigError("policy-param-unknown", f"no number is called {name!r}")
            if not (isfinite(value) and value >= 0):
                raise ConfigError("policy-param-range", f"{name} must be 0 or more, not {value}")
        return cls(**numbers)


class Strategy(Protocol):
    """Decides who gives up how much. Pure: the same question always has the same answer."""

    def __call__(self, situation: Situation, params: Mapping[str, float]) -> Plan:
        """The plan for a situation, with the numbers of a policy."""
        ...


STRATEGIES: Registry[Strategy] = Registry("strategy")
"""Every strategy, by the name that a policy gives it."""
