"""The register window as a file that several processes share."""

import os
import subprocess
import sys

import pytest

from gridaware.domain.errors import InvalidInput, Unavailable
from gridaware.sim.window import (
    GpuSlot,
    Header,
    LoadSlot,
    NodeSlot,
    Text,
    Window,
    process_started_ticks,
)


def test_what_one_process_writes_another_reads(tmp_path):
    window = Window.create(tmp_path / "w", nodes=1, gpus=2)
    window.node(0).gpus = 2
    code = (
        "import sys; from pathlib import Path; from gridaware.sim.window import Window\n"
        "w = Window.open(Path(sys.argv[1])); w.gpu(1).requested_watts = 123.25\n"
        "w.gpu(1).load(3).claim('bert', 7, 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "w")], check=True)
    assert window.gpu(1).requested_watts == 123.25
    assert window.gpu(0).requested_watts == 0.0
    load = window.gpu(1).load(3)
    assert (load.workload, load.pid, load.started_ticks) == (b"bert", 7, 9)


def test_every_number_is_eight_bytes_on_an_eight_byte_boundary():
    for kind in (Header, NodeSlot, GpuSlot, LoadSlot):
        for field in kind.fields.values():
            assert field.offset % 8 == 0, field.name
            assert isinstance(field, Text) or field.width == 8


def test_registers_never_overlap():
    for kind in (Header, NodeSlot, GpuSlot, LoadSlot):
        taken = [b for f in kind.fields.values() for b in range(f.offset, f.offset + f.width)]
        assert len(taken) == len(set(taken))
        assert max(taken) < kind.size


def test_a_foreign_or_absent_file_is_refused(tmp_path):
    with pytest.raises(Unavailable):
        Window.open(tmp_path / "none")
    (tmp_path / "other").write_bytes(b"x" * 9000)
    with pytest.raises(InvalidInput):
        Window.open(tmp_path / "other")
    (tmp_path / "empty").touch()
    with pytest.raises(InvalidInput):
        Window.open(tmp_path / "empty")


def test_gpus_and_nodes_outside_the_window_are_refused():
    window = Window.in_memory(nodes=1, gpus=1)
    for refused in (lambda: window.gpu(1), lambda: window.gpu(-1), lambda: window.node(1)):
        with pytest.raises(InvalidInput):
            refused()


def test_a_text_that_does_not_fit_is_refused():
    window = Window.in_memory(nodes=0, gpus=1)
    with pytest.raises(InvalidInput):
        window.gpu(0).uuid = b"x" * 48


def test_a_process_is_known_by_its_start_and_a_zombie_is_dead():
    assert process_started_ticks(os.getpid()) == process_started_ticks(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process_started_ticks(child.pid) is not None
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet reaped
    assert process_started_ticks(child.pid) is None
    child.wait()
    assert process_started_ticks(child.pid) is None
