"""What a job and the agent of its node say to each other.

Three things, all read by both ends and therefore defined once:

* the **word**: 512 bytes of shared memory with one writer (the agent). A job that looks at it pays
  one aligned 8-byte read; only when the sequence has changed does it read the rest;
* the **lines**: one JSON object per line over the agent's UNIX socket;
* the **names of GPUs** as a process sees them in ``CUDA_VISIBLE_DEVICES``.
"""

import json
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from types import MappingProxyType
from typing import Any, ClassVar, Final

from gridaware.domain.errors import InvalidInput
from gridaware.domain.signal import check_id

__all__ = [
    "DEFAULT_SOCKET",
    "LINE_BYTES",
    "NO_SLICES",
    "WORD_BYTES",
    "Action",
    "AgentLine",
    "JobLine",
    "LeaveAnswer",
    "Leaving",
    "Progress",
    "Refusal",
    "Register",
    "Registered",
    "Rejected",
    "SavedLine",
    "Word",
    "decode_line",
    "encode_line",
    "read_word",
    "resolve_gpus",
    "visible_devices",
    "word_sequence",
    "write_word",
]

DEFAULT_SOCKET = "/run/gridaware/agent.sock"
"""Where the agent listens unless ``GRIDAWARE_AGENT_SOCKET`` says otherwise."""
LINE_BYTES = 16 * 1024
"""Longest line either end accepts, with its newline."""

# --------------------------------------------------------------------------- the word

WORD_BYTES = 512
_MAGIC = b"GAWORD\x00\x01"
_SEQUENCE = struct.Struct("<Q")
_SEQUENCE_AT = 8
_RECORD_AT = 16
# sequence, action, crc32 of the rest, deadline (boot clock, s), request id, reason
_RECORD = struct.Struct("<QIId64s160s")


class Action(IntEnum):
    """What the agent asks of a job."""

    NONE = 0
    CHECKPOINT = 1
    """Save, and go on."""
    PAUSE = 2
    """Save, and leave."""


@dataclass(frozen=True, slots=True)
class Word:
    """One state of the word. ``sequence`` rises with every write."""

    sequence: int
    action: Action = Action.NONE
    deadline_boot_seconds: float = 0.0
    """On the boot clock, which both ends share: they run under one kernel."""
    request_id: str = ""
    reason: str = ""


def write_word(buffer: "memoryview[int]", word: Word) -> None:
    """Put ``word`` into the shared memory; the single writer's side.

    The sequence in the header is written last, so a reader that sees it change finds the record
    already there. On machines that may reorder the two stores, and where a second write overtakes
    a slow reader, the record's own sequence and checksum tell the reader to look again.
    """
    body = _record(word, 0)
    buffer[_RECORD_AT : _RECORD_AT + _RECORD.size] = _record(word, zlib.crc32(body))
    buffer[:_SEQUENCE_AT] = _MAGIC
    buffer[_SEQUENCE_AT : _SEQUENCE_AT + 8] = _SEQUENCE.pack(word.sequence)


def word_sequence(buffer: "memoryview[int]") -> int:
    """The sequence in the header."""
    return int(_SEQUENCE.unpack_from(buffer, _SEQUENCE_AT)[0])


def read_word(buffer: "memoryview[int]") -> Word | None:
    """The word as it stands, or None where a write is under way: look again.

    Raises:
        InvalidInput: these are not the bytes of a word (``word-foreign``).
    """
    if bytes(buffer[:_SEQUENCE_AT]) != _MAGIC:
        raise InvalidInput("word-foreign", "the shared memory does not hold a gridaware word")
    sequence = word_sequence(buffer)
    raw = bytes(buffer[_RECORD_AT : _RECORD_AT + _RECORD.size])
    inside, action, checksum, deadline, request_id, reason = _RECORD.unpack(raw)
    if inside != sequence:
        return None
    unsealed = raw[:12] + b"\0\0\0\0" + raw[16:]
    if zlib.crc32(unsealed) != checksum:
        return None
    return Word(sequence, Action(action), deadline, _text(request_id), _text(reason))


def _record(word: Word, checksum: int) -> bytes:
    return _RECORD.pack(
        word.sequence,
        word.action,
        checksum,
        word.deadline_boot_seconds,
        word.request_id.encode(),
        word.reason.encode()[:160],
    )


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode(errors="replace")


# --------------------------------------------------------------------------- the lines


@dataclass(frozen=True, slots=True)
class Register:
    """Job → agent, first line. The kernel names the process; the line says what it is."""

    tag: ClassVar[str] = "register"
    job_id: str
    attempt: int
    rank: int = 0
    world: int = 1
    gpus: tuple[str, ...] = ()
    """As the process sees them: indices, UUIDs, MIG names."""
    grace_seconds: float = 0.0
    """What a save takes at most; a request that allows less is refused at once."""
    resumed_step: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Job → agent, at most twice a second."""

    tag: ClassVar[str] = "progress"
    step: int
    steps_per_second: float
    busy: str | None = None


@dataclass(frozen=True, slots=True)
class SavedLine:
    """Job → agent: the manifest is on disk. ``path`` is the checkpoint's, absolute."""

    tag: ClassVar[str] = "saved"
    request_id: str
    path: str
    step: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Job → agent: it will not save now."""

    tag: ClassVar[str] = "refused"
    request_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """Job → agent: it would now end; answered by :class:`LeaveAnswer`."""

    tag: ClassVar[str] = "leaving"
    request_id: str


@dataclass(frozen=True, slots=True)
class Registered:
    """Agent → job, with the word's descriptor attached."""

    tag: ClassVar[str] = "registered"
    word_bytes: int = WORD_BYTES


@dataclass(frozen=True, slots=True)
class Rejected:
    """Agent → job: the registration is not accepted (a stable code)."""

    tag: ClassVar[str] = "rejected"
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    """Agent → job: go, or stay because the request is withdrawn or the manifest is not valid."""

    tag: ClassVar[str] = "leave"
    request_id: str
    go: bool
    message: str = ""


JobLine = Register | Progress | SavedLine | Refusal | Leaving
AgentLine = Registered | Rejected | LeaveAnswer
_LINES: dict[str, type[JobLine | AgentLine]] = {
    kind.tag: kind
    for kind in (
        Register,
        Progress,
        SavedLine,
        Refusal,
        Leaving,
        Registered,
        Rejected,
        LeaveAnswer,
    )
}
_TEXT_LENGTH = {"path": 4096, "reason": 1000, "message": 1000, "busy": 100, "code": 64}
_GPUS_MOST = 64


def encode_line(line: JobLine | AgentLine) -> bytes:
    """The line's bytes, newline included."""
    return json.dumps({"type": line.tag, **asdict(line)}, separators=(",", ":")).encode() + b"\n"


def decode_line(raw: bytes) -> JobLine | AgentLine:
    """The line in ``raw``; unknown keys are ignored so that newer peers may say more.

    Raises:
        InvalidInput: not JSON, not a known line, a field missing, of the wrong type or out of range
            (``line-malformed``).
    """
    if len(raw) > LINE_BYTES:
        raise InvalidInput("line-malformed", "the line is longer than 16 KiB")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise InvalidInput("line-malformed", "the line is not JSON") from None
    tag = body.get("type") if isinstance(body, dict) else None
    kind = _LINES.get(tag) if isinstance(tag, str) else None
    if kind is None:
        raise InvalidInput("line-malformed", "the line is not an object of a known type")
    values = {field.name: body[field.name] for field in fields(kind) if field.name in body}
    try:
        return kind(**{name: _checked(name, value) for name, value in values.items()})
    except TypeError:
        raise InvalidInput("line-malformed", f"a {kind.tag} line lacks a field") from None


def _checked(name: str, value: Any) -> Any:
    """One field's value, or InvalidInput. Fields of one name mean one thing in every line."""
    if name == "job_id" or (name == "request_id" and value != ""):
        return check_id(name.removesuffix("_id"), value)
    if name in {"resumed_step", "busy"} and value is None:
        return None
    if name in {"attempt", "rank", "world", "step", "resumed_step", "word_bytes"}:
        good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    elif name in {"steps_per_second", "grace_seconds"}:
        good = (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and 0 <= value <= 1e9
        )
    elif name == "go":
        good = isinstance(value, bool)
    elif name == "gpus":
        good = (
            isinstance(value, list)
            and len(value) <= _GPUS_MOST
            and all(isinstance(item, str) and len(item) <= 100 for item in value)
        )
        value = tuple(value) if good else value
    else:
        good = isinstance(value, str) and len(value) <= _TEXT_LENGTH.get(name, 64)
    if not good:
        raise InvalidInput("line-malformed", f"{name} is of the wrong type or out of range")
    return value


# --------------------------------------------------------------------------- names of GPUs

_NO_DEVICES = {"", "-1", "NoDevFiles", "none", "void"}


def visible_devices(variable: str | None) -> tuple[str, ...]:
    """The devices that a value of ``CUDA_VISIBLE_DEVICES`` names, in order.

    As CUDA reads it, the list ends at the first entry that names nothing. An unset variable gives
    none: in a job that Ray gave GPUs it is always set, and one without GPUs must not claim all.

    Source: CUDA C Programming Guide, "CUDA Environment Variables".
    """
    devices: list[str] = []
    for entry in (variable or "").split(","):
        name = entry.strip()
        if name in _NO_DEVICES:
            break
        devices.append(name)
    return tuple(devices)


NO_SLICES: Final[Mapping[str, str]] = MappingProxyType({})


def resolve_gpus(
    devices: Sequence[str],
    gpu_ids: Sequence[str],
    boards_by_slice: Mapping[str, str] = NO_SLICES,
) -> tuple[str, ...]:
    """The boards behind ``devices``, given the node's boards in the order in which Ray counts them.

    A UUID may be shortened as CUDA allows, as long as it is unambiguous. A MIG slice stands for its
    board, since a slice has no power of its own: ``MIG-UUID`` shares nothing with the board's UUID,
    the older ``MIG-GPU-UUID/1/0`` names it. What is not on this node names no board; neither do an
    empty word, ``NoDevFiles`` and ``-1``, by which CUDA and Ray say that there is none.
    """
    found: list[str] = []
    by_id = {gpu_id.lower(): gpu_id for gpu_id in gpu_ids}
    by_slice = {name.lower(): board for name, board in boards_by_slice.items()}
    for device in devices:
        matches: list[str] = []
        if device.isascii() and device.isdigit():
            matches = [*gpu_ids[int(device) : int(device) + 1]] if len(device) < 6 else []
        else:
            matches = _boards_called(device.lower(), by_id, by_slice)
        if len(matches) == 1 and matches[0] not in found:
            found.append(matches[0])
    return tuple(found)


def _boards_called(device: str, by_id: Mapping[str, str], by_slice: Mapping[str, str]) -> list[str]:
    """Every board that a lower-case name could mean."""
    if device.startswith("mig-gpu-"):
        device = device.removeprefix("mig-").partition("/")[0]
    if device.startswith("mig-"):
        return list({board for low, board in by_slice.items() if low.startswith(device)})
    return [gpu_id for low, gpu_id in by_id.items() if device and low.startswith(device)]
