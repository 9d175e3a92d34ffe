"""The row of docs/failsafe.md that needs a real Ray: its head dies with everything on it."""

import sys

import pytest

from gridaware.sim.failsafe import FAILURES, Phase

JOBS = {"ray-firm": ("firm", 4), "ray-flex": ("flex-2", 4)}
EVENT_SECONDS = 17.0
assert [failure.name for failure in FAILURES if failure.with_jobs] == ["Ray head"]


def submit(site, job_id: str, tier: str, gpus: int) -> None:
    state_dir = site.virtual.home / "jobs" / job_id
    script = site.virtual.example("train_loop.py")
    site.client.submit_job(
        f"{sys.executable} {script} --state-dir {state_dir} --steps 100000 "
        "--step-seconds 0.1 --workload pretrain --save-every 20",
        job_id=job_id,
        gpus=gpus,
        tier=tier,
        expected_seconds=600.0,
        checkpoint_grace_seconds=15.0,
    )


def work(site) -> bool:
    jobs = [site.client.job(job_id) for job_id in JOBS]
    return all(job["state"] in {"running", "capped"} and job["step"] > 5 for job in jobs)


def draws_all(site) -> bool:
    """Whether every GPU works: eight of 320 to 390 W each draw some 3 kW at the meter."""
    return site.is_steady() and site.window.header.true_site_watts > 2500.0


@pytest.fixture(scope="module")
def ray_site(sites, ray_options):
    site = sites.get("ray-head", ray_options, ray=True, loaded=False)
    for job_id, (tier, gpus) in JOBS.items():
        submit(site, job_id, tier, gpus)
    site.until(lambda: work(site), "both jobs step", 60)
    return site


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("phase", list(Phase))
def test_ray_dies_and_no_job_is_lost(ray_site, phase):
    site = ray_site
    site.until(lambda: work(site), "both jobs step", 60)
    site.until(lambda: draws_all(site), "a steady reference", 40)
    before = {job_id: site.client.job(job_id) for job_id in JOBS}
    with site.watching() as truth:
        if phase is Phase.BEFORE:
            site.kill_ray()
            site.virtual.start_ray()
            site.until(lambda: attempts(site) > attempts_of(before), "both begin again", 90)
            site.until(lambda: work(site), "both jobs step", 60)
            site.until(lambda: draws_all(site), "a steady reference", 40)
        promise = site.ask(seconds=EVENT_SECONDS, reduce_percent=20)
        if phase is not Phase.BEFORE:
            site.reaches(promise, phase.value, seconds=40)
            site.kill_ray()
            site.virtual.start_ray()
        site.until(site.is_restored, "found limits", 60)
        site.reaches(promise, "restored", "settled", seconds=60)
    site.was_kept(promise, truth, under_caps=False)  # a dead Ray leaves nothing to cap
    site.until(lambda: attempts(site) > attempts_of(before), "both began again", 90)
    site.until(lambda: work(site), "both jobs step", 60)
    for job_id, was in before.items():
        job = site.client.job(job_id)
        # The event may pause one, too, which is an attempt more; none of it is a failure.
        assert job["attempt"] > was["attempt"]
        assert job["failures"] == 0
        assert "starting at step 0 " not in site.client.job_logs(job_id).splitlines()[-1]
    site.ledger().follow()


def attempts(site) -> int:
    return sum(site.client.job(job_id)["attempt"] for job_id in JOBS)


def attempts_of(jobs) -> int:
    return sum(job["attempt"] for job in jobs.values()) + len(jobs) - 1
