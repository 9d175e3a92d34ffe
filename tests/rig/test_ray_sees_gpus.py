"""Ray itself, as an outside witness, must find the virtual GPUs and hand them out."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

pytestmark = pytest.mark.rig

RAY_CODE = """
import json, os, ray
ray.init(address="local", include_dashboard=False, num_cpus=1, object_store_memory=80_000_000,
         _temp_dir=os.environ["RAY_TMPDIR"], logging_level="ERROR")

@ray.remote(num_gpus=2, num_cpus=0)
def train():
    from gridaware.sim.workloads import virtual_gpus
    with virtual_gpus("pretrain", ray.get_gpu_ids()) as gpus:
        for _ in range(30):
            gpus.step(0.02)
        watts = [slot.true_watts for slot in gpus._slots]
        return list(gpus.gpu_ids), watts, os.environ["CUDA_VISIBLE_DEVICES"]

resources = ray.cluster_resources()
ids, watts, visible = ray.get(train.remote())
print(json.dumps({"resources": resources, "ids": ids, "watts": watts, "visible": visible}))
ray.shutdown()
"""


def test_ray_counts_the_virtual_gpus_names_their_type_and_runs_work_on_them(make_site):
    site = make_site("h100-700", 4)
    scratch = tempfile.mkdtemp(prefix="gw")  # short: a UNIX socket's path has 107 bytes
    quiet = {
        "HOME": scratch,
        "RAY_TMPDIR": scratch,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_enable_metrics_collection": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "no_proxy": "*",
    }
    kept = {k: v for k, v in os.environ.items() if k not in {"CUDA_VISIBLE_DEVICES", "RAY_ADDRESS"}}
    try:
        witness = subprocess.run(
            [sys.executable, "-c", RAY_CODE],
            env=kept | site.environment | quiet,
            capture_output=True,
            text=True,
            timeout=90,
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    assert witness.returncode == 0, witness.stderr[-3000:]
    seen = json.loads(witness.stdout.strip().splitlines()[-1])
    assert seen["resources"]["GPU"] == 4.0
    assert seen["resources"]["accelerator_type:H100"] == 1.0
    node_ids = [gpu.uuid.decode() for gpu in site.window.gpus_of(0)]
    assert seen["ids"] == [node_ids[int(index)] for index in seen["visible"].split(",")]
    assert len(seen["ids"]) == 2
    # Pre-training draws 0.96 of 700 W in the fitted model.
    assert all(600 < watts < 700 for watts in seen["watts"])
