"""The Python SDK: what the command line can do over the API, a program can do too.

::

    from gridaware import Client

    client = Client("http://127.0.0.1:8780", api_key="...")
    job = client.submit_job("python train.py", gpus=8, tier="flex-2")
    client.send_event(target={"reduce_percent": 25}, duration="PT1H", kind="test")

A refusal of the server is raised as the same error that the server raised
(:mod:`gridaware.domain.errors`), with its code, facts and ``retryable``.
"""

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Self, cast

from gridaware.client.shapes import (
    AdvisoryInfo,
    Answer,
    EnergyReport,
    EventInfo,
    FeedInfo,
    GpuInfo,
    JobInfo,
    Json,
    NodeInfo,
    PolicyInfo,
    PowerPoint,
    ProgrammeInfo,
    Status,
)
from gridaware.client.transport import Transport, decoded, part
from gridaware.domain.errors import InvalidInput

__all__ = [
    "AdvisoryInfo",
    "Answer",
    "Client",
    "EnergyReport",
    "EventInfo",
    "FeedInfo",
    "GpuInfo",
    "JobInfo",
    "NodeInfo",
    "PolicyInfo",
    "PowerPoint",
    "ProgrammeInfo",
    "Status",
]

DEFAULT_URL = "http://127.0.0.1:8780"


class Client:
    """The HTTP API of one gridaware, typed.

    Args:
        url: where ``gridaware serve`` answers; ``GRIDAWARE_URL`` where left out.
        api_key: what ``gridaware init`` showed; ``GRIDAWARE_API_KEY`` where left out.

    Raises:
        InvalidInput: the URL is not one of http or https.
    """

    def __init__(self, url: str | None = None, api_key: str | None = None) -> None:
        self.url = (url or os.environ.get("GRIDAWARE_URL") or DEFAULT_URL).rstrip("/")
        self._api = Transport(self.url, api_key or os.environ.get("GRIDAWARE_API_KEY"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._api.close()

    # Feeds

    def feeds(self) -> list[FeedInfo]:
        """Every registered feed."""
        return cast("list[FeedInfo]", list(self._api.pages("/feeds")))

    def register_feed(
        self,
        feed_id: str,
        *,
        kind: str,
        programme: str,
        settings: Mapping[str, Any] | None = None,
        authority: Mapping[str, float] | None = None,
    ) -> Answer:
        """Register a source of signals, or replace its settings.

        Args:
            feed_id: your name for it.
            kind: ``webhook``, ``schedule`` or ``file``.
            programme: the programme it speaks for.
            settings: the kind's own; secrets by reference (``env:NAME`` or ``file:PATH``).
            authority: the most it may ask for: ``least_watts``, ``greatest_depth`` (0 to 1),
                ``hours_per_day``, ``least_notice_seconds``.

        Raises:
            InvalidInput: the kind or a setting is wrong.
        """
        body = {
            "feed_id": feed_id,
            "kind": kind,
            "programme_id": programme,
            "settings": dict(settings or {}),
            "authority": dict(authority or {}),
        }
        return cast("Answer", self._api.post("/feeds", body))

    def remove_feed(self, feed_id: str) -> None:
        """Forget a feed; its open events go on.

        Raises:
            NotFound: there is none by that id.
        """
        self._api.call("DELETE", f"/feeds/{part(feed_id)}")

    def test_feed(self, feed_id: str) -> Json:
        """Try a feed's settings without concluding anything from what it says."""
        return self._api.post(f"/feeds/{part(feed_id)}/test", {})

    def feed(self, feed_id: str) -> FeedInfo:
        """One feed.

        Raises:
            NotFound: there is none by that id.
        """
        return cast("FeedInfo", self._api.get(f"/feeds/{part(feed_id)}"))

    def advisories(self, feed_id: str) -> list[AdvisoryInfo]:
        """What a feed heard that only informs, the newest first: prices, alerts, forecasts.

        Raises:
            NotFound: there is none by that id.
        """
        answer = self._api.get(f"/feeds/{part(feed_id)}/advisories")
        return cast("list[AdvisoryInfo]", answer["advisories"])

    # Events

    def events(self, *, state: str | None = None) -> list[EventInfo]:
        """Every event, newest first; those of one state if asked."""
        return cast("list[EventInfo]", list(self._api.pages("/events", state=state)))

    def event(self, event_id: str) -> EventInfo:
        """One event.

        Raises:
            NotFound: there is none by that id.
        """
        return cast("EventInfo", self._api.get(f"/events/{part(event_id)}"))

    def send_event(
        self,
        *,
        target: Mapping[str, float],
        start: datetime | str = "now",
        end: datetime | str | None = None,
        duration: str | None = None,
        kind: Literal["live", "test", "drill"] = "live",
        event_id: str | None = None,
        revision: int = 0,
        priority: int | None = None,
    ) -> Answer:
        """Ask the site for less, as a person; with neither end nor duration, until cancelled.

        Args:
            target: one of ``limit_kw``, ``limit_percent_of_baseline``, ``reduce_kw`` and
                ``reduce_percent``, at the site meter.
            start: an aware instant, RFC 3339 text, or ``now``.
            end: likewise.
            duration: ISO 8601, such as ``PT45S``, instead of an end.
            kind: whether it counts.
            event_id: your name for it; one is made where left out.
            revision: higher replaces lower.
            priority: lower wins within one programme.

        Raises:
            InvalidInput: the request is malformed; the code says how.
            Refused: it is understood and not done.
        """
        body = _event_body(target, start, end, duration)
        body |= {"id": event_id or f"api-{uuid.uuid4().hex[:12]}", "revision": revision}
        body |= {"kind": kind} | ({} if priority is None else {"priority": priority})
        return cast("Answer", self._api.post("/events", body))

    def preview_event(
        self,
        *,
        target: Mapping[str, float],
        start: datetime | str = "now",
        end: datetime | str | None = None,
        duration: str | None = None,
    ) -> Json:
        """Who would be capped or paused, and what would be left over; nothing is done."""
        body = _event_body(target, start, end, duration) | {"id": "preview"}
        return self._api.post("/events/preview", body)

    def cancel_event(self, event_id: str) -> Answer:
        """Cancel an event that a person sent."""
        return cast("Answer", self._api.post(f"/events/{part(event_id)}/cancel", {}))

    def opt_out(self, event_id: str) -> Answer:
        """Opt out of an event of the grid; it is told where its feed can answer."""
        return cast("Answer", self._api.post(f"/events/{part(event_id)}/opt-out", {}))

    def event_report(self, event_id: str) -> Json:
        """What an event delivered: clocks, baseline, kW and kWh, and each job's part."""
        return self._api.get(f"/events/{part(event_id)}/report", format="json")

    def event_report_file(self, event_id: str, form: Literal["csv", "html"]) -> str:
        """The same report as CSV, or as one HTML page that needs nothing else."""
        answer = self._api.call("GET", f"/events/{part(event_id)}/report", params={"format": form})
        answer.encoding = "utf-8"
        return answer.text

    # Jobs

    def jobs(self, *, state: str | None = None) -> list[JobInfo]:
        """Every job, newest first; those of one state if asked."""
        return cast("list[JobInfo]", list(self._api.pages("/jobs", state=state)))

    def job(self, job_id: str) -> JobInfo:
        """One job.

        Raises:
            NotFound: there is none by that id.
        """
        return cast("JobInfo", self._api.get(f"/jobs/{part(job_id)}"))

    def submit_job(
        self,
        entrypoint: str,
        *,
        gpus: int,
        job_id: str | None = None,
        tier: str = "firm",
        team: str = "default",
        runtime_env: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Answer:
        """Queue a job that Ray will run.

        Args:
            entrypoint: the command line.
            gpus: how many it takes, all at once.
            job_id: your name for it; one is made where left out.
            tier: how much throughput it may lose: ``firm``, ``flex-1`` (10 %), ``flex-2`` (25 %),
                ``flex-3`` (50 %) or ``preemptible``.
            team: whom its energy is charged to.
            runtime_env: Ray's, such as ``{"working_dir": "."}``.
            metadata: kept with it.
            more: the other fields of :class:`gridaware.domain.job.JobSpec`.

        Raises:
            InvalidInput: a field is wrong.
            Refused: the cluster can never run it.
        """
        body = {
            **more,
            "entrypoint": entrypoint,
            "gpus": gpus,
            "job_id": job_id or f"job-{uuid.uuid4().hex[:12]}",
            "tier": tier,
            "team": team,
            "runtime_env": dict(runtime_env or {}),
            "metadata": dict(metadata or {}),
        }
        return cast("Answer", self._api.post("/jobs", body))

    def job_logs(self, job_id: str) -> str:
        """Everything the job has printed, across its attempts."""
        answer = self._api.call("GET", f"/jobs/{part(job_id)}/logs")
        answer.encoding = "utf-8"
        if "json" in answer.headers.get("Content-Type", ""):
            return str(decoded(answer).get("logs", ""))
        return answer.text

    def explain_job(self, job_id: str) -> Json:
        """Why the job is in its state: the decision, its numbers, and what will end it."""
        return self._api.get(f"/jobs/{part(job_id)}/explain")

    def pause_job(self, job_id: str) -> Answer:
        """Ask the job to save a checkpoint and leave its GPUs."""
        return self._command_job(job_id, "pause")

    def resume_job(self, job_id: str) -> Answer:
        """Let a paused job run again as soon as power and GPUs allow."""
        return self._command_job(job_id, "resume")

    def hold_job(self, job_id: str) -> Answer:
        """Keep a queued or paused job from starting (as Slurm's hold)."""
        return self._command_job(job_id, "hold")

    def release_job(self, job_id: str) -> Answer:
        """Let a held job go to the queue again (as Slurm's release)."""
        return self._command_job(job_id, "release")

    def stop_job(self, job_id: str) -> Answer:
        """End the job for good."""
        return self._command_job(job_id, "stop")

    # The fleet

    def nodes(self) -> list[NodeInfo]:
        """Every node that ever reported."""
        return cast("list[NodeInfo]", list(self._api.pages("/nodes")))

    def gpus(self) -> list[GpuInfo]:
        """Every GPU, with its power and its limits."""
        return cast("list[GpuInfo]", list(self._api.pages("/gpus")))

    def cordon(self, node_id: str) -> Answer:
        """Start nothing new on a node."""
        return cast("Answer", self._api.post(f"/nodes/{part(node_id)}/cordon", {}))

    def uncordon(self, node_id: str) -> Answer:
        """Let a cordoned node take jobs again."""
        return cast("Answer", self._api.post(f"/nodes/{part(node_id)}/uncordon", {}))

    def release(self, *, opt_out: bool = False, reason: str = "", at_once: bool = False) -> Json:
        """Restore the limits that were found on every node, within the ramp.

        Args:
            opt_out: opt out of the events that act; without it they forbid a release.
            reason: told to their programmes beside your name.
            at_once: faster than the site's ramp allows; only together with ``opt_out``.

        Raises:
            Refused: events act (``release-unconfirmed``).
        """
        body: dict[str, object] = {"confirm": "opt out"} if opt_out else {}
        body |= ({"reason": reason} if reason else {}) | ({"at_once": True} if at_once else {})
        return self._api.post("/release", body)

    # The site

    def status(self) -> Status:
        """The site now: power, target, open events, and how old that is."""
        return cast("Status", self._api.get("/status"))

    def policies(self) -> list[PolicyInfo]:
        """Every policy, and which one is in force."""
        return cast("list[PolicyInfo]", list(self._api.pages("/policies")))

    def programmes(self, *, at: datetime | str | None = None) -> list[ProgrammeInfo]:
        """The site's own programmes, then the catalogue's, as they are now or at ``at``."""
        pages = self._api.pages("/programmes", at=_time_text(at))
        return cast("list[ProgrammeInfo]", list(pages))

    def programme(self, programme_id: str, *, at: datetime | str | None = None) -> ProgrammeInfo:
        """One programme, value by value with its sources, now or at ``at``.

        Raises:
            NotFound: neither the site nor the catalogue has one by that id.
        """
        answer = self._api.get(f"/programmes/{part(programme_id)}", at=_time_text(at))
        return cast("ProgrammeInfo", answer)

    def power(
        self,
        *,
        series: Sequence[str] = ("meter", "target"),
        start: datetime | str | None = None,
        end: datetime | str | None = None,
    ) -> list[PowerPoint]:
        """Power over time, in watts.

        ``series``: ``meter``, ``target``, ``gpu_total``, ``baseline``, ``job:ID``, ``node:ID``.
        """
        points = self._api.pages(
            "/power", series=list(series), start=_time_text(start), end=_time_text(end)
        )
        return cast("list[PowerPoint]", list(points))

    def energy_report(
        self,
        *,
        by: Literal["total", "job", "team", "gpu"] | None = None,
        start: datetime | str | None = None,
        end: datetime | str | None = None,
    ) -> EnergyReport:
        """Energy in joules; each figure with its method, coverage and error band.

        Args:
            by: the one part that is wanted; all of them where left out.
            start: an aware instant or RFC 3339 text; a day before the end where left out.
            end: likewise; now where left out.
        """
        report = self._api.get(
            "/reports/energy", by=by, start=_time_text(start), end=_time_text(end)
        )
        return cast("EnergyReport", report)

    def ledger(self, *, from_seq: int = 1, kinds: Sequence[str] = ()) -> Iterator[Json]:
        """The ledger's entries in order: what came in and what was decided, with the chain."""
        return self._api.pages("/ledger", from_seq=from_seq, kind=list(kinds))

    def _command_job(self, job_id: str, verb: str) -> Answer:
        return cast("Answer", self._api.post(f"/jobs/{part(job_id)}/{verb}", {}))


def _event_body(
    target: Mapping[str, float],
    start: datetime | str,
    end: datetime | str | None,
    duration: str | None,
) -> Json:
    body: Json = {"start": _time_text(start), "target": dict(target)}
    if end is not None:
        body["end"] = _time_text(end)
    if duration is not None:
        body["duration"] = duration
    if end is None and duration is None:
        body["open_end"] = True
    return body


def _time_text(value: datetime | str | None) -> str | None:
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise InvalidInput("time-naive", f"the time {value.isoformat()} has no time zone")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
