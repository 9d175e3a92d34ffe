"""Jobs: list, submit, show, explain, and the verbs of a person."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from gridaware.service.bodies import JobBody
from gridaware.service.context import Actor, IdempotencyKey, WebContext, json_response
from gridaware.service.documents import (
    Cursor,
    Limit,
    Name,
    States,
    item_response,
    list_response,
    responses_of,
)

__all__ = ["router"]

router = APIRouter(prefix="/jobs", tags=["jobs"])

VERBS = {
    "pause": "Ask the job to save a checkpoint and leave its GPUs.",
    "resume": "Let a paused job run again as soon as power and GPUs allow.",
    "hold": "Keep a queued or paused job from starting.",
    "release": "Let a held job go to the queue again.",
    "stop": "End the job for good.",
}
_EXPLAINED = (
    "job_id",
    "state",
    "state_since",
    "reason",
    "why",
    "message",
    "stopping_by",
    "plan_reason",
    "plan_why",
    "tier",
    "cap_watts",
    "draw_watts",
    "step",
    "saved_step",
    "loss_budget_seconds",
    "lost_seconds",
    "paused_by",
    "updated_at",
)


@router.get("", responses=responses_of("Jobs, newest first.", page=True))
def list_jobs(
    web: WebContext,
    state: States = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Response:
    """Every job, newest first."""
    return list_response(web, "job", states=state, cursor=cursor, limit=limit)


@router.post("", status_code=201, responses=responses_of("The job, queued.", status=201))
async def submit_job(body: JobBody, web: WebContext, actor: Actor, key: IdempotencyKey) -> Response:
    """Queue a job that Ray will run."""
    result = await web.control.send("job.submit", body.given(), actor=actor, idempotency_key=key)
    return json_response(result, 201)


@router.get("/{job_id}", responses=responses_of("The job."))
def show_job(job_id: Name, web: WebContext) -> Response:
    """One job."""
    return item_response(web, "job", job_id)


@router.get("/{job_id}/logs", responses=responses_of("`logs`: what it printed."))
async def job_logs(job_id: Name, web: WebContext, actor: Actor) -> Response:
    """Everything the job has printed, across its attempts."""
    return json_response(await web.control.send("job.logs", {"job_id": job_id}, actor=actor))


@router.get("/{job_id}/explain", responses=responses_of("Why it is in its state."))
def explain_job(job_id: Name, web: WebContext) -> Response:
    """Why the job is in its state, in one sentence, with the numbers behind it."""
    job: dict[str, Any] = msgspec.json.decode(web.reader.get("job", job_id))
    return json_response(msgspec.json.encode({key: job.get(key) for key in _EXPLAINED}))


def _command(verb: str) -> Callable[..., Awaitable[Response]]:
    async def command_job(
        job_id: Name, web: WebContext, actor: Actor, key: IdempotencyKey
    ) -> Response:
        args = {"job_id": job_id}
        return json_response(
            await web.control.send(f"job.{verb}", args, actor=actor, idempotency_key=key)
        )

    return command_job


for _verb, _what in VERBS.items():
    router.add_api_route(
        f"/{{job_id}}/{_verb}",
        _command(_verb),
        methods=["POST"],
        name=f"{_verb}_job",
        summary=f"{_verb.capitalize()} Job",
        description=_what,
        responses=responses_of("The job."),
    )
