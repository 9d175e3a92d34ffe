"""`gridaware job`: jobs that run on Ray and yield to the grid."""

import json
import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gridaware.cli.connection import connect, target_of
from gridaware.cli.output import (
    Column,
    Form,
    JsonOption,
    OutputOption,
    form_of,
    said,
    show_record,
    show_rows,
    tell,
    write,
)
from gridaware.cli.problem import ExitCode
from gridaware.domain.errors import InvalidInput
from gridaware.domain.job import JobState, Placement, Tier

__all__ = ["app"]

app = typer.Typer(
    help="Jobs that run on Ray and yield to the grid.", no_args_is_help=True, rich_markup_mode=None
)
COLUMNS = (
    Column("ID", "job_id"),
    Column("TEAM", "team"),
    Column("TIER", "tier"),
    Column("STATE", "state"),
    Column("WHY", "reason"),
    Column("GPUS", "gpus"),
    Column("CAP", "cap_watts"),
    Column("POWER", "draw_watts"),
    Column("STEP", "step"),
    Column("SAVED", "saved_step"),
    Column("SINCE", "state_since"),
)
WATCH_SECONDS = 1.0
JobId = Annotated[str, typer.Argument(help="The job's id.")]


@app.command()
def submit(
    context: typer.Context,
    entrypoint: Annotated[
        list[str], typer.Argument(help="The command line, after `--`: -- python train.py")
    ],
    gpus: Annotated[int, typer.Option(min=0, help="How many GPUs it takes, all at once.")] = 1,
    job_id: Annotated[str | None, typer.Option("--id", help="Your name for it.")] = None,
    tier: Annotated[
        Tier, typer.Option(help="How much throughput it may lose to the grid.")
    ] = Tier.FIRM,
    team: Annotated[str, typer.Option(help="Whom its energy is charged to.")] = "default",
    priority: Annotated[int, typer.Option(help="Higher starts first and is shed last.")] = 0,
    placement: Annotated[
        Placement, typer.Option(help="Whether the entrypoint or its own Ray workers take the GPUs.")
    ] = Placement.ENTRYPOINT,
    workload: Annotated[
        str | None, typer.Option(help="Class of its cap-to-throughput curve.")
    ] = None,
    no_pause: Annotated[
        bool, typer.Option("--no-pause", help="It cannot save on request: cap it, never pause it.")
    ] = False,
    min_cap_watts: Annotated[
        float | None, typer.Option(help="Lowest cap of each of its GPUs.")
    ] = None,
    may_stop: Annotated[
        bool,
        typer.Option("--may-stop", help="Last resort: it may be stopped, and is queued again."),
    ] = False,
    expected_seconds: Annotated[float | None, typer.Option(help="How long it will run.")] = None,
    max_retries: Annotated[int, typer.Option(min=0, help="New attempts after a failure.")] = 0,
    working_dir: Annotated[
        Path | None, typer.Option(help="Folder that Ray ships to the nodes.")
    ] = None,
    runtime_env: Annotated[
        Path | None, typer.Option(help="Ray's runtime_env as a YAML or JSON file.")
    ] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE, kept with the job; repeatable.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end, and show it.")] = False,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Queue a job: `gridaware job submit --gpus 8 --tier flex-2 -- python train.py`."""
    environment = _runtime_env(runtime_env)
    if working_dir is not None:
        environment["working_dir"] = str(working_dir.absolute())
    answer = connect(context).submit_job(
        shlex.join(entrypoint) if len(entrypoint) > 1 else entrypoint[0],
        gpus=gpus,
        job_id=job_id,
        tier=tier.value,
        team=team,
        runtime_env=environment,
        metadata=pairs_of(metadata or []),
        priority=priority,
        placement=placement.value,
        workload=workload,
        pausable=not no_pause,
        min_cap_watts=min_cap_watts,
        may_stop=may_stop,
        expected_seconds=expected_seconds,
        max_retries=max_retries,
    )
    if wait:
        _wait(context, answer["id"], form_of(output, as_json))
        return
    show_record(dict(answer), form_of(output, as_json))
    tell(f"watch it: gridaware{target_of(context).as_options} job show {answer['id']}")


@app.command("list")
def list_jobs(
    context: typer.Context,
    state: Annotated[JobState | None, typer.Option(help="Only those in this state.")] = None,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first."""
    jobs = connect(context).jobs(state=None if state is None else state.value)
    show_rows((dict(job) for job in jobs), COLUMNS, form_of(output, as_json))


@app.command()
def show(
    context: typer.Context,
    job_id: JobId,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Show one job."""
    show_record(dict(connect(context).job(job_id)), form_of(output, as_json))


@app.command()
def logs(
    context: typer.Context,
    job_id: JobId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")
    ] = False,
) -> None:
    """Show what a job has printed, across its attempts."""
    client = connect(context)
    seen = ""
    try:
        while True:
            ended = JobState(client.job(job_id)["state"]).terminal
            text = client.job_logs(job_id)
            # Attempts are joined, so the text only grows; if not, it is shown again as a whole.
            write(text.removeprefix(seen))
            seen = text
            if ended or not follow:
                return
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        _detached(context, f"job logs {job_id} --follow")
        raise


@app.command()
def explain(
    context: typer.Context,
    job_id: JobId,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Say why a job is in its state, in one sentence with its numbers."""
    explanation = connect(context).explain_job(job_id)
    form = form_of(output, as_json)
    if form is not Form.TABLE:
        show_record(explanation, form)
        return
    write(f"{explanation.get('state')} since {explanation.get('state_since')}: ")
    write(f"{explanation.get('why')} ({explanation.get('reason')})\n")
    if explanation.get("message"):
        write(f"the cluster said: {explanation['message']}\n")
    if explanation.get("stopping_by"):
        write(f"being stopped by {explanation['stopping_by']}: it may save first\n")
    if explanation.get("plan_why"):
        write(f"latest plan: {explanation['plan_why']} ({explanation.get('plan_reason')})\n")


@app.command()
def pause(context: typer.Context, job_id: JobId) -> None:
    """Ask a job to save a checkpoint and leave its GPUs."""
    said(dict(connect(context).pause_job(job_id)))


@app.command()
def resume(context: typer.Context, job_id: JobId) -> None:
    """Let a paused job run again as soon as power and GPUs allow."""
    said(dict(connect(context).resume_job(job_id)))


@app.command()
def hold(context: typer.Context, job_id: JobId) -> None:
    """Keep a queued or paused job from starting."""
    said(dict(connect(context).hold_job(job_id)))


@app.command()
def release(context: typer.Context, job_id: JobId) -> None:
    """Let a held job go to the queue again."""
    said(dict(connect(context).release_job(job_id)))


@app.command()
def stop(context: typer.Context, job_id: JobId) -> None:
    """End a job for good."""
    said(dict(connect(context).stop_job(job_id)))


def pairs_of(texts: list[str]) -> dict[str, str]:
    """``["a=1", "b=2"]`` as a table.

    Raises:
        InvalidInput: one has no ``=``.
    """
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not (separator and key):
            raise InvalidInput("cli-pair-malformed", f"{text!r} is not KEY=VALUE")
        pairs[key] = value
    return pairs


def _runtime_env(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    import yaml

    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
        json.dumps(value)
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise InvalidInput("runtime-env-malformed", f"{path}: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput("runtime-env-malformed", f"{path} is not a table")
    return value


def _wait(context: typer.Context, job_id: str, form: Form) -> None:
    client = connect(context)
    last = ""
    try:
        while True:
            job = client.job(job_id)
            if job["state"] != last:
                last = job["state"]
                tell(f"{job_id}  {last}  {job.get('why', '')}".rstrip())
            if JobState(last).terminal:
                break
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        _detached(context, f"job logs {job_id} --follow")
        raise
    show_record(dict(job), form)
    if last != JobState.SUCCEEDED:
        raise typer.Exit(ExitCode.FAILED)


def _detached(context: typer.Context, command: str) -> None:
    tell("\ndetached; the job goes on. To watch it again:")
    tell(f"  gridaware{target_of(context).as_options} {command}")
