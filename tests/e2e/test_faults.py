"""Whatever is killed, hung, lost or stepped: the promise holds to its end, and then what was found.

No Ray here: every GPU carries a process that is not ours, which the policy lets be capped.
"""

import subprocess
import sys

import pytest

PHASES = ("before", "ramping_down", "holding", "ramping_up")
VICTIMS = ("agent", "driver child", "control", "web", "serve")
MATTER_MOST = {
    ("agent", "ramping_down"),
    ("driver child", "holding"),
    ("control", "ramping_down"),
    ("control", "ramping_up"),
}
"""In `make test`; the rest of the grid in `make test-all`."""
GRID = [
    pytest.param(victim, phase, marks=() if (victim, phase) in MATTER_MOST else pytest.mark.slow)
    for phase in PHASES
    for victim in VICTIMS
]


@pytest.mark.parametrize(("victim", "phase"), GRID)
def test_a_kill_at_any_moment_leaves_the_promise_and_then_the_found_limits(
    bare_site, victim, phase
):
    with bare_site.watching() as truth:
        if phase == "before":
            bare_site.kill(victim)
            bare_site.all_connected()
        promise = bare_site.ask(seconds=4.8)
        if phase != "before":
            bare_site.reaches(promise, phase)
            bare_site.kill(victim)
        bare_site.comes_back(promise)
    bare_site.was_kept(promise, truth)
    assert bare_site.client.event(promise.event_id)["reason"] in {"LimitsRestored", "Settled"}


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
    bare_site.was_kept(promise, truth)


@pytest.mark.parametrize(
    ("serve_seconds", "agent_seconds"),
    [(3600.0, -3600.0), pytest.param(-3600.0, 3600.0, marks=pytest.mark.slow)],
)
def test_a_step_of_the_wall_clock_neither_frees_nor_binds(bare_site, serve_seconds, agent_seconds):
    with bare_site.watching() as truth:
        promise = bare_site.ask(seconds=4.8)
        bare_site.reaches(promise, "holding")
        bare_site.set_wall_offset("serve", serve_seconds)
        bare_site.set_wall_offset("agents", agent_seconds)
        bare_site.comes_back(promise)
    bare_site.was_kept(promise, truth)
    assert truth.samples[-1].seconds < promise.ends_seconds + 15


def test_with_control_gone_for_good_leases_end_and_limits_return_within_the_ramp(bare_site):
    with bare_site.watching() as truth:
        promise = bare_site.ask(seconds=4.8)
        bare_site.reaches(promise, "holding")
        bare_site.kill_serve_for_good()
        bare_site.until(bare_site.is_restored, "every agent lets go by itself", 20)
    bare_site.was_kept(promise, truth)
    assert_within_ramp(bare_site, truth, promise)


def assert_within_ramp(site, truth, promise):
    """No second of the way back rose faster than the site may."""
    per_second = site.ramp_watts_per_minute / 60
    back = truth.between(promise.ends_seconds - 1, float("inf"))
    for first in back:
        later = [s for s in back if 0.9 <= s.seconds - first.seconds <= 1.1]
        if later:
            rose = site.limit_sum_watts(later[0]) - site.limit_sum_watts(first)
            assert rose <= 1.25 * per_second, truth.told(promise)


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
