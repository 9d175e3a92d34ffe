"""Checkpoints on disk: writing their manifests, and finding the newest that is whole."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gridaware.domain.checkpoint import (
    MANIFEST_BYTES,
    MANIFEST_NAME,
    Manifest,
    SavedFile,
    check_saved,
    decode_manifest,
    encode_manifest,
    file_digest,
)
from gridaware.domain.errors import GridawareError, InvalidInput

__all__ = [
    "Checkpoint",
    "load_checkpoint",
    "manifest_path",
    "measure_files",
    "newest_checkpoint",
    "newest_serial",
    "write_manifest",
]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was found whole."""

    path: Path
    step: int
    manifest: Manifest


def manifest_path(checkpoint: Path) -> Path:
    """Where the manifest of a checkpoint lies: inside a directory, beside a file."""
    if checkpoint.is_dir():
        return checkpoint / MANIFEST_NAME
    return checkpoint.with_name(f"{checkpoint.name}.{MANIFEST_NAME}")


def measure_files(checkpoint: Path) -> tuple[SavedFile, ...]:
    """Every file of a checkpoint, flushed to disk and digested.

    Raises:
        InvalidInput: there is none (``checkpoint-empty``).
    """
    if not checkpoint.is_dir():
        names = [checkpoint.name] if checkpoint.is_file() else []
    else:
        names = sorted(
            found.relative_to(checkpoint).as_posix()
            for found in checkpoint.rglob("*")
            if found.is_file() and found.name != MANIFEST_NAME
        )
    if not names:
        raise InvalidInput("checkpoint-empty", f"there is no file to save at {checkpoint}")
    folder = manifest_path(checkpoint).parent
    for name in names:
        _flush(folder / name)
    measured = (_measure(folder, name) for name in names)
    return tuple(found for found in measured if found is not None)


def write_manifest(checkpoint: Path, manifest: Manifest) -> Path:
    """Write a manifest so that it is there whole or not at all, even after a power cut."""
    path = manifest_path(checkpoint)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(encode_manifest(manifest))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush(path.parent)
    return path


def load_checkpoint(manifest_file: Path) -> Checkpoint:
    """The checkpoint of a manifest, after every file was measured again.

    Raises:
        InvalidInput: the manifest cannot be read or a file is not as it says.
    """
    try:
        manifest = decode_manifest(_read(manifest_file))
        folder = manifest_file.parent
        wrong = check_saved(manifest, lambda name: _measure(folder, name))
    except OSError as error:
        raise InvalidInput("checkpoint-unreadable", f"{manifest_file}: {error}") from None
    if wrong is not None:
        raise InvalidInput("checkpoint-incomplete", wrong)
    return Checkpoint(folder / manifest.path, manifest.step, manifest)


def newest_checkpoint(folder: Path) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """The newest whole checkpoint in ``folder``, and what was wrong with those passed over."""
    skipped: list[str] = []
    found: list[tuple[int, Path]] = []
    for path in _manifest_files(folder):
        try:
            found.append((decode_manifest(_read(path)).serial, path))
        except (OSError, GridawareError) as error:
            skipped.append(f"{path}: {error}")
    for _serial, path in sorted(found, reverse=True):
        try:
            return load_checkpoint(path), tuple(skipped)
        except GridawareError as error:
            skipped.append(f"{path}: {error}")
    return None, tuple(skipped)


def newest_serial(folder: Path) -> int:
    """The highest serial in ``folder``, whole or not; 0 where there is none."""
    newest = 0
    for path in _manifest_files(folder):
        with suppress(OSError, GridawareError):
            newest = max(newest, decode_manifest(_read(path)).serial)
    return newest


def _manifest_files(folder: Path) -> Iterator[Path]:
    """Manifests in ``folder`` and one level below."""
    for pattern in (MANIFEST_NAME, f"*.{MANIFEST_NAME}", f"*/{MANIFEST_NAME}"):
        yield from folder.glob(pattern)


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidInput("manifest-malformed", f"{path} is not a regular file")
        raw = file.read(MANIFEST_BYTES + 1)
    if len(raw) > MANIFEST_BYTES:
        raise InvalidInput("manifest-malformed", f"{path} is longer than 4 MiB")
    return raw


def _measure(folder: Path, name: str) -> SavedFile | None:
    try:
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        digest = file_digest(
            status.st_size, lambda offset, length: os.pread(descriptor, length, offset)
        )
        return SavedFile(name, status.st_size, digest)
    finally:
        os.close(descriptor)


def _flush(path: Path) -> None:
    """Have a file, or a directory's entries, on the disk before anything relies on it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
