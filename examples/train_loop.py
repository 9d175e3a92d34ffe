"""A training loop that can be paused at any step: the smallest whole example of gridaware.train.

The "model" is a straight line fitted by gradient descent, so every run is checkable: the same data
in the same order give the same weights, whether or not the job was paused on the way. The time of a
step is that of virtual GPUs under their power caps (``GRIDAWARE_SIM_WINDOW``), or plain waiting
where there is no simulated plant.

    gridaware job submit --gpus 2 -- python examples/train_loop.py --state-dir /data/line
"""

import argparse
import contextlib
import json
import os
import random
import time
from pathlib import Path

from gridaware import train

KEPT_CHECKPOINTS = 2


def main() -> None:
    options = parse_options()
    with train.session(options.state_dir, grace_seconds=5) as session, gpus(options) as step:
        state = load(session)
        print(f"starting at step {state['step']} of {options.steps}", flush=True)
        while state["step"] < options.steps:
            step(options.step_seconds)
            learn(state)
            session.step(state["step"])

            request = session.should_checkpoint()
            due = options.save_every and state["step"] % options.save_every == 0
            if request or due:
                save(session, state)
            if request and request.action == "pause":
                print(f"pausing at step {state['step']}: {request.reason}", flush=True)
                session.pause()
        save(session, state)
    print(f"done: {state['step']} steps, loss {state['loss']:.6f}", flush=True)


def load(session):
    """The state of the newest whole checkpoint, or that of an untrained model."""
    found = session.resume_from()
    if found is None:
        return {"step": 0, "weights": [0.0, 0.0], "loss": 1.0}
    return json.loads((found.path / "state.json").read_text())


def save(session, state) -> None:
    """Write a checkpoint in a directory of its own, declare it, and drop old ones."""
    folder = session.checkpoint_dir / f"step-{state['step']:09d}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state.json").write_text(json.dumps(state))
    session.save_done(folder, state["step"])
    for old in sorted(session.checkpoint_dir.glob("step-*"))[:-KEPT_CHECKPOINTS]:
        for file in old.iterdir():
            file.unlink()
        old.rmdir()


def learn(state) -> None:
    """One step of gradient descent on y = 3x - 1; the data of a step depend on its number alone."""
    slope, offset = state["weights"]
    x = random.Random(state["step"]).uniform(-1, 1)
    error = slope * x + offset - (3 * x - 1)
    state["weights"] = [slope - 0.1 * error * x, offset - 0.1 * error]
    state["loss"] = 0.95 * state["loss"] + 0.05 * error**2
    state["step"] += 1


@contextlib.contextmanager
def gpus(options):
    """What takes the time of a step: virtual GPUs, or without a plant a plain wait."""
    if "GRIDAWARE_SIM_WINDOW" not in os.environ:
        yield time.sleep
        return
    from gridaware.sim.workloads import virtual_gpus

    with virtual_gpus(options.workload) as virtual:
        yield virtual.step


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--state-dir", type=Path, required=True, help="where checkpoints lie")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--step-seconds", type=float, default=0.2, help="of one step, uncapped")
    parser.add_argument("--workload", default="finetune", help="class of work (configs/curves)")
    parser.add_argument("--save-every", type=int, default=50, help="steps; 0 = only when asked")
    return parser.parse_args()


if __name__ == "__main__":
    main()
