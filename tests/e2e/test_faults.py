"""Faults beside the table of test_failsafe.py: the promise holds, and then what was found.

No Ray here: every GPU carries a process that is not ours, which the policy lets be capped.
"""

import subprocess
import sys
import time
from datetime import timedelta

import pytest


def test_a_hung_gpu_and_a_lost_gpu_delay_nobody(bare_site):
    # The first node has GPUs 0 and 1, the second 2 and 3.
    slots = bare_site.slots()
    slots[0].hang_seconds = 30.0
    slots[3].lost = 1
    with bare_site.watching() as truth:
        promise = bare_site.ask(seconds=4.8, reduce_percent=10)
        neighbours_capped = bare_site.until(
            lambda: all(slots[n].requested_watts < promise.found_watts[n] - 1 for n in (1, 2)),
            "the neighbours are capped",
            2,
        )
        assert neighbours_capped
        bare_site.reaches(promise, "ramping_up", "restored", "settled")
        slots[0].hang_seconds, slots[3].lost = 0.0, 0
        bare_site.comes_back(promise)
    bare_site.was_kept(promise, truth, under_caps=False)  # the lost one draws nothing


def test_with_control_gone_for_good_leases_end_and_limits_return_within_the_ramp(bare_site):
    with bare_site.watching() as truth:
        promise = bare_site.ask(seconds=4.8)
        bare_site.reaches(promise, "holding")
        bare_site.kill_serve_for_good()
        bare_site.until(bare_site.is_restored, "every agent lets go by itself", 20)
    bare_site.was_kept(promise, truth)
    bare_site.rose_within_ramp(promise, truth)


@pytest.mark.slow
def test_an_event_known_ahead_begins_though_its_controller_is_gone(bare_site):
    with bare_site.watching() as truth:
        start = bare_site.wall() + timedelta(seconds=4)
        promise = bare_site.ask(seconds=4.8, start=start.isoformat())
        promise.sent_seconds += (start - bare_site.wall()).total_seconds()
        promise.ends_seconds = promise.sent_seconds + 4.8
        time.sleep(2.0)  # the agents have it in hand
        bare_site.kill_serve_for_good()
        assert bare_site.is_restored()
        assert bare_site.now() < promise.sent_seconds
        bare_site.until(lambda: not bare_site.is_restored(), "limits are lowered", 5)
        bare_site.until(bare_site.is_restored, "every agent lets go by itself", 20)
    bare_site.was_kept(promise, truth)
    bare_site.rose_within_ramp(promise, truth)


def test_an_open_end_follows_its_programme_when_the_signal_is_lost(bare_site):
    # The programme holds the last limits for 3 s after control fell silent, then restores.
    with bare_site.watching() as truth:
        promise = bare_site.ask(seconds=0, duration=None, open_end=True)
        bare_site.reaches(promise, "holding")
        bare_site.kill_serve_for_good()
        promise.ends_seconds = truth.samples[-1].seconds + 3.0
        bare_site.until(bare_site.is_restored, "every agent lets go by itself", 20)
    bare_site.was_kept(promise, truth)
    bare_site.restart_serve()
    bare_site.all_connected()
    # Whoever came back keeps the promise again: the event is still open.
    bare_site.until(lambda: not bare_site.is_restored(), "limits are lowered again", 10)
    bare_site.client.opt_out(promise.event_id)
    bare_site.comes_back(promise)


def test_a_second_controller_on_the_same_store_is_refused(bare_site):
    before = bare_site.limits()
    arguments = ["--config", str(bare_site.virtual.settings_file)]
    second = subprocess.run(
        [sys.executable, "-m", "gridaware.wiring.control", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert second.returncode == 4
    assert "error[store-locked]" in second.stderr
    assert str(bare_site.pid_of("gridaware.wiring.control", bare_site.serve)) in second.stderr
    assert "  fix  " in second.stderr
    bare_site.refusal("store-locked", source="controller.start")
    assert bare_site.limits() == before
    assert bare_site.client.status()["nodes"]["connected"] == 2
