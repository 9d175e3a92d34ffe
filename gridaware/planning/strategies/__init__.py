"""The strategies. Each is one file that registers itself; a policy names one."""

from gridaware.planning.strategies import proportional, tiers
from gridaware.planning.strategy import STRATEGIES, Params, Strategy

__all__ = ["STRATEGIES", "Params", "Strategy", "proportional", "tiers"]
