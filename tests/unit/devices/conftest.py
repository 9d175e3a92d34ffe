"""A virtual node, and a clock that is turned by hand."""

from datetime import UTC, datetime

import pytest

from gridaware.clock import ManualClock
from gridaware.sim.plant import Plant
from gridaware.sim.site import NodeSpec, PlantSpec, build_window

SPEC = PlantSpec((NodeSpec("h100-700", 2),))


@pytest.fixture
def clock():
    return ManualClock(datetime(2026, 7, 1, 12, tzinfo=UTC))


@pytest.fixture
def window():
    """Two idle GPUs, 5 s after their start."""
    window = build_window(SPEC, 3)
    Plant(window, SPEC, 3).advance(5.0)
    return window
