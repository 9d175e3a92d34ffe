"""Data-parallel training on Ray actors that can be paused at any step.

The entrypoint leads: it is rank 0, saves and leaves; Ray ends the actors with it. Each actor holds
one GPU and registers it, so that the node's agent knows whose power it is. Submit it with placement
``workers``: the entrypoint itself then takes no GPU and ``GRIDAWARE_GPUS`` says how many there are.

    gridaware job submit --gpus 5 --placement workers -- python examples/train_workers.py \
        --state-dir /data/mean
"""

import argparse
import contextlib
import json
import os
import time
from pathlib import Path

import ray

from gridaware import train

KEPT_CHECKPOINTS = 2


@ray.remote(num_gpus=1, num_cpus=0)
class Worker:
    """One GPU's share of every step."""

    def __init__(self, rank, world, options):
        self.rank = rank
        self.session = train.session(
            options.state_dir, rank=rank, world=world, gpus=ray.get_gpu_ids()
        ).start()
        self.resources = contextlib.ExitStack()
        self.work = time.sleep
        if "GRIDAWARE_SIM_WINDOW" in os.environ:
            from gridaware.sim.workloads import virtual_gpus

            virtual = virtual_gpus(options.workload, ray.get_gpu_ids())
            self.work = self.resources.enter_context(virtual).step

    def gradient(self, step, weight, seconds):
        """This rank's gradient of the mean of (weight - target)^2."""
        self.work(seconds)
        self.session.step(step + 1)
        target = 1.0 + 0.1 * self.rank
        return 2 * (weight - target)

    def gpu_ids(self):
        """Ray's indices of this worker's GPUs."""
        return ray.get_gpu_ids()


def main() -> None:
    options = parse_options()
    count = int(os.environ.get("GRIDAWARE_GPUS", "2"))
    ray.init(address="auto", log_to_driver=False)
    workers = [Worker.remote(rank, count + 1, options) for rank in range(1, count + 1)]
    print("GPUs", sorted(ray.get([w.gpu_ids.remote() for w in workers])), flush=True)

    with train.session(options.state_dir, grace_seconds=5, rank=0, gpus=()) as session:
        found = session.resume_from()
        state = {"step": 0, "weight": 0.0}
        if found is not None:
            state = json.loads(found.path.read_text())
        print(f"starting at step {state['step']} of {options.steps}", flush=True)
        while state["step"] < options.steps:
            seconds = options.step_seconds
            asked = [w.gradient.remote(state["step"], state["weight"], seconds) for w in workers]
            gradients = ray.get(asked)
            state["weight"] -= 0.05 * sum(gradients) / len(gradients)
            state["step"] += 1
            session.step(state["step"])

            request = session.should_checkpoint()
            if request or state["step"] == options.steps:
                save(session, state)
            if request and request.action == "pause":
                print(f"pausing at step {state['step']}: {request.reason}", flush=True)
                session.pause()
    print(f"done: {state['step']} steps, weight {state['weight']:.6f}", flush=True)


def save(session, state) -> None:
    """Write a checkpoint as one file, declare it, and drop old ones with their manifests."""
    session.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    file = session.checkpoint_dir / f"step-{state['step']:09d}.json"
    file.write_text(json.dumps(state))
    session.save_done(file, state["step"])
    steps = sorted(session.checkpoint_dir.glob("step-*[0-9].json"))
    for old in steps[:-KEPT_CHECKPOINTS]:
        for path in session.checkpoint_dir.glob(f"{old.name}*"):
            path.unlink()


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--state-dir", type=Path, required=True, help="where checkpoints lie")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--step-seconds", type=float, default=0.2, help="of one step, uncapped")
    parser.add_argument("--workload", default="finetune", help="class of work (configs/curves)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
