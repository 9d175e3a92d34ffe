"""A disk that is really full: entries wait in order, and are written once there is room."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gridaware.domain.errors import Unavailable
from gridaware.store.controller import ControllerStore

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.fixture
def small_disk(tmp_path: Path):
    """Two megabytes of memory as a disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "gridaware-test", str(disk)]
    try:
        made = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if made.returncode != 0:
        pytest.skip(f"no privilege to mount a small disk: {made.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_refuses_new_entries_and_keeps_the_old_ones_in_order(small_disk):
    store = ControllerStore(str(small_disk / "s.db"), site_id="dc-1", started_at=NOON)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_200_000)
    appended, refusal = 0, None
    while refusal is None and appended < 1000:
        try:
            store.ledger.append("decision", {"number": appended, "pad": "x" * 20_000}, NOON)
            appended += 1
            store.ledger.flush()
        except Unavailable as error:
            refusal = error
    assert refusal is not None
    assert refusal.code in {"store-full", "store-io"}
    assert store.ledger.failure is not None
    ballast.unlink()
    store.ledger.flush()
    assert store.ledger.failure is None
    assert store.ledger.append("decision", {"number": appended}, NOON) == appended + 1
    store.ledger.flush()
    assert store.ledger.verify() == appended + 1
    store.close()
