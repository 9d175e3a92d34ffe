"""Ray as the executor of jobs, over HTTP alone.

No Ray driver lives in this process: one that loses its head node aborts the process it lives in.
Figures and traps: Ray 2.60, measured. Submissions are named ``<job>-a<attempt>`` and never reused.
"""

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import requests

from gridaware.domain.errors import GridawareError, NotFound, Refused, TimedOut, Unavailable
from gridaware.domain.job import JobSpec, Placement, submission_id
from gridaware.jobs.status import METADATA_ATTEMPT, METADATA_JOB, RayStatus, parse_status

__all__ = ["RayRunner"]

_ANSWER_BYTES = 64 * 1024 * 1024
_LISTED_MOST = 10_000


class RayRunner:
    """Implements :class:`gridaware.control.ports.JobRunner`. Safe to use from several threads.

    Args:
        address: of Ray's dashboard, ``http://host:8265``.
        token: Ray's authentication token, or a function that gives the present one.
        connect_seconds: to wait for a connection.
        read_seconds: to wait for an answer.
    """

    def __init__(
        self,
        address: str,
        token: str | Callable[[], str] | None = None,
        *,
        connect_seconds: float = 2.0,
        read_seconds: float = 10.0,
    ) -> None:
        self._address = address.rstrip("/")
        self._token = token
        self._timeout = (connect_seconds, read_seconds)
        self._local = threading.local()

    # ------------------------------------------------------------------ attempts

    def submit(self, spec: JobSpec, attempt: int) -> None:
        """Start an attempt; submitting the same attempt twice is harmless.

        Raises:
            Refused: the cluster will never run it as it is.
            Unavailable: try again later.
        """
        name = submission_id(spec.job_id, attempt)
        self._check_fits(spec)
        try:
            self._call("POST", "/api/jobs/", body=_submission(spec, attempt))
        except (Unavailable, Refused) as error:
            # It may have arrived all the same, now or at an earlier try. What Ray answers to a
            # name that exists differs between versions, so look instead of reading its text.
            if not self._is_ours(name, spec.job_id, error):
                raise

    def stop(self, job_id: str, attempt: int) -> None:
        """Ask the attempt to end; returns at once.

        One that Ray has not started yet starts as soon as its GPUs are free and is ended in the
        same second: Ray has no way to take a waiting submission back.
        """
        try:
            self._call("POST", f"/api/jobs/{_path(job_id, attempt)}/stop")
        except NotFound:
            return

    def statuses(self) -> Mapping[str, RayStatus]:
        """Every attempt of ours that Ray remembers, by submission id."""
        listed = self._call("GET", "/api/jobs/")
        if not isinstance(listed, list):
            raise Unavailable("ray-answer", "Ray's list of jobs is not a list")
        found = (parse_status(item) for item in listed if isinstance(item, dict))
        return {status.submission_id: status for status in found if status is not None}

    def logs(self, job_id: str, attempt: int) -> str:
        """The attempt's output so far.

        Raises:
            NotFound: Ray does not know the attempt.
        """
        answer = self._call("GET", f"/api/jobs/{_path(job_id, attempt)}/logs")
        return str(answer.get("logs", "")) if isinstance(answer, dict) else ""

    def logs_of_attempts(self, job_id: str, attempts: Sequence[int]) -> str:
        """The output of several attempts, one after the other, each under its name."""
        parts = []
        for attempt in attempts:
            try:
                text = self.logs(job_id, attempt)
            except NotFound:
                text = "(Ray no longer has this log)\n"
            end = "" if text.endswith("\n") or not text else "\n"
            parts.append(
                f"==> attempt {attempt} ({submission_id(job_id, attempt)}) <==\n{text}{end}"
            )
        return "\n".join(parts)

    # ------------------------------------------------------------------ capacity

    def free_gpus(self) -> tuple[float, float]:
        """(free, total) GPUs as Ray counts them; rather too few free than too many.

        Ray's own sum of used GPUs is complete but up to 5 s old (``AUTOSCALER_UPDATE_INTERVAL_S``
        in the head's environment); the lists of actors and placement groups are of this moment but
        know no plain tasks. The larger of the two counts, so a job that just started is never
        overlooked and one that just ended is trusted to be gone a little late.
        """
        total = sum(self._gpus_by_node())
        used = max(self._used_now(), self._used_by_summary())
        return max(total - used, 0.0), total

    def _gpus_by_node(self) -> list[float]:
        nodes = self._state("nodes", "ALIVE")
        return [_gpus(node.get("resources_total")) for node in nodes]

    def _used_now(self) -> float:
        actors = sum(
            _gpus(actor.get("required_resources")) for actor in self._state("actors", "ALIVE")
        )
        groups = self._state("placement_groups", "CREATED")
        bundles = [bundle for group in groups for bundle in group.get("bundles") or ()]
        return actors + sum(_gpus(bundle.get("unit_resources")) for bundle in bundles)

    def _used_by_summary(self) -> float:
        """0 where the cluster has no autoscaler monitor, which is who writes the summary."""
        answer = self._call("GET", "/api/cluster_status")
        try:
            return float(answer["data"]["clusterStatus"]["loadMetricsReport"]["usage"]["GPU"][0])
        except (KeyError, TypeError, ValueError, IndexError):
            return 0.0

    def _state(self, what: str, state: str) -> list[Mapping[str, Any]]:
        answer = self._call(
            "GET",
            f"/api/v0/{what}",
            query={
                "detail": "1",
                "limit": str(_LISTED_MOST),
                "filter_keys": "state",
                "filter_predicates": "=",
                "filter_values": state,
            },
        )
        try:
            listed = answer["data"]["result"]["result"]
        except (KeyError, TypeError):
            raise Unavailable("ray-answer", f"Ray's list of {what} is not a list") from None
        return [item for item in listed if isinstance(item, dict)]

    def _check_fits(self, spec: JobSpec) -> None:
        """Refuse what no state of this cluster could ever run: Ray would let it wait for ever."""
        nodes = self._gpus_by_node()
        most = max(nodes, default=0.0) if spec.placement is Placement.ENTRYPOINT else sum(nodes)
        if spec.gpus > most:
            where = "on one node" if spec.placement is Placement.ENTRYPOINT else "in the cluster"
            raise Refused(
                "gpus-too-many",
                f"{spec.gpus} GPUs were asked for, at most {most:g} exist {where}",
                asked=spec.gpus,
                most=most,
            )

    def _is_ours(self, name: str, job_id: str, error: GridawareError) -> bool:
        try:
            details = self._call("GET", f"/api/jobs/{quote(name, safe='')}")
        except GridawareError:
            return False
        metadata = (details.get("metadata") or {}) if isinstance(details, dict) else {}
        if metadata.get(METADATA_JOB) != job_id:
            raise Refused(
                "submission-foreign", f"Ray has a submission {name!r} that is not ours"
            ) from error
        return True

    # ------------------------------------------------------------------ HTTP

    def _call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        try:
            with self._session().request(
                method,
                self._address + path,
                json=body,
                params=query,
                headers=self._headers(),
                timeout=self._timeout,
                allow_redirects=False,
                stream=True,
            ) as response:
                return _answer(response.status_code, _bounded(response))
        except requests.Timeout as error:
            raise TimedOut("ray-timeout", f"Ray did not answer in time: {error}") from None
        except requests.RequestException as error:
            raise Unavailable("ray-unreachable", f"Ray cannot be reached: {error}") from None

    def _headers(self) -> dict[str, str]:
        token = self._token() if callable(self._token) else self._token
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            # No proxies for a machine next door, and no ~/.netrc in place of Ray's token.
            session.trust_env = False
        return session


def _submission(spec: JobSpec, attempt: int) -> dict[str, Any]:
    entrypoint_gpus = spec.gpus if spec.placement is Placement.ENTRYPOINT else 0
    return {
        "submission_id": submission_id(spec.job_id, attempt),
        "entrypoint": spec.entrypoint,
        "runtime_env": _runtime_env(spec, attempt),
        "metadata": dict(spec.metadata)
        | {
            METADATA_JOB: spec.job_id,
            METADATA_ATTEMPT: str(attempt),
            "gridaware_tier": spec.tier.value,
            "gridaware_team": spec.team,
            "gridaware_priority": str(spec.priority),
        },
        # GPUs of the entrypoint come on top of those of the job's own actors: never ask for both.
        "entrypoint_num_gpus": entrypoint_gpus,
        "entrypoint_num_cpus": spec.entrypoint_num_cpus,
        "entrypoint_resources": dict(spec.entrypoint_resources),
    }


def _runtime_env(spec: JobSpec, attempt: int) -> dict[str, Any]:
    """The user's own, with what the job needs to know of itself added to its variables."""
    environment: dict[str, Any] = json.loads(spec.runtime_env_json)
    theirs = environment.get("env_vars") or {}
    grace_seconds = str(math.ceil(spec.checkpoint_grace_seconds))
    ours = {
        "GRIDAWARE_JOB_ID": spec.job_id,
        "GRIDAWARE_ATTEMPT": str(attempt),
        "GRIDAWARE_GPUS": str(spec.gpus),
    }
    # Ray's default is 3 s between SIGTERM and SIGKILL: too short for a save.
    return environment | {
        "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": grace_seconds} | theirs | ours,
    }


def _path(job_id: str, attempt: int) -> str:
    return quote(submission_id(job_id, attempt), safe="")


def _gpus(resources: object) -> float:
    value = resources.get("GPU", 0.0) if isinstance(resources, dict) else 0.0
    return float(value) if isinstance(value, int | float) else 0.0


def _bounded(response: requests.Response) -> bytes:
    raw = b""
    for piece in response.iter_content(256 * 1024):
        raw += piece
        if len(raw) > _ANSWER_BYTES:
            raise Unavailable("ray-answer", "Ray's answer is longer than 64 MiB")
    return raw


def _answer(status: int, raw: bytes) -> Any:
    if status == requests.codes.ok:
        try:
            return json.loads(raw)
        except ValueError:
            raise Unavailable("ray-answer", "Ray's answer is not JSON") from None
    # Ray answers errors with a traceback; its last line says what it is.
    lines = raw.decode(errors="replace").strip().splitlines()
    said = (lines[-1] if lines else "")[:300]
    if status in (401, 403):
        raise Refused("ray-token", f"Ray refused the token: {said}")
    if status == requests.codes.not_found:
        raise NotFound("attempt-unknown", f"Ray does not know it: {said}")
    if 400 <= status < 500:
        raise Refused("ray-refused", f"Ray refused it: {said}")
    raise Unavailable("ray-error", f"Ray answered {status}: {said}")
