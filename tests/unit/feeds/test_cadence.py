"""The cadence of polls: what it leaves out of the log."""

import logging
import threading

import pytest

from gridaware.clock import SystemClock
from gridaware.feeds.cadence import Cadence


def test_a_poll_leaves_no_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """APScheduler tells of each run twice, with the internals of its trigger."""
    polled = threading.Event()
    cadence = Cadence(SystemClock())
    with caplog.at_level(logging.INFO):
        cadence.add("schedule", 3600.0, polled.set, lambda: False)
        cadence.start()
        assert polled.wait(10)
        cadence.stop()
    assert caplog.records == []
