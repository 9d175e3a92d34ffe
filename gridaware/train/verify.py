"""Look at a checkpoint as the job itself would when it resumes: ``python -m … PATH [UID GID]``.

The node's agent runs this before it believes that something was saved. With a uid and a gid all
rights but theirs are given up before the path is touched; the interpreter may lie where only root
can read.
Prints one JSON object: ``{"wrong": null, "job_id": …, "attempt": …, "request_id": …, "step": …}``.
"""

import json
import os
import sys
from pathlib import Path

from gridaware.domain.errors import GridawareError
from gridaware.train.files import load_checkpoint, manifest_path

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Measure the checkpoint named on the command line and print what was found."""
    if len(arguments) == 3:
        os.setgroups([])
        os.setgid(int(arguments[2]))
        os.setuid(int(arguments[1]))
    answer: dict[str, object]
    try:
        manifest = load_checkpoint(manifest_path(Path(arguments[0]))).manifest
    except (GridawareError, OSError) as error:
        answer = {"wrong": str(error)}
    else:
        answer = {
            "wrong": None,
            "job_id": manifest.job_id,
            "attempt": manifest.attempt,
            "request_id": manifest.request_id,
            "step": manifest.step,
        }
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
