"""Look at a checkpoint as the job itself would when it resumes: ``python -m … PATH``.

The node's agent runs this under the job's own user before it believes that something was saved.
Prints one JSON object: ``{"wrong": null, "job_id": …, "attempt": …, "request_id": …, "step": …}``.
"""

import json
import sys
from pathlib import Path

from gridaware.domain.errors import GridawareError
from gridaware.train.files import load_checkpoint, manifest_path

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Measure the checkpoint named on the command line and print what was found."""
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
