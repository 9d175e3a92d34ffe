"""The agent's journal: one record on disk, never half written.

File: a header that names the record in force, and two regions that are written to by turns::

    GWJRNL02 · offset · length · SHA-256 of the record · SHA-256 of the header so far
    region, region: one JSON record each

A record goes into the region that is not in force, then the header is moved to it, in one write
within one block: whenever the process is killed, either the earlier or the later one stands whole.
Nothing is allocated, truncated or renamed for that, since a file system makes a response wait for
such things. A *durable* record is another file that takes the first one's place.

A file that is damaged or of a later version is set aside under ``journal.bad-<n>`` and reported;
the agent then takes the limits that stand as the found ones (raising them could exceed what the
site allows) and says so for every GPU that stands below its default.
"""

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from struct import Struct

import msgspec

from gridaware.domain.errors import ConfigError, InvalidInput, Refused, Unavailable
from gridaware.node.actions import JournalRecord

__all__ = ["Journal", "load", "lock_state"]

_MAGIC = b"GWJRNL02"
_WHOLE_FILE = b"GWJRNL01"
"""An earlier version: the digest of the record, and the record."""
_FIELDS = Struct(">8sQQ32s")
_DIGEST_BYTES = 32
_BLOCK_BYTES = 4096
_LEAST_REGION_BYTES = 4 * _BLOCK_BYTES
_MOST_BYTES = 4 * 1024 * 1024
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(JournalRecord)


class Journal:
    """The one record in ``directory``. Not for two processes: the agent locks its state."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "journal"
        self._next = directory / "journal.next"
        self._directory = directory
        self._file = -1
        """Descriptor of the file that this process has made; -1 = none yet."""
        self._region_bytes = 0
        self._region = 0
        """That is in force."""

    def save(self, record: JournalRecord, *, durable: bool) -> None:
        """Replace the record.

        ``durable``: return only once it is on the disk. Otherwise the kernel has it, which is
        enough to outlive this process; call :meth:`sync` soon.

        Raises:
            Unavailable: the disk refuses; the earlier record stands (``journal-write``).
        """
        body = _ENCODER.encode(record)
        try:
            if durable or len(body) > self._region_bytes or not self._in_place():
                self._replace(body, durable=durable)
            else:
                self._overwrite(body)
        except OSError as error:
            raise Unavailable("journal-write", f"cannot write {self.path}: {error}") from error

    def sync(self) -> None:
        """Bring the record to the disk; may take as long as the disk does.

        Raises:
            Unavailable: the disk refuses (``journal-write``).
        """
        try:
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
            self._sync_directory()
        except FileNotFoundError:
            return
        except OSError as error:
            raise Unavailable("journal-write", f"cannot sync {self.path}: {error}") from error

    def set_aside(self) -> Path:
        """Move an unreadable journal out of the way, kept for a person to look at."""
        number = 0
        while (kept := self._directory / f"journal.bad-{number}").exists():
            number += 1
        self.path.replace(kept)
        self._close()
        return kept

    def _in_place(self) -> bool:
        """Whether our file is still the journal: someone may have removed it."""
        return self._file >= 0 and os.fstat(self._file).st_nlink > 0

    def _overwrite(self, body: bytes) -> None:
        region = 1 - self._region
        offset = _BLOCK_BYTES + region * self._region_bytes
        _write(self._file, body, offset)
        _write(self._file, _header(offset, body), 0)
        self._region = region

    def _replace(self, body: bytes, *, durable: bool) -> None:
        """Make another file, with room for records of twice this one's length."""
        blocks = -(-2 * len(body) // _BLOCK_BYTES)
        region_bytes = max(blocks * _BLOCK_BYTES, _LEAST_REGION_BYTES)
        head = _header(_BLOCK_BYTES, body).ljust(_BLOCK_BYTES, b"\0")
        file = os.open(self._next, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write(file, head + body.ljust(2 * region_bytes, b"\0"), 0)
            if durable:
                os.fsync(file)
            self._next.replace(self.path)
            if durable:
                self._sync_directory()
        except BaseException:
            os.close(file)
            raise
        self._close()
        self._file, self._region_bytes, self._region = file, region_bytes, 0

    def _close(self) -> None:
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
        self._file, self._region_bytes = -1, 0

    def _sync_directory(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _header(offset: int, body: bytes) -> bytes:
    fields = _FIELDS.pack(_MAGIC, offset, len(body), hashlib.sha256(body).digest())
    return fields + hashlib.sha256(fields).digest()


def _write(file: int, data: bytes, offset: int) -> None:
    written = os.pwrite(file, data, offset)
    if written != len(data):
        raise OSError(f"only {written} of {len(data)} bytes were taken")


def load(journal: Journal) -> JournalRecord | None:
    """The last record, None where there never was one.

    Raises:
        InvalidInput: it is damaged (``journal-corrupt``) or of another version
            (``journal-version``). Nothing has been moved yet.
        Unavailable: it cannot be read (``journal-read``).
    """
    try:
        if journal.path.stat().st_size > _MOST_BYTES:
            raise InvalidInput("journal-corrupt", f"{journal.path} is far too large")
        data = journal.path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable("journal-read", f"cannot read {journal.path}: {error}") from error
    magic = data[: len(_MAGIC)]
    if magic[:6] == _MAGIC[:6] and magic not in {_MAGIC, _WHOLE_FILE}:
        raise InvalidInput("journal-version", f"{journal.path} is of version {magic[6:]!r}")
    body = _of_whole_file(data) if magic == _WHOLE_FILE else _in_force(data)
    if body is None:
        raise InvalidInput("journal-corrupt", f"{journal.path} is damaged")
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, InvalidInput) as error:
        raise InvalidInput("journal-corrupt", f"{journal.path}: {error}") from error


def _in_force(data: bytes) -> bytes | None:
    """The record that the header names; None where anything is not as it was written."""
    end = _FIELDS.size + _DIGEST_BYTES
    if len(data) < end:
        return None
    magic, offset, length, digest = _FIELDS.unpack_from(data)
    if magic != _MAGIC or data[_FIELDS.size : end] != hashlib.sha256(data[: _FIELDS.size]).digest():
        return None
    body = data[offset : offset + length]
    whole = len(body) == length and hashlib.sha256(body).digest() == digest
    return body if whole else None


def _of_whole_file(data: bytes) -> bytes | None:
    start = len(_WHOLE_FILE) + _DIGEST_BYTES
    body = data[start:]
    whole = data[len(_WHOLE_FILE) : start] == hashlib.sha256(body).digest()
    return body if whole else None


def lock_state(directory: Path) -> int:
    """A lock on the state that ends with this process, however it ends.

    Raises:
        ConfigError: the directory cannot be used (``state-dir``).
        Refused: another agent uses it (``agent-running``).
    """
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError("state-dir", f"cannot use {directory}: {error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise Refused("agent-running", f"another agent uses {directory}") from None
    return descriptor
