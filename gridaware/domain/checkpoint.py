"""The manifest that makes a checkpoint a fact: what was saved, for whom, and how to check it.

A checkpoint is a directory or a single file; its manifest lies inside the directory, or beside the
file with the file's name in front. It is written last and atomically, so a checkpoint without one
was never finished.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from gridaware.domain.errors import InvalidInput

__all__ = [
    "MANIFEST_BYTES",
    "MANIFEST_NAME",
    "Manifest",
    "SavedFile",
    "check_saved",
    "decode_manifest",
    "encode_manifest",
    "file_digest",
]

MANIFEST_NAME = "gridaware-manifest.json"
MANIFEST_BYTES = 4 * 1024 * 1024
"""Longest manifest that is read."""
FILES_MOST = 10_000
VERSION = 1

_WHOLE_BYTES = 64 * 1024 * 1024
_SAMPLES = 64
_SAMPLE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class SavedFile:
    """One file of a checkpoint."""

    name: str
    """Relative to the manifest's directory, with ``/``."""
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one checkpoint is."""

    job_id: str
    attempt: int
    request_id: str | None
    """The request it answers; None for one of the job's own."""
    step: int
    serial: int
    """One more than any manifest that was there: the newest is found without trusting a clock."""
    path: str
    """The checkpoint, relative to the manifest's directory: ``.`` or a file's name."""
    files: tuple[SavedFile, ...]
    created_at: datetime
    version: int = VERSION


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON that people can read."""
    body = asdict(manifest)
    body["created_at"] = manifest.created_at.isoformat().replace("+00:00", "Z")
    return json.dumps(body, indent=1).encode() + b"\n"


def decode_manifest(raw: bytes) -> Manifest:
    """The manifest in ``raw``.

    Raises:
        InvalidInput: it is not one, or of a version not known here, or names a file outside its
            own directory (``manifest-malformed``).
    """
    try:
        body = json.loads(raw)
        if body["version"] != VERSION:
            raise InvalidInput("manifest-malformed", f"manifest version {body['version']!r}")
        created_at = datetime.fromisoformat(body["created_at"])
        manifest = Manifest(
            job_id=_string(body, "job_id", empty=True),
            attempt=_count(body, "attempt"),
            request_id=None if body["request_id"] is None else _string(body, "request_id"),
            step=_count(body, "step"),
            serial=_count(body, "serial"),
            path=_inside(_string(body, "path")),
            files=tuple(
                SavedFile(_inside(_string(f, "name")), _count(f, "size"), _string(f, "digest"))
                for f in body["files"][: FILES_MOST + 1]
            ),
            created_at=created_at,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput("manifest-malformed", f"not a manifest: {error!r}") from None
    if not manifest.files or len(manifest.files) > FILES_MOST or created_at.tzinfo is None:
        raise InvalidInput("manifest-malformed", "no files, too many, or a time without a zone")
    return manifest


def check_saved(manifest: Manifest, measure: Callable[[str], SavedFile | None]) -> str | None:
    """What is wrong with a checkpoint, or None if every file is as its manifest says.

    Args:
        manifest: what should be there.
        measure: for a file's name what is there, or None where it is missing.
    """
    for saved in manifest.files:
        found = measure(saved.name)
        if found is None:
            return f"{saved.name} is missing"
        if found.size != saved.size:
            return f"{saved.name} has {found.size} bytes, not {saved.size}"
        if found.digest != saved.digest:
            return f"{saved.name} has changed since it was saved"
    return None


def file_digest(size: int, read_at: Callable[[int, int], bytes]) -> str:
    """A digest of a file, in a time that does not grow with it.

    Up to 64 MiB every byte counts (``sha256:``). Beyond, the size and 64 pieces of 256 KiB at equal
    distances do, first and last included (``sampled-sha256:``): that finds what was cut off, left
    empty, replaced or mixed up, but not a single flipped bit.
    """
    if size <= _WHOLE_BYTES:
        whole = hashlib.sha256()
        for offset in range(0, size, _SAMPLE_BYTES):
            whole.update(read_at(offset, min(_SAMPLE_BYTES, size - offset)))
        return f"sha256:{whole.hexdigest()}"
    sampled = hashlib.sha256(str(size).encode())
    for i in range(_SAMPLES):
        sampled.update(read_at(i * (size - _SAMPLE_BYTES) // (_SAMPLES - 1), _SAMPLE_BYTES))
    return f"sampled-sha256:{sampled.hexdigest()}"


def _string(body: Mapping[str, Any], key: str, *, empty: bool = False) -> str:
    value = body[key]
    if not isinstance(value, str) or len(value) > 4096 or not (value or empty):
        raise ValueError(f"{key} is not a text of sensible length")
    return value


def _count(body: Mapping[str, Any], key: str) -> int:
    value = body[key]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{key} is not a whole number of 0 or more")
    return value


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} lies outside the manifest's directory")
    return name
