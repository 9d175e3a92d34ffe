"""What RayRunner sends over HTTP, and what it makes of every kind of answer."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gridaware.domain.errors import NotFound, Refused, TimedOut, Unavailable
from gridaware.domain.job import JobSpec, Placement, Tier
from gridaware.jobs.ray_runner import RayRunner

Answer = tuple[int, object]


class Ray:
    """A stub of Ray's dashboard that records what it was sent."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str], object]] = []
        self.answers: dict[tuple[str, str], Answer | Callable[[], Answer]] = {}
        self.nodes = [8.0, 8.0]
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_args: object) -> None:
                return

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.partition("?")[0]
                headers = {k.lower(): v for k, v in self.headers.items()}
                stub.seen.append((self.command, path, headers, json.loads(body or b"null")))
                status, answer = stub.answer(self.command, path)
                raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = _handle  # noqa: N815 - the names that http.server calls

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, method: str, path: str) -> Answer:
        known = self.answers.get((method, path))
        if known is not None:
            return known() if callable(known) else known
        if path == "/api/v0/nodes":
            return 200, _listed([{"resources_total": {"GPU": gpus}} for gpus in self.nodes])
        if path.startswith("/api/v0/"):
            return 200, _listed([])
        if method == "GET" and path.startswith("/api/jobs/"):
            return 404, b"Job does not exist"
        return 200, {}

    def posted(self) -> dict:
        return next(body for method, path, _h, body in self.seen if path == "/api/jobs/")


def _listed(items: list[object]) -> object:
    return {"result": True, "data": {"result": {"result": items}}}


@pytest.fixture
def ray() -> Iterator[Ray]:
    stub = Ray()
    yield stub
    stub.server.shutdown()
    stub.server.server_close()
    stub.thread.join(5)


SPEC = JobSpec(
    "train-7",
    "python train.py --epochs 3",
    4,
    tier=Tier.FLEX_3,
    team="nlp",
    priority=-2,
    checkpoint_grace_seconds=90.2,
    runtime_env_json=json.dumps(
        {
            "pip": ["numpy==2.2.0"],
            "working_dir": "s3://code/7.zip",
            "env_vars": {"HF_HOME": "/cache", "GRIDAWARE_JOB_ID": "forged"},
        }
    ),
    metadata=(("owner", "ada"), ("gridaware_job_id", "forged")),
    entrypoint_num_cpus=2.0,
    entrypoint_resources=(("nvme", 1.0),),
)


def test_a_submission_carries_everything_of_the_users_and_what_is_ours(ray: Ray) -> None:
    RayRunner(ray.address).submit(SPEC, 3)
    assert ray.posted() == {
        "submission_id": "train-7-a3",
        "entrypoint": "python train.py --epochs 3",
        "runtime_env": {
            "pip": ["numpy==2.2.0"],
            "working_dir": "s3://code/7.zip",
            "env_vars": {
                "HF_HOME": "/cache",
                "RAY_JOB_STOP_WAIT_TIME_S": "91",
                "GRIDAWARE_JOB_ID": "train-7",
                "GRIDAWARE_ATTEMPT": "3",
                "GRIDAWARE_GPUS": "4",
            },
        },
        "metadata": {
            "owner": "ada",
            "gridaware_job_id": "train-7",
            "gridaware_attempt": "3",
            "gridaware_tier": "flex-3",
            "gridaware_team": "nlp",
            "gridaware_priority": "-2",
        },
        "entrypoint_num_gpus": 4,
        "entrypoint_num_cpus": 2.0,
        "entrypoint_resources": {"nvme": 1.0},
    }


def test_workers_gpus_are_not_asked_for_a_second_time_by_the_entrypoint(ray: Ray) -> None:
    spec = JobSpec("w", "python x.py", 16, placement=Placement.WORKERS)
    RayRunner(ray.address).submit(spec, 1)
    assert ray.posted()["entrypoint_num_gpus"] == 0
    assert ray.posted()["runtime_env"]["env_vars"]["GRIDAWARE_GPUS"] == "16"


def test_an_entrypoint_never_spans_nodes_so_nine_gpus_do_not_fit_two_times_eight(ray: Ray) -> None:
    with pytest.raises(Refused) as caught:
        RayRunner(ray.address).submit(JobSpec("w", "x", 9), 1)
    assert caught.value.code == "gpus-too-many"
    assert caught.value.facts == {"asked": 9, "most": 8.0}


def test_the_token_goes_with_every_request_and_may_change(ray: Ray) -> None:
    tokens = iter(["first", "second", "third"])
    ray.answers["GET", "/api/jobs/"] = (200, [])
    runner = RayRunner(ray.address, lambda: next(tokens))
    runner.statuses()
    runner.statuses()
    assert [headers["authorization"] for _m, _p, headers, _b in ray.seen] == [
        "Bearer first",
        "Bearer second",
    ]


def test_a_token_is_not_carried_to_where_a_redirect_points(ray: Ray) -> None:
    ray.answers["GET", "/api/jobs/"] = (302, b"")
    with pytest.raises(Unavailable) as caught:
        RayRunner(ray.address, "secret").statuses()
    assert "302" in str(caught.value)
    assert len(ray.seen) == 1


@pytest.mark.parametrize(
    ("answer", "error", "code"),
    [
        ((401, b"Unauthorized: missing token"), Refused, "ray-token"),
        ((403, b"no"), Refused, "ray-token"),
        ((400, b"Traceback\nTypeError: bad"), Refused, "ray-refused"),
        ((500, b"No available agent to submit job"), Unavailable, "ray-error"),
        ((503, b""), Unavailable, "ray-error"),
        ((200, b"<html>"), Unavailable, "ray-answer"),
        ((200, {"not": "a list"}), Unavailable, "ray-answer"),
    ],
)
def test_every_bad_answer_has_its_code(ray: Ray, answer, error, code) -> None:
    ray.answers["GET", "/api/jobs/"] = answer
    with pytest.raises(error) as caught:
        RayRunner(ray.address).statuses()
    assert type(caught.value) is error
    assert caught.value.code == code


def test_an_answer_that_does_not_come_is_timed_out(ray: Ray) -> None:
    release = threading.Event()

    def never() -> Answer:
        release.wait(10)
        return 200, []

    ray.answers["GET", "/api/jobs/"] = never
    with pytest.raises(TimedOut):
        RayRunner(ray.address, read_seconds=0.05).statuses()
    release.set()


@pytest.mark.parametrize("status", [400, 500])
def test_a_name_that_ray_knows_already_as_ours_is_a_success(ray: Ray, status: int) -> None:
    """Ray 2.60 answers 500 with a traceback; the first try may have arrived unnoticed."""
    ray.answers["POST", "/api/jobs/"] = (status, b"ValueError: Job with id already exists")
    ours = {"submission_id": "train-7-a1", "metadata": {"gridaware_job_id": "train-7"}}
    ray.answers["GET", "/api/jobs/train-7-a1"] = (200, ours)
    RayRunner(ray.address).submit(SPEC, 1)


def test_a_name_that_someone_else_took_is_refused(ray: Ray) -> None:
    ray.answers["POST", "/api/jobs/"] = (500, b"ValueError: Job with id already exists")
    ray.answers["GET", "/api/jobs/train-7-a1"] = (200, {"metadata": None})
    with pytest.raises(Refused) as caught:
        RayRunner(ray.address).submit(SPEC, 1)
    assert caught.value.code == "submission-foreign"


def test_an_error_that_left_nothing_behind_is_the_error(ray: Ray) -> None:
    ray.answers["POST", "/api/jobs/"] = (500, b"No available agent to submit job")
    with pytest.raises(Unavailable):
        RayRunner(ray.address).submit(SPEC, 1)


def test_ids_cannot_reach_other_paths(ray: Ray) -> None:
    with pytest.raises(NotFound):
        RayRunner(ray.address).logs("../../nodes?x=", 1)
    assert ray.seen[-1][1].startswith("/api/jobs/..%2F..%2Fnodes%3Fx%3D-a1")


def test_used_gpus_are_the_larger_of_what_ray_sums_and_what_is_listed_now(ray: Ray) -> None:
    """The sum is up to 5 s old; the lists know no plain tasks."""
    ray.answers["GET", "/api/v0/actors"] = (
        200,
        _listed(
            [
                {"required_resources": {"GPU": 3.0}},
                {"required_resources": {"CPU": 1.0}},
                {"required_resources": {"GPU_group_0_abc": 2.0, "GPU_group_abc": 2.0}},
            ]
        ),
    )
    ray.answers["GET", "/api/v0/placement_groups"] = (
        200,
        _listed([{"bundles": [{"unit_resources": {"GPU": 1.0}}] * 2}]),
    )

    def summary(used: float) -> Answer:
        report = {"loadMetricsReport": {"usage": {"GPU": [used, 16.0]}}}
        return 200, {"data": {"clusterStatus": report}}

    runner = RayRunner(ray.address)
    ray.answers["GET", "/api/cluster_status"] = summary(0.0)
    assert runner.free_gpus() == (11.0, 16.0)
    ray.answers["GET", "/api/cluster_status"] = summary(9.0)
    assert runner.free_gpus() == (7.0, 16.0)
    ray.answers["GET", "/api/cluster_status"] = (200, {"data": {"clusterStatus": None}})
    assert runner.free_gpus() == (11.0, 16.0)
