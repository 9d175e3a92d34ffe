"""The agent's journal: one record on disk, replaced whole, so it is never half written.

File: ``GWJRNL`` and two digits of version, SHA-256 of the rest, one JSON record. A file that
is damaged or of a later version is set aside under ``journal.bad-<n>`` and reported; the agent
then takes the limits that stand as the found ones (raising them could exceed what the site
allows) and says so for every GPU that stands below its default.
"""

import fcntl
import hashlib
import os
from pathlib import Path

import msgspec

from gridaware.domain.errors import ConfigError, InvalidInput, Refused, Unavailable
from gridaware.node.actions import JournalRecord

__all__ = ["Journal", "load", "lock_state"]

_MAGIC = b"GWJRNL01"
_DIGEST_BYTES = 32
_MOST_BYTES = 4 * 1024 * 1024
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(JournalRecord)


class Journal:
    """The one record in ``directory``. Not for two processes: the agent locks its state."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "journal"
        self._next = directory / "journal.next"
        self._directory = directory

    def save(self, record: JournalRecord, *, durable: bool) -> None:
        """Replace the record.

        ``durable``: return only once it is on the disk. Otherwise the kernel has it, which is
        enough to outlive this process; call :meth:`sync` soon.

        Raises:
            Unavailable: the disk refuses; the earlier record stands (``journal-write``).
        """
        body = _ENCODER.encode(record)
        try:
            with self._next.open("wb") as file:
                file.write(_MAGIC + hashlib.sha256(body).digest() + body)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            self._next.replace(self.path)
            if durable:
                self._sync_directory()
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
        return kept

    def _sync_directory(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
    start = len(_MAGIC) + _DIGEST_BYTES
    magic, digest, body = data[: len(_MAGIC)], data[len(_MAGIC) : start], data[start:]
    if magic[:6] == _MAGIC[:6] and magic != _MAGIC:
        raise InvalidInput("journal-version", f"{journal.path} is of version {magic[6:]!r}")
    if magic != _MAGIC or hashlib.sha256(body).digest() != digest:
        raise InvalidInput("journal-corrupt", f"{journal.path} is damaged")
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, InvalidInput) as error:
        raise InvalidInput("journal-corrupt", f"{journal.path}: {error}") from error


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
