"""A series as publishers write it: rows of JSON or CSV, by a map of columns in the settings. Pure.

A JSON document has its rows in a list of objects or of lists, or its columns as lists beside one
another (``{"unix_seconds": [...], "price": [...]}``). Times are ISO 8601 with an offset, epochs in
seconds or milliseconds, or wall times of a named zone.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Self
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from gridaware.domain.advisory import AdvisoryQuality
from gridaware.domain.errors import GridawareError, InvalidInput
from gridaware.domain.eventjson import json_fault, printable
from gridaware.feeds.kind import FeedSettings, RefusedPart
from gridaware.feeds.page_values import epoch, number, offset_time, wall_time
from gridaware.feeds.series import POINTS_AT_MOST, Point, tidy

__all__ = ["Columns", "Table", "known_zone", "read_table"]

REFUSED_AT_MOST = 100
LENGTH_MINUTES_AT_MOST = 1440.0
_HOUR = re.compile(r"([0-9]{1,2})(?::00)?")
_OFFSET = re.compile(r".*:.*(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)", re.DOTALL)
"""After a time of day, or the day of a date would be one."""


def known_zone(name: str) -> str:
    """Return the name of a time zone of the IANA data base.

    Raises:
        ValueError: there is none of that name.
    """
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise ValueError("not a time zone of the IANA data base") from None
    return name


class Columns(FeedSettings):
    """Where a document has its rows, and what its columns mean."""

    format: str = Field(default="json", pattern=r"^(json|csv)$")
    rows: str = Field(default="", max_length=200)
    """Names of the steps to the list of rows, with dots between; empty = the document itself."""
    start: str = Field(min_length=1, max_length=200)
    """Column of the start; steps with dots, and a number for a place in a list."""
    hour_ending: str | None = Field(default=None, max_length=200)
    """Column of the hour that ends, "01:00" or 1 to 24, where ``start`` is a day."""
    where: dict[str, str] = Field(default_factory=dict, max_length=8)
    """Columns and the text that each must have: rows of other places are passed over."""
    end: str | None = Field(default=None, max_length=200)
    value: str = Field(min_length=1, max_length=200)
    timezone: str | None = Field(default=None, max_length=64)
    """Of times without an offset, such as Europe/Berlin; None = such times are refused."""
    minutes: float | None = Field(default=None, gt=0, le=LENGTH_MINUTES_AT_MOST)
    """How long a row lasts, where there is no end; None = the step that most rows have."""
    factor: float = Field(default=1.0, ge=-1e6, le=1e6)
    """What a value is multiplied by to be per MWh: 1000 for a price per kWh."""
    delimiter: str = Field(default=",", min_length=1, max_length=1)

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        return None if name is None else known_zone(name)

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.factor == 0:
            raise ValueError("a factor of 0 makes every value 0")
        if self.hour_ending is not None and (self.timezone is None or self.end is not None):
            raise ValueError("hour_ending needs a timezone, and no end")
        return self


@dataclass(frozen=True, slots=True)
class Table:
    """A document, read."""

    points: list[Point]
    """In order, none over another."""
    refused: tuple[RefusedPart, ...] = ()
    """The first of the rows that could not be read."""


def read_table(body: bytes, columns: Columns, quality: AdvisoryQuality, near: datetime) -> Table:
    """Read a document row by row: one that is bad spoils no other.

    Args:
        body: the document.
        columns: where its rows and columns are.
        quality: of every value.
        near: when it came: tells which of two equal wall times the first row means; a later row
            means the one that follows the row before it.

    Raises:
        InvalidInput: it has no rows (``table-shape``), or none that can be read (``table-empty``).
    """
    rows = _csv_rows(body, columns) if columns.format == "csv" else _json_rows(body, columns)
    starts: list[tuple[datetime, datetime | None, float]] = []
    refused: list[RefusedPart] = []
    for index, row in enumerate(rows):
        if index >= POINTS_AT_MOST:
            refused.append(_too_many())
            break
        try:
            row_read = _read(row, columns, starts, near)
        except GridawareError as error:
            if len(refused) < REFUSED_AT_MOST:
                refused.append(RefusedPart(f"row {index + 1}", error.code, error.message))
            continue
        if row_read is not None:
            starts.append(row_read)
    points = tidy(
        Point(start, end, value, quality) for start, end, value in _with_ends(starts, columns)
    )
    if not points:
        said = f": {refused[0].reason}" if refused else ""
        raise InvalidInput("table-empty", f"no row of the series can be read{said}")
    return Table(points, tuple(refused))


def _read(
    row: object,
    columns: Columns,
    before: Sequence[tuple[datetime, datetime | None, float]],
    near: datetime,
) -> tuple[datetime, datetime | None, float] | None:
    """One row; None = it has no value yet, or is of another place."""
    if any(str(_step_to(row, name)).strip() != text for name, text in columns.where.items()):
        return None
    given = _step_to(row, columns.value)
    if given is None or given == "":
        return None
    value = number(given, columns.value) * columns.factor
    if len(before) > 1:
        near = before[-1][0] + (before[-1][0] - before[-2][0])
    elif before:
        near = before[-1][0]
    given = _step_to(row, columns.start)
    if columns.hour_ending is not None:
        given = _begin_of_hour(given, _step_to(row, columns.hour_ending))
    start = _instant(given, columns, near, columns.start)
    if columns.end is None:
        return start, None, value
    end = _instant(_step_to(row, columns.end), columns, start, columns.end)
    if end < start:
        raise InvalidInput("table-row", "it ends before it starts")
    if end - start > timedelta(minutes=LENGTH_MINUTES_AT_MOST):
        raise InvalidInput("table-row", "it is longer than a day")
    return start, end, value


def _with_ends(
    rows: Sequence[tuple[datetime, datetime | None, float]], columns: Columns
) -> Iterator[tuple[datetime, datetime, float]]:
    """Rows with the ends that they do not say.

    Never simply until the next start: rows that are missing, or were refused, are a gap of which
    nothing is known.
    """
    if columns.minutes is not None:
        lasts = timedelta(minutes=columns.minutes)
    else:
        in_order = sorted({start for start, _, _ in rows})
        steps = Counter(after - at for at, after in pairwise(in_order))
        usual = min(steps, key=lambda step: (-steps[step], step), default=timedelta(hours=1))
        lasts = min(usual, timedelta(minutes=LENGTH_MINUTES_AT_MOST))
    for start, end, value in rows:
        yield start, start + lasts if end is None else end, value


def _instant(value: object, columns: Columns, near: datetime, name: str) -> datetime:
    if isinstance(value, int | float) or (isinstance(value, str) and _digits(value)):
        return epoch(value, name)
    if isinstance(value, str) and _OFFSET.fullmatch(value.strip()):
        return offset_time(value, name)
    if columns.timezone is None:
        raise InvalidInput(
            "table-row", f"{name} is {printable(repr(value), 40)}: no time with an offset"
        )
    return wall_time(value, ZoneInfo(columns.timezone), near, name)


def _begin_of_hour(day: object, ending: object) -> str:
    """The wall time at which an hour begins that ends at 1 to 24 of a day; there is no 25."""
    hour = _HOUR.fullmatch(str(ending).strip())
    if hour is None or not isinstance(day, str) or not 1 <= int(hour[1]) <= 24:
        raise InvalidInput("table-row", f"{printable(repr(ending), 40)} is no hour that ends")
    return f"{day.strip()} {int(hour[1]) - 1:02}:00"


def _digits(text: str) -> bool:
    return text.strip().isascii() and text.strip().isdigit()


def _json_rows(body: bytes, columns: Columns) -> Iterator[object]:
    try:
        document = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput("table-shape", f"no JSON: {json_fault(error)}") from None
    rows = _step_to(document, columns.rows)
    if isinstance(rows, list):
        yield from rows
    elif isinstance(rows, dict):
        yield from _beside(rows, columns)
    else:
        raise InvalidInput("table-shape", f"there are no rows at {columns.rows!r}")


def _beside(table: Mapping[str, object], columns: Columns) -> Iterator[dict[str, object]]:
    """Rows of columns that are lists beside one another."""
    asked = (columns.start, columns.hour_ending, columns.end, columns.value, *columns.where)
    names = list(dict.fromkeys(name for name in asked if name is not None))
    lists = [table.get(name) for name in names]
    lengths = {len(each) for each in lists if isinstance(each, list)}
    if len(lengths) != 1 or not all(isinstance(each, list) for each in lists):
        raise InvalidInput("table-shape", f"{', '.join(names)} are not lists of one length")
    for cells in zip(*(each for each in lists if isinstance(each, list)), strict=True):
        yield dict(zip(names, cells, strict=True))


def _csv_rows(body: bytes, columns: Columns) -> Iterator[object]:
    try:
        text = body.decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text), delimiter=columns.delimiter, strict=True)
        names = reader.fieldnames or ()
    except (ValueError, csv.Error) as error:
        raise InvalidInput("table-shape", f"no CSV: {json_fault(error)}") from None
    if not {columns.start, columns.value} <= set(names):
        shown = ", ".join(printable(name, 20) for name in names[:8])
        raise InvalidInput("table-shape", f"the columns are {shown}")
    try:
        yield from reader
    except csv.Error as error:
        raise InvalidInput("table-shape", f"no CSV: {error}") from None


def _step_to(value: object, path: str) -> object:
    """What lies at the end of a path; None = nothing."""
    if isinstance(value, dict) and path in value:
        return value[path]
    for step in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and _digits(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def _too_many() -> RefusedPart:
    return RefusedPart(
        f"row {POINTS_AT_MOST + 1}", "table-too-long", f"more than {POINTS_AT_MOST} rows"
    )
