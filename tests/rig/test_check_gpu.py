"""The script for a borrowed GPU, against the virtual library. No real GPU and no CUDA was here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.rig, pytest.mark.slow]

SCRIPT = Path(__file__).parents[1] / "live" / "check_gpu.py"


def check(site, tmp_path, *arguments, scale="0.1"):
    out = tmp_path / "gpu.json"
    done = subprocess.run(
        [sys.executable, "-W", "error", SCRIPT, "--out", out, "--scale", scale, *arguments],
        env={**os.environ, **site.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return json.loads(out.read_text())


def test_it_reads_everything_and_writes_nothing_to_the_gpu(make_site, make_job, tmp_path):
    site = make_site("h100-700", 2)
    gpu = site.window.gpu(1)
    gpu.requested_watts = 611.0
    make_job(site, "finetune", "1")
    for call in (b"nvmlDeviceSetPowerManagementLimit", b"nvmlDeviceSetGpuLockedClocks"):
        gpu.fault_call, gpu.error_code = call, 999  # a write would show as an error
        found = check(site, tmp_path, "--gpu", "1")
        assert found["set"] is None
    assert (gpu.requested_watts, gpu.locked_mhz) == (611.0, 0.0)
    assert found["board"]["gpu_id"] == gpu.uuid.decode()
    assert found["board"]["requested_limit_watts"] == 611.0
    assert found["load"]["ran"] is False
    assert "libcuda" in found["load"]["reason"]
    loaded = found["loaded"]
    assert loaded["instant_watts"]["mean"] == pytest.approx(
        gpu.true_watts * gpu.power_gain, rel=0.03
    )
    assert loaded["instant_refresh_seconds"] == pytest.approx(0.1, abs=0.03)
    assert loaded["counter_over_integral"] == pytest.approx(
        gpu.energy_gain / gpu.power_gain, rel=0.08
    )
    assert found["latency_us"]["power_watts"]["n"] > 10


def test_with_allow_set_it_measures_the_step_and_gives_everything_back(
    make_site, make_job, tmp_path
):
    site = make_site("v100-250", 1)
    gpu = site.window.gpu(0)
    gpu.requested_watts = 240.0
    make_job(site, "resnet50", "0")
    found = check(site, tmp_path, "--allow-set", scale="0.5")["set"]
    assert (gpu.requested_watts, gpu.locked_mhz) == (240.0, 0.0)
    down, up = found["rounds"][1]["down"], found["rounds"][1]["up"]
    assert down["error"] is None
    assert down["enforced_watts"] == found["low_watts"]
    # GridPilot's V100: half of a fall after 21 ms, 95 % of a rise after 300 ms; sampled each 20 ms
    # from a sensor that is up to 20 ms old.
    assert down["t50_seconds"] < 0.1
    assert 0.2 <= up["t95_seconds"] <= 0.45
    assert found["clock_lock"]["down"]["moved"] is True
    assert found["after_sigkill"]["held"] is True
    assert found["after_sigkill"]["restored"] is True


def test_without_permission_it_says_so_and_goes_on(make_site, tmp_path):
    site = make_site("h100-700", 1)
    site.window.gpu(0).permission_denied = 1
    found = check(site, tmp_path, "--allow-set")
    assert found["set"] == {"error": "device-no-permission"}
    assert found["idle"]["instant_watts"]["mean"] > 0


def test_it_needs_nothing_but_the_checkout_and_nvidia_ml_py(tmp_path):
    """Imported with every other distribution refused."""
    code = (
        "import sys, importlib.metadata as m\n"
        "from importlib.abc import MetaPathFinder\n"
        "known = {n for n, d in m.packages_distributions().items()"
        " if not {'nvidia-ml-py', 'gridaware'} & set(d)}\n"
        "class Refuse(MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in known: raise ImportError('refused: ' + name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        f"sys.argv = ['check_gpu', '--help']; exec(open({str(SCRIPT)!r}).read(),"
        f" {{'__name__': 'check', '__file__': {str(SCRIPT)!r}, '__doc__': ''}})\n"
        "print('imported')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "imported", done.stderr
