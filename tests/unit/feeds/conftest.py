"""What the tests of feeds share: a clock turned by hand, and a place for refusals."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import GridawareError
from gridaware.domain.programme import FeedSpec
from gridaware.feeds import Feed, FeedContext, open_feed

NOW = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def refusals() -> list[tuple[GridawareError, str]]:
    return []


@pytest.fixture
def opened(
    clock: ManualClock, refusals: list[tuple[GridawareError, str]]
) -> Callable[..., Feed[Any]]:
    """Opens a feed of a kind with settings, registered now."""

    def open_it(kind: str, **settings: object) -> Feed[Any]:
        context = FeedContext(
            "utility", clock, clock.wall(), lambda error, raw: refusals.append((error, raw))
        )
        spec = FeedSpec("utility", kind, "emergency", settings_json=json.dumps(settings))
        return open_feed(spec, context)

    return open_it
