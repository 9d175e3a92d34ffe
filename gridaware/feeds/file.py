"""``file``: replays timed signals from a CSV, JSON or JSONL file.

Each row is an event request (:mod:`gridaware.domain.eventjson`) and says when it is delivered:
``t_s``, seconds after the feed was registered (or after ``t0``), or ``at``, an instant. ``start_s``
may give the start on the same scale; without any start the event starts when it is delivered. CSV
columns are the keys, the target's among them, and an empty cell is an absent key::

    t_s,id,duration,reduce_percent
    5,evening,PT45S,40

A bad row is refused alone, with its line. The file is read again when it changes; a row that went
away is no cancellation: that is a row of its own, with ``cancel`` true.
"""

import csv
import errno
import json
import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, Field

from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput, Unavailable
from gridaware.domain.eventjson import (
    TARGETS,
    event_from_mapping,
    instant,
    json_object,
    printable,
)
from gridaware.domain.signal import SECONDS_ABSURD, Signal
from gridaware.feeds.kind import FEED_KINDS, Feed, FeedContext, PolledSettings
from gridaware.feeds.plain_file import open_plain

__all__ = ["FileFeed", "FileSettings", "Row", "read_rows"]

BYTES_AT_MOST = 4 * 1024 * 1024
ROWS_AT_MOST = 10_000

_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""Python would also take ``1_000``, and the digits of every script."""

Format = Literal["csv", "json", "jsonl"]
Values = dict[str, object]


class FileSettings(PolledSettings):
    """Settings of a file feed."""

    poll_seconds: float = Field(default=1.0, ge=0.2, le=3600)
    path: str = Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")
    format: Format | None = None
    """By the file's ending where unset."""
    t0: AwareDatetime | None = None
    """What ``t_s`` and ``start_s`` count from; when the feed was registered where unset."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: where it stands, and its values or what is wrong with it."""

    line: int
    text: str
    values: Mapping[str, object] | GridawareError


@FEED_KINDS.register("file")
class FileFeed(Feed[FileSettings]):
    """Delivers the rows whose time has come."""

    settings_model = FileSettings

    def __init__(self, context: FeedContext, settings: FileSettings) -> None:
        super().__init__(context, settings)
        self._path = Path(settings.path)
        ending = settings.format or self._path.suffix.lower().removeprefix(".")
        if ending not in _READERS:
            raise ConfigError(
                "file-format", f"{printable(settings.path)} is not csv, json or jsonl"
            )
        self._read = _READERS[ending]
        self._t0 = settings.t0 or context.registered_at
        self._lock = threading.Lock()
        self._version: tuple[int, ...] | None = None
        self._waiting: list[tuple[datetime, Row]] = []
        self._delivered: list[Signal] = []

    def poll(self) -> Sequence[Signal]:
        """Every signal due by now, in the order of delivery.

        Raises:
            Unavailable: the file is not there or cannot be read now.
            InvalidInput: the file as a whole is not what it should be.
        """
        with self._lock:
            return self._poll()

    def _poll(self) -> tuple[Signal, ...]:
        text, version = _load(self._path, self._version)
        if text is not None:
            self._waiting = self._timed(read_rows(text, self._read))
            self._delivered = []
            self._version = version
        now = self.context.clock.wall()
        due = 0
        for at, row in self._waiting:
            if at > now:
                break
            due += 1
            self._deliver(row, at)
        del self._waiting[:due]
        return tuple(self._delivered)

    def _timed(self, rows: Sequence[Row]) -> list[tuple[datetime, Row]]:
        timed = []
        for row in rows:
            try:
                timed.append((self._due(row), row))
            except GridawareError as error:
                self._refuse(row, error)
        return sorted(timed, key=lambda pair: pair[0])

    def _due(self, row: Row) -> datetime:
        if isinstance(row.values, GridawareError):
            raise row.values
        given = [key for key in ("t_s", "at") if key in row.values]
        if len(given) != 1:
            raise InvalidInput("file-row", "the row needs one of t_s and at")
        if given == ["at"]:
            return instant(row.values["at"], "at")
        return self._offset(row.values["t_s"], "t_s")

    def _deliver(self, row: Row, at: datetime) -> None:
        assert not isinstance(row.values, GridawareError)
        clock = self.context.clock
        values = {key: row.values[key] for key in row.values if key not in _TIMING}
        try:
            if "start_s" in row.values:
                if "start" in values:
                    raise InvalidInput("file-row", "the row has both start and start_s")
                values["start"] = self._offset(row.values["start_s"], "start_s").isoformat()
            elif values.get("start", "now") == "now" and not values.get("cancel"):
                # The planned instant and not this poll's, so that every replay says the same.
                values["start"] = at.isoformat()
            self._delivered.append(
                event_from_mapping(
                    values,
                    feed_id=self.context.feed_id,
                    received_at=clock.wall(),
                    received_seconds=clock.monotonic_seconds(),
                    raw=row.text,
                )
            )
        except GridawareError as error:
            self._refuse(row, error)

    def _offset(self, value: object, key: str) -> datetime:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInput("file-row", f"{key} is not a number")
        if not (math.isfinite(value) and abs(value) <= SECONDS_ABSURD):
            raise InvalidInput("file-row", f"{key} is not within ten years")
        try:
            return self._t0 + timedelta(seconds=value)
        except OverflowError:
            raise InvalidInput("time-absurd", f"{key} from t0 is no year of ours") from None

    def _refuse(self, row: Row, error: GridawareError) -> None:
        located = InvalidInput(error.code, f"line {row.line}: {error.message}", line=row.line)
        self.context.refuse(located, row.text)


_TIMING = frozenset({"t_s", "at", "start_s"})


def read_rows(text: str, reader: Callable[[str], Iterator[Row]]) -> list[Row]:
    """Every row of a file, good and bad.

    Raises:
        InvalidInput: the file as a whole is wrong (``file-too-large``, ``file-header``, …).
    """
    rows: list[Row] = []
    for row in reader(text):
        if len(rows) >= ROWS_AT_MOST:
            raise InvalidInput("file-too-large", f"the file has more than {ROWS_AT_MOST} rows")
        rows.append(row)
    return rows


def _load(path: Path, known: tuple[int, ...] | None) -> tuple[str | None, tuple[int, ...] | None]:
    """The file's text and version; no text where it is the known version."""
    try:
        with open_plain(path) as file:
            status = os.fstat(file.fileno())
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            data = b"" if version == known else file.read(BYTES_AT_MOST + 1)
    except FileNotFoundError:
        raise Unavailable("file-missing", f"there is no file {path}") from None
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise InvalidInput("file-not-regular", f"{path} is not a plain file") from None
        raise Unavailable("file-unreadable", f"{path}: {error.strerror}") from None
    if version == known:
        return None, known
    if len(data) > BYTES_AT_MOST:
        raise InvalidInput("file-too-large", f"{path} has more than 4 MiB")
    try:
        return data.decode("utf-8-sig"), version
    except UnicodeDecodeError as error:
        raise InvalidInput("event-not-utf8", f"{path} is not UTF-8 at byte {error.start}") from None


def _jsonl(text: str) -> Iterator[Row]:
    for line, content in enumerate(text.split("\n"), start=1):
        if content.strip():
            yield _json_row(line, content)


def _json(text: str) -> Iterator[Row]:
    """The objects of a JSON array, each decoded on its own, so that a bad one spoils no other."""
    decoder = json.JSONDecoder()
    place = _skip(text, 0, "[")
    line, counted = 1, 0
    while _peek(text, place) != "]":
        place = _skip(text, place, "")
        line, counted = line + text.count("\n", counted, place), place
        try:
            _, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            raise InvalidInput("event-not-json", f"no JSON value begins at line {line}") from None
        yield _json_row(line, text[place:end])
        place = end
        if _peek(text, place) != "]":
            place = _skip(text, place, ",")
    if _peek(text, _skip(text, place, "]")):
        raise InvalidInput("event-not-json", "something follows the list")


def _peek(text: str, place: int) -> str:
    place = _skip(text, place, "")
    return text[place : place + 1]


def _skip(text: str, place: int, expected: str) -> int:
    """The place behind white space and ``expected``."""
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    if not text.startswith(expected, place):
        line = text.count("\n", 0, place) + 1
        raise InvalidInput("event-not-json", f"{expected!r} is missing at line {line}")
    return place + len(expected)


def _json_row(line: int, content: str) -> Row:
    try:
        return Row(line, content, json_object(content))
    except GridawareError as error:
        return Row(line, content[:1000], error)


def _csv(text: str) -> Iterator[Row]:
    """The lines of a CSV, each parsed on its own, so that an open quote spoils no other."""
    lines = text.replace("\r\n", "\n").split("\n")
    header = [name.strip() for name in _cells(lines[0])]
    if not any(header) or len(set(header)) != len(header):
        raise InvalidInput("file-header", "the first line does not name each column once")
    for line, content in enumerate(lines[1:], start=2):
        if not content.strip(" \t,"):
            continue
        try:
            yield _csv_row(line, header, _cells(content))
        except GridawareError as error:
            yield Row(line, content[:1000], error)


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise InvalidInput("file-row", f"not CSV: {error}") from None


def _csv_row(line: int, header: list[str], cells: list[str]) -> Row:
    text = ",".join(cells)[:1000]
    if len(cells) > len(header):
        raise InvalidInput("file-row", f"the row has {len(cells)} cells for {len(header)} columns")
    values: Values = {}
    target: Values = {}
    for name, cell in zip(header, cells, strict=False):
        content = cell.strip()
        if content:
            (target if name in TARGETS else values)[name] = _csv_value(name, content)
    if target:
        values["target"] = target
    return Row(line, text, values)


def _csv_value(name: str, content: str) -> object:
    """A cell as JSON would have it; what is not is left as text, and refused where it is used."""
    if name in {"cancel", "open_end"}:
        return {"true": True, "false": False}.get(content.lower(), content)
    if name in {"revision", "priority"} and _WHOLE.fullmatch(content):
        return int(content)
    if (name in {"t_s", "start_s"} or name in TARGETS) and _NUMBER.fullmatch(content):
        return float(content)
    return content


_READERS: Mapping[str, Callable[[str], Iterator[Row]]] = {
    "csv": _csv,
    "json": _json,
    "jsonl": _jsonl,
}
