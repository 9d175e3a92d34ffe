"""Points of the outstation, without a connection: what cannot be shown, and what is no command."""

from datetime import UTC, datetime
from typing import Any

import pytest
from dnp3.core.enums import ControlCode
from dnp3.core.flags import AnalogQuality

from gridaware.clock import ManualClock
from gridaware.control.ports import FeedTelemetry
from gridaware.domain.signal import Signal
from gridaware.feeds.dnp3 import Dnp3, Dnp3Settings
from gridaware.feeds.dnp3_points import LIMIT, SITE
from gridaware.feeds.kind import FeedContext

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def outstation(**settings: Any) -> Any:
    given = Dnp3Settings.model_validate({"neutral_kw": 1000.0, **settings})
    return Dnp3(FeedContext("scada", ManualClock(NOW), NOW, lambda *_: None), given)


@pytest.mark.parametrize(("watts", "shown"), [(1e12, 2**31 - 1), (-1e12, -(2**31) + 1)])
def test_power_beyond_32_bits_keeps_its_sign_and_is_flagged(watts: float, shown: int) -> None:
    feed = outstation(watts_per_count=1.0)
    feed.report(FeedTelemetry(NOW, 1.0, watts, "good", None, True, ()))
    point = feed._points.database.get_analog_input(SITE)
    assert point.value == shown
    assert point.quality == AnalogQuality.ONLINE | AnalogQuality.OVER_RANGE


def test_a_unit_too_small_for_any_number_is_beyond_range_too() -> None:
    point = outstation(watts_per_count=1e-305)._points.database.get_analog_input(LIMIT)
    assert point.quality & AnalogQuality.OVER_RANGE


def test_a_control_to_be_executed_no_times_is_not_executed() -> None:
    """IEEE 1815-2012, annex A.8.1: the count of a control relay output block."""
    feed = outstation(emergency_index=0, emergency_target={"limit_kw": 200.0})
    signals: list[Signal] = []
    feed._emit = signals.append
    commands = feed._points.runner(feed, lambda: None).outstation.handler
    said = commands.direct_operate_binary_output(0, ControlCode.LATCH_ON, 0, 0, 0)
    assert said.status.name == "NOT_SUPPORTED"
    assert signals == []
    assert commands.direct_operate_binary_output(0, ControlCode.LATCH_ON, 1, 0, 0).status == 0
    assert len(signals) == 1
