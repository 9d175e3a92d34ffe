"""Manifests: what makes a checkpoint a fact."""

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gridaware.domain.checkpoint import (
    Manifest,
    SavedFile,
    check_saved,
    decode_manifest,
    encode_manifest,
    file_digest,
)
from gridaware.domain.errors import InvalidInput

MANIFEST = Manifest(
    job_id="job-1",
    attempt=2,
    request_id="r-1",
    step=120,
    serial=5,
    path=".",
    files=(SavedFile("weights.bin", 3, "sha256:aa"), SavedFile("sub/opt.bin", 4, "sha256:bb")),
    created_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
)


def test_a_manifest_survives_the_disk() -> None:
    raw = encode_manifest(MANIFEST)
    assert decode_manifest(raw) == MANIFEST
    assert json.loads(raw)["created_at"] == "2026-11-30T12:00:00Z"


def edited(**changes) -> bytes:
    return json.dumps(json.loads(encode_manifest(MANIFEST)) | changes).encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        encode_manifest(MANIFEST)[:-20],
        b"[]",
        edited(version=2),
        edited(files=[]),
        edited(files=[{"name": "../../etc/shadow", "size": 1, "digest": "x"}]),
        edited(files=[{"name": "/etc/shadow", "size": 1, "digest": "x"}]),
        edited(files=[{"name": "a", "size": -1, "digest": "x"}]),
        edited(path="../other"),
        edited(step=-1),
        edited(step=True),
        edited(created_at="2026-11-30T12:00:00"),
        edited(job_id=7),
    ],
)
def test_what_is_not_a_whole_manifest_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode_manifest(raw)
    assert caught.value.code == "manifest-malformed"


def test_a_checkpoint_is_right_only_if_every_file_is() -> None:
    there = {saved.name: saved for saved in MANIFEST.files}
    assert check_saved(MANIFEST, there.get) is None
    assert check_saved(MANIFEST, {}.get) == "weights.bin is missing"
    short = there | {"sub/opt.bin": replace(MANIFEST.files[1], size=1)}
    assert check_saved(MANIFEST, short.get) == "sub/opt.bin has 1 bytes, not 4"
    other = there | {"sub/opt.bin": replace(MANIFEST.files[1], digest="sha256:cc")}
    assert check_saved(MANIFEST, other.get) == "sub/opt.bin has changed since it was saved"


def test_the_digest_of_a_small_file_is_its_sha256() -> None:
    data = bytes(range(256)) * 3000
    digest = file_digest(len(data), lambda offset, length: data[offset : offset + length])
    assert digest == "sha256:" + hashlib.sha256(data).hexdigest()


class Sparse:
    """A file of ``size`` bytes that is all zeros but for one, and counts what is read of it."""

    def __init__(self, size: int, spot: int | None = None) -> None:
        self.size, self.spot, self.read = size, spot, 0

    def read_at(self, offset: int, length: int) -> bytes:
        self.read += length
        assert offset + length <= self.size
        data = bytearray(length)
        if self.spot is not None and offset <= self.spot < offset + length:
            data[self.spot - offset] = 1
        return bytes(data)

    def digest(self) -> str:
        return file_digest(self.size, self.read_at)


def test_the_digest_of_a_huge_file_reads_16_mib_of_it_and_sees_both_ends() -> None:
    terabyte = 10**12
    whole = Sparse(terabyte)
    digest = whole.digest()
    assert digest.startswith("sampled-sha256:")
    assert whole.read == 16 * 2**20
    assert digest != Sparse(terabyte - 1).digest()
    assert digest != Sparse(terabyte, spot=0).digest()
    assert digest != Sparse(terabyte, spot=terabyte - 1).digest()
