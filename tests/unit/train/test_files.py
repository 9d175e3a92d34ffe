"""Finding the newest checkpoint that is whole."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gridaware.domain.checkpoint import MANIFEST_NAME, Manifest
from gridaware.domain.errors import InvalidInput
from gridaware.train.files import (
    load_checkpoint,
    manifest_path,
    measure_files,
    newest_checkpoint,
    newest_serial,
    write_manifest,
)


def save(path: Path, step: int, serial: int, *, text: str = "weights") -> Path:
    if path.suffix:
        path.write_text(text)
    else:
        (path / "shards").mkdir(parents=True)
        (path / "shards" / "0").write_text(text)
    manifest = Manifest(
        job_id="j",
        attempt=1,
        request_id=None,
        step=step,
        serial=serial,
        path="." if path.is_dir() else path.name,
        files=measure_files(path),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    write_manifest(path, manifest)
    return path


def test_directories_and_single_files_are_checkpoints_alike(tmp_path: Path) -> None:
    folder = save(tmp_path / "step-10", 10, 1)
    found, _ = newest_checkpoint(tmp_path)
    assert (found.path, found.step) == (folder, 10)
    file = save(tmp_path / "step-20.pt", 20, 2)
    found, skipped = newest_checkpoint(tmp_path)
    assert (found.path, found.step) == (file, 20)
    assert skipped == ()
    assert manifest_path(file).name == f"step-20.pt.{MANIFEST_NAME}"


def test_newest_means_saved_last_whatever_the_clock_or_the_step_says(tmp_path: Path) -> None:
    """After a roll-back to an older checkpoint the later run has the lower step."""
    save(tmp_path / "a", 900, 1)
    save(tmp_path / "b", 300, 2)
    assert newest_checkpoint(tmp_path)[0].step == 300
    assert newest_serial(tmp_path) == 2


@pytest.mark.parametrize("damage", ["cut off", "changed", "missing", "manifest cut off"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, damage) -> None:
    """transformers PR 41723: killed in the middle of a save."""
    save(tmp_path / "old", 10, 1)
    new = save(tmp_path / "new", 20, 2)
    shard = new / "shards" / "0"
    if damage == "cut off":
        shard.write_text("weig")
    elif damage == "changed":
        shard.write_text("weightz")
    elif damage == "missing":
        shard.unlink()
    else:
        raw = (new / MANIFEST_NAME).read_bytes()
        (new / MANIFEST_NAME).write_bytes(raw[: len(raw) // 2])
    found, skipped = newest_checkpoint(tmp_path)
    assert found.step == 10
    assert len(skipped) == 1
    assert str(new) in skipped[0]


def test_files_without_a_manifest_are_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step-10").mkdir()
    (tmp_path / "step-10" / "weights").write_text("half")
    assert newest_checkpoint(tmp_path) == (None, ())
    assert newest_checkpoint(tmp_path / "never-made") == (None, ())


def test_a_manifest_is_never_seen_half_written(tmp_path: Path, monkeypatch) -> None:
    """A crash before the rename leaves the checkpoint unfinished and no litter that counts."""
    path = save(tmp_path / "a", 10, 1)
    whole = (path / MANIFEST_NAME).read_bytes()

    def crash(_descriptor: int) -> None:
        raise OSError("power cut")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="power cut"):
        write_manifest(path, load_checkpoint(path / MANIFEST_NAME).manifest)
    assert (path / MANIFEST_NAME).read_bytes() == whole
    assert [p.name for p in path.iterdir() if p.name.startswith(".")] == []


def test_nothing_saved_is_nothing_to_declare(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(InvalidInput) as caught:
            measure_files(path)
        assert caught.value.code == "checkpoint-empty"


def test_a_pipe_in_place_of_a_file_does_not_hang_whoever_looks(tmp_path: Path) -> None:
    path = save(tmp_path / "a", 10, 1)
    (path / "shards" / "0").unlink()
    os.mkfifo(path / "shards" / "0")
    assert newest_checkpoint(tmp_path)[0] is None
    (path / MANIFEST_NAME).unlink()
    os.mkfifo(path / MANIFEST_NAME)
    assert newest_checkpoint(tmp_path)[0] is None
