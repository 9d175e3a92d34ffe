"""What OpenADR's SIMPLE levels ask for, in 2.0b and in 3, unless a feed's settings differ."""

from collections.abc import Mapping
from typing import Literal

__all__ = ["LEVELS"]

LEVELS: Mapping[Literal["1", "2", "3"], Mapping[str, float]] = {
    "1": {"reduce_percent": 10},
    "2": {"reduce_percent": 25},
    "3": {"reduce_percent": 50},
}
"""The depths to which the tiers flex-1 to flex-3 may be slowed."""
