"""What to do about the errors of jobs, of Ray, and of training scripts."""

from collections.abc import Mapping

__all__ = ["FIXES"]

_JOBS = {
    "job-exists": "Choose another id: ids are never used twice.",
    "job-too-large": "Ask for fewer GPUs than the cluster has: `gridaware gpu list`.",
    "jobs-too-many": "Wait for jobs to end, or stop some.",
    "job-wrong-state": "Look at its state with `gridaware job show`, then choose a command for it.",
    "job-verb-unknown": "Use pause, resume, hold, release or stop.",
    "job-not-pausable": "Submit it without --no-pause, and with gridaware.train in its loop.",
    "job-entrypoint": "Give a command line: `gridaware job submit -- python train.py`.",
    "job-gpus": "Ask for a whole number of GPUs, 1 or more.",
    "job-priority": "Give a whole number from -1000 to 1000.",
    "job-retries": "Give a whole number, 0 or more.",
    "job-too-long": "Shorten the field.",
    "job-number-range": "Give a finite number in the range that the message names.",
    "job-field-type": "Send the field in the type that /api/v1/openapi.json shows.",
    "job-runtime-env": "Send runtime_env as one JSON object, as Ray takes it.",
    "runtime-env-malformed": "Write runtime_env as one YAML or JSON table.",
}

_RAY = {
    "ray-unreachable": "Start Ray with `ray start --head`, or correct ray.address.",
    "ray-timeout": "Look at Ray's dashboard: its job server does not follow.",
    "ray-token": "Name Ray's token in ray.token, as env:NAME or file:/path.",
    "ray-answer": "Point ray.address at the dashboard of Ray 2.55 or newer.",
    "ray-refused": "Correct what Ray names; `gridaware job show` has its whole answer.",
    "ray-error": "Look into Ray's dashboard log; it is tried again.",
    "attempt-unknown": "Look at `gridaware job show`: Ray has forgotten or never known it.",
    "submission-foreign": "Choose another job id: Ray has a submission by that name already.",
    "gpus-too-many": "Ask for fewer GPUs a node, or use --placement workers.",
}

_TRAIN = {
    "checkpoint-unreadable": "Check that every file of the checkpoint can be read on each node.",
    "checkpoint-incomplete": "Call save_done() after the last file was written and closed.",
    "checkpoint-empty": "Write the checkpoint before save_done().",
    "checkpoint-elsewhere": "Put checkpoints directly into the session's checkpoint_dir.",
    "manifest-malformed": "Remove the checkpoint: its manifest is damaged.",
}

FIXES: Mapping[str, str] = {**_JOBS, **_RAY, **_TRAIN}
"""Code to advice."""
