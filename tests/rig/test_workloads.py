"""Training scripts on virtual GPUs, against a plant that runs as a process."""

import os
import signal
import subprocess
import sys

import pytest

from gridaware.domain.errors import DeviceLost, InvalidInput, Unavailable
from gridaware.sim.window import LoadState, process_started_ticks
from gridaware.sim.workloads import virtual_gpus

pytestmark = pytest.mark.rig


def test_a_step_takes_as_long_as_the_slowest_gpu_makes_it(make_site, eventually):
    site = make_site("a100-400", 2)
    site.window.gpu(1).requested_watts = 200.0
    with virtual_gpus("pretrain", [0, 1]) as gpus:
        gpus.step(0.1)
        eventually(lambda: 0 < site.window.gpu(1).throughput < 0.7)
        gpus.step(0.1)  # spends what the waiting above left over
        seconds = [gpus.step(0.1) for _ in range(5)]
        slowest = site.window.gpu(1).throughput
    assert sum(seconds) == pytest.approx(0.5 / slowest, rel=0.05)
    assert slowest == pytest.approx(0.66, abs=0.03)  # the fit at half the rated power


def test_a_cap_in_the_middle_of_a_step_is_felt_at_once(make_site, eventually):
    site = make_site("a100-400", 1)
    code = (
        "from gridaware.sim.workloads import virtual_gpus\n"
        "with virtual_gpus('pretrain', [0]) as gpus:\n"
        "    gpus.step(0.05); print('warm', flush=True); print(gpus.step(1.0), flush=True)\n"
    )
    job = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with job:
        assert job.stdout.readline() == "warm\n"
        site.window.gpu(0).requested_watts = 120.0
        seconds = float(job.stdout.readline())
    assert seconds > 2.0  # nearly all of it at about 0.36 of the rate


def test_a_job_that_leaves_clears_its_registers_and_its_gpus_fall_idle(make_site, eventually):
    site = make_site("a100-400", 1)
    gpu = site.window.gpu(0)
    with virtual_gpus("pretrain", [gpu.uuid.decode()]) as gpus:
        for _ in range(3):
            gpus.step(0.05)
        assert gpu.load(0).pid == os.getpid()
        assert gpu.load(0).steps == 3
        assert gpu.load(0).state == LoadState.ALIVE
        assert gpu.true_watts > 300
    assert gpu.load(0).pid == 0
    eventually(lambda: gpu.true_watts < 70)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_or_frozen_job_draws_nothing_soon_after(make_site, make_job, eventually, how):
    site = make_site("a100-400", 2)
    gpu = site.window.gpu(1)
    job = make_job(site, "pretrain", "1")
    eventually(lambda: gpu.true_watts > 300)
    job.send_signal(how)
    eventually(lambda: gpu.true_watts < 70)
    if how is signal.SIGSTOP:
        job.send_signal(signal.SIGCONT)
        eventually(lambda: gpu.true_watts > 300)
    else:
        assert gpu.load(0).pid == job.pid  # it had no time to leave
        make_job(site, "pretrain", "1")  # and its slot can be had again
        eventually(lambda: gpu.true_watts > 300)


def test_what_cannot_run_is_refused(make_site, monkeypatch):
    site = make_site("a100-400", 1)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(InvalidInput, match="no GPU is named"):
        virtual_gpus("pretrain")
    with pytest.raises(InvalidInput, match="no GPU 5"):
        virtual_gpus("pretrain", [5])
    with virtual_gpus("mining", [0]) as gpus, pytest.raises(InvalidInput, match="mining"):
        gpus.step(0.01)
    site.window.gpu(0).lost = 1
    with virtual_gpus("pretrain", [0]) as gpus, pytest.raises(DeviceLost):
        gpus.step(0.01)
    monkeypatch.delenv("GRIDAWARE_SIM_WINDOW")
    with pytest.raises(Unavailable):
        virtual_gpus("pretrain", [0])


def test_the_plant_ends_on_sigterm_and_leaves_the_registers(make_site):
    site = make_site("a100-400", 1)
    site.plant.terminate()
    assert site.plant.wait(10) == 0
    assert site.window.gpu(0).true_watts == 60.0


def test_the_plant_ends_when_its_parent_does(tmp_path, eventually):
    code = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-m', 'gridaware.sim.plant', '--window',"
        " sys.argv[1]], stdout=subprocess.PIPE)\n"
        "p.stdout.readline(); print(p.pid, flush=True); input()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "w")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        plant = int(parent.stdout.readline())
        parent.kill()
    eventually(lambda: process_started_ticks(plant) is None)


def test_an_unknown_gpu_class_is_refused_by_name(tmp_path):
    command = [sys.executable, "-m", "gridaware.sim.plant", "--gpu", "gtx-1080"]
    done = subprocess.run(
        [*command, "--window", str(tmp_path / "w")], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "gtx-1080" in done.stderr
    assert "a100-400" in done.stderr
    assert not (tmp_path / "w").exists()
