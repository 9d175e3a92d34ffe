"""Jobs on a real Ray through a whole event, and through the death of their controller."""

import csv
import io
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gridaware.clock import SystemClock
from gridaware.domain.errors import GridawareError
from gridaware.service.render import report_of, write_report_files
from gridaware.train.files import load_checkpoint, manifest_path

JOBS = {"firm": 2, "flex-3": 3, "flex-2": 3}
CLOCK = SystemClock()
STEP_SECONDS = 0.1
EVENT_SECONDS = 11.0


@dataclass
class Story:
    """One event as it was seen from outside, while it went on."""

    site: Any
    promise: Any
    truth: Any
    seen: list[tuple[float, Mapping[str, Any]]] = field(default_factory=list)
    """Seconds and jobs by id, several times a second."""
    report: Mapping[str, Any] = field(default_factory=dict)

    def states(self, job_id: str) -> list[str]:
        """The states a job went through, each once."""
        found: list[str] = []
        for _, jobs in self.seen:
            state = jobs[job_id]["state"]
            if not found or found[-1] != state:
                found.append(state)
        return found

    def paused(self) -> Mapping[str, Any]:
        """The flex-3 job as it was while paused."""
        return next(jobs["flex-3"] for _, jobs in self.seen if jobs["flex-3"]["state"] == "paused")


def submit(site, job_id: str, gpus: int, **more: Any) -> None:
    state_dir = site.virtual.home / "jobs" / job_id
    script = site.virtual.example("train_loop.py")
    site.client.submit_job(
        f"{sys.executable} {script} --state-dir {state_dir} --steps 100000 "
        f"--step-seconds {STEP_SECONDS} --workload pretrain --save-every 0",
        job_id=job_id,
        gpus=gpus,
        **({"tier": job_id, "expected_seconds": 600.0, "checkpoint_grace_seconds": 15.0} | more),
    )


def is_stepping(site, *job_ids: str) -> bool:
    jobs = [site.client.job(job_id) for job_id in job_ids]
    return all(job["state"] == "running" and job["step"] > 20 for job in jobs)


def watch(story: Story, *states: str, seconds: float) -> None:
    """Look at the jobs until the event is in one of these states."""
    site = story.site

    def look() -> bool:
        jobs = {job_id: site.client.job(job_id) for job_id in JOBS}
        story.seen.append((CLOCK.monotonic_seconds(), jobs))
        return site.client.event(story.promise.event_id)["state"] in states

    site.until(look, f"{story.promise.event_id} is {states}", seconds)


@pytest.fixture(scope="module")
def story(sites, ray_options) -> Story:
    """Two jobs are training when a signed webhook asks for 35 % less for 11 s."""
    site = sites.get("ray", ray_options, ray=True, loaded=False)
    for job_id, gpus in JOBS.items():
        submit(site, job_id, gpus)
    site.until(lambda: is_stepping(site, *JOBS), "both jobs step", 60)
    site.until(site.is_steady, "a steady reference", 20)
    with site.watching() as truth:
        promise = site.ask(seconds=EVENT_SECONDS, reduce_percent=35)
        told = Story(site, promise, truth)
        watch(told, "settled", seconds=90)
        site.until(lambda: is_stepping(site, *JOBS), "both jobs go on", 30)
        told.report = site.until(
            lambda: final_report(site, promise.event_id), "the final report", 30
        )
    return told


def final_report(site, event_id: str) -> Mapping[str, Any] | None:
    try:
        report = site.client.event_report(event_id)
    except GridawareError:
        return None
    return report if report["final"] else None


def gpus_of(site, job_id: str) -> list[int]:
    """Numbers of a job's GPUs among the site's."""
    held = {gpu["gpu_id"] for gpu in site.client.gpus() if gpu["job_id"] == job_id}
    return [n for n, slot in enumerate(site.slots()) if slot.uuid.decode() in held]


@pytest.mark.timeout(180)
def test_the_promise_is_kept_and_then_the_found_limits_stand(story):
    story.site.was_kept(story.promise, story.truth)
    assert story.site.is_restored()


def test_caps_fall_first_and_a_pause_follows(story):
    capped = next(s for s in story.truth.samples if s.limits_watts != story.promise.found_watts)
    paused = next(at for at, jobs in story.seen if jobs["flex-3"]["state"] == "paused")
    assert capped.seconds - story.promise.sent_seconds < 1.0
    assert capped.seconds < paused


def test_the_most_flexible_job_pauses_and_resumes_at_exactly_the_step_it_saved(story):
    assert [s for s in story.states("flex-3") if s != "capped"] == [
        "running",
        "pausing",
        "paused",
        "resuming",
        "running",
    ]
    saved = story.paused()["saved_step"]
    (pause,) = story.report["pauses"]
    assert (pause["step_saved"], pause["step_resumed"], pause["outcome"]) == (saved, saved, "left")
    manifest = load_checkpoint(manifest_path(Path(pause["checkpoint_path"]))).manifest
    assert (manifest.job_id, manifest.attempt, manifest.step) == ("flex-3", 1, saved)
    assert manifest.request_id == pause["request_id"]
    # In the job's own words, from both attempts.
    logs = story.site.client.job_logs("flex-3")
    pauses = [int(n) for n in re.findall(r"pausing at step (\d+)", logs)]
    starts = [int(n) for n in re.findall(r"starting at step (\d+)", logs)]
    assert pauses == [saved]
    assert starts == [0, saved]


def test_while_it_is_paused_its_gpus_draw_nothing_but_idle_power(story):
    at = [s for s, jobs in story.seen if jobs["flex-3"]["state"] == "paused"]
    firm_and_flex_2 = 5  # GPUs of the other two
    for sample in story.truth.between(at[0] + 0.5, at[-1]):
        assert sum(watts > 130.0 for watts in sample.gpu_watts) <= firm_and_flex_2


def test_the_firm_job_loses_nothing(story):
    assert story.states("firm") == ["running"]
    numbers = gpus_of(story.site, "firm")
    assert len(numbers) == JOBS["firm"]
    for sample in story.truth.samples:
        for n in numbers:
            assert sample.limits_watts[n] == story.promise.found_watts[n]


def test_every_job_says_why_in_one_sentence(story):
    for job_id, said in (("flex-3", "save and leave"), ("firm", "is firm")):
        sentences = {jobs[job_id]["plan_why"] for _, jobs in story.seen}
        assert any(said in (sentence or "").lower() for sentence in sentences), sentences
    explained = story.site.client.explain_job("flex-3")
    assert explained["why"]


def test_the_report_has_four_clocks_and_no_interval_missed(story):
    report = story.report
    decided, accepted, confirmed = (
        report["latencies"][f"{name}_ms"] for name in ("decided", "accepted", "confirmed")
    )
    assert 0 < decided <= accepted
    below = first_calm(story, 0.995 * story.promise.limit_watts, 2.2)
    assert below is None or accepted <= confirmed <= 1e3 * (below + 1.0)
    scored = [i for i in report["delivery"]["intervals"] if i["scored"]]
    assert scored
    most = 0.05 if story.truth.stalled else 0.0  # a machine that stands still is no controller
    assert all(i["shortfall_watts"] <= most * i["owed_watts"] for i in scored), scored
    assert report["unresolved_watts"] == 0
    assert report["reference"]["watts"] == pytest.approx(story.promise.limit_watts / 0.65)
    # The plant's true power, which nobody below the test has seen.
    start = story.promise.sent_seconds + 5
    truth = [s.site_watts for s in story.truth.between(start, start + 6)]
    assert scored[0]["mean_watts"] == pytest.approx(sum(truth) / len(truth), rel=0.01)


def first_calm(story, watts: float, seconds: float) -> float | None:
    """Seconds after the signal from which true power stayed below ``watts`` that long."""
    since: float | None = None
    for sample in story.truth.between(story.promise.sent_seconds, story.promise.ends_seconds):
        if sample.site_watts > watts:
            since = None
        elif since is None:
            since = sample.seconds
        elif sample.seconds - since >= seconds:
            return since - story.promise.sent_seconds
    return None


def test_energy_sums_to_the_meter_to_the_joule(story):
    energy = story.report["energy"]
    lines = {line["name"]: line["joules"] for line in energy["lines"]}
    assert set(lines) == {
        "job",
        "held_idle",
        "unallocated",
        "unmanaged",
        "overhead",
        "unexplained",
    }
    assert sum(lines.values()) == pytest.approx(energy["meter"]["joules"], abs=1.0)
    assert sum(job["running"]["joules"] for job in energy["jobs"]) == pytest.approx(
        lines["job"], abs=1.0
    )
    assert {job["job_id"] for job in energy["jobs"]} == set(JOBS)
    assert sum(gpu["joules"] for gpu in energy["gpus"]) == pytest.approx(
        sum(lines[name] for name in ("job", "held_idle", "unallocated", "unmanaged")), abs=1.0
    )


def test_the_report_becomes_files_that_need_nothing_else(story, tmp_path):
    files = write_report_files(report_of(story.report), tmp_path)
    assert {file.suffix for file in files} == {".json", ".csv", ".html"}
    texts = {file.name: file.read_text("utf-8") for file in files}
    stem = f"event-{story.promise.event_id}"
    assert json.loads(texts[f"{stem}.json"])["event_id"] == story.promise.event_id
    jobs = [text for name, text in texts.items() if name.endswith("-jobs.csv")]
    for text in jobs:
        rows = list(csv.DictReader(io.StringIO(text)))
        assert {row["job_id"] for row in rows} == set(JOBS)
    assert jobs
    page = texts[f"{stem}.html"]
    assert "<svg" in page or "data:image" in page
    assert not re.search(r"(src|href)=.https?:", page)
    client, event_id = story.site.client, story.promise.event_id
    intervals = list(csv.DictReader(io.StringIO(client.event_report_file(event_id, "csv"))))
    assert len(intervals) == len(story.report["delivery"]["intervals"])
    assert "<html" in client.event_report_file(event_id, "html")


@pytest.mark.timeout(120)
def test_jobs_and_promise_outlive_their_controller(story):
    site = story.site
    with site.watching() as truth:
        promise = site.ask(seconds=17, reduce_percent=35)  # two whole settlement intervals
        site.until(lambda: site.client.job("flex-3")["state"] == "paused", "the pause", 15)
        paused, firm = site.client.job("flex-3"), site.client.job("firm")
        site.kill("control")
        site.all_connected()
        assert site.client.event(promise.event_id)["state"] in {"ramping_down", "holding"}
        site.comes_back(promise)
        site.until(lambda: is_stepping(site, *JOBS), "all jobs go on", 30)
    # A new controller's first plans are off by what the curves do not say of these jobs.
    site.was_kept(promise, truth, error=0.03)
    again = site.client.job("flex-3")
    assert again["attempt"] == paused["attempt"] + 1
    assert f"starting at step {paused['saved_step']} " in site.client.job_logs("flex-3")
    # The firm job never noticed: the same attempt, further on.
    assert site.client.job("firm")["attempt"] == firm["attempt"] == 1
    assert site.client.job("firm")["step"] > firm["step"]
    assert final_report(site, promise.event_id) or site.until(
        lambda: final_report(site, promise.event_id), "one more report", 30
    )


def test_an_entrypoint_that_does_not_exist_fails_alone_and_says_so(story):
    site = story.site
    site.client.stop_job("flex-3")
    site.until(lambda: site.client.job("flex-3")["state"] == "cancelled", "it is stopped", 20)
    submit_missing = f"{sys.executable} /no/such/train.py"
    site.client.submit_job(submit_missing, job_id="missing", gpus=1)
    site.until(lambda: site.client.job("missing")["state"] == "failed", "it fails", 30)
    assert "No such file" in site.client.job_logs("missing")
    assert site.client.job("missing")["exit_code"] == 2
    assert site.client.job("missing")["why"]
    assert is_stepping(site, "firm", "flex-2")


def test_more_gpus_than_the_cluster_has_are_refused(story):
    with pytest.raises(GridawareError) as refused:
        submit(story.site, "greedy", 9, tier="firm")
    assert refused.value.code == "job-too-large"
    story.site.refusal("job-too-large")
    assert is_stepping(story.site, "firm", "flex-2")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_five_actors_of_one_job_pause_at_one_step_and_come_back(story):
    site = story.site
    for job_id in ("flex-3", "flex-2"):
        if site.client.job(job_id)["state"] != "cancelled":
            site.client.stop_job(job_id)
        site.until(lambda j=job_id: site.client.job(j)["state"] == "cancelled", "it stops", 30)
    script = site.virtual.example("train_workers.py")
    state_dir = site.virtual.home / "jobs" / "actors"
    site.client.submit_job(
        f"{sys.executable} {script} --state-dir {state_dir} --steps 100000 "
        f"--step-seconds {STEP_SECONDS} --workload pretrain",
        job_id="actors",
        gpus=5,
        tier="flex-3",
        placement="workers",
        checkpoint_grace_seconds=20.0,
        expected_seconds=600.0,
    )
    site.until(lambda: is_stepping(site, "actors"), "five actors step", 60)
    site.until(lambda: len(gpus_of(site, "actors")) == 5, "five GPUs are its own", 10)
    numbers = gpus_of(site, "actors")
    site.client.pause_job("actors")
    site.until(lambda: site.client.job("actors")["state"] == "paused", "all have left", 40)
    paused = site.client.job("actors")
    slots = [site.slots()[n] for n in numbers]
    site.until(lambda: all(slot.true_watts < 130 for slot in slots), "their watts are gone", 5)
    site.client.resume_job("actors")
    site.until(
        lambda: site.client.job("actors")["step"] > paused["saved_step"], "they step again", 60
    )
    logs = site.client.job_logs("actors")
    assert f"pausing at step {paused['saved_step']}:" in logs
    assert f"starting at step {paused['saved_step']} of" in logs
    assert site.client.job("actors")["attempt"] == 2
    site.until(lambda: len(gpus_of(site, "actors")) == 5, "five GPUs are its own", 10)
