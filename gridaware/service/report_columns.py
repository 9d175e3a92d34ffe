"""What the tables of a report are made of: columns by the kind of their value.

A column has the name it bears in CSV, with its unit, and the heading it has where people read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from gridaware.service import quantities

__all__ = [
    "Cell",
    "Column",
    "Table",
    "count",
    "flags",
    "joules",
    "millis",
    "number",
    "share",
    "time",
    "watts",
    "words",
]

Cell = str | float | int | bool | datetime | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of any table."""

    name: str
    """In CSV."""
    value: Callable[[object], Cell]
    heading: str = ""
    """Where people read; empty = in CSV only."""
    text: Callable[[Cell], str] = quantities.plain
    right: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind and how to show them."""

    name: str
    version: int
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: Sequence[object]

    @property
    def schema(self) -> str:
        """Name and version, repeated on every line of CSV."""
        return f"gridaware.{self.name}/{self.version}"

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns that people see."""
        return tuple(column for column in self.columns if column.heading)

    def texts(self) -> list[list[str]]:
        """The rows as people see them."""
        return [[c.text(c.value(row)) for c in self.shown] for row in self.rows]

    def values(self) -> list[list[Cell]]:
        """The rows as CSV has them."""
        return [[c.value(row) for c in self.columns] for row in self.rows]


def words(name: str, heading: str, attr: str = "") -> Column:
    """Text."""
    return Column(name, attrgetter(attr or name), heading, right=False)


def count(name: str, heading: str = "", attr: str = "") -> Column:
    """A bare number."""
    return Column(name, attrgetter(attr or name), heading)


def watts(name: str, heading: str, like: float | None = None, attr: str = "") -> Column:
    """Power, in the unit of ``like``."""
    return Column(
        name, attrgetter(attr or name), heading, lambda v: quantities.power(number(v), like)
    )


def joules(name: str, heading: str, like: float | None = None, attr: str = "") -> Column:
    """Energy, in the unit of ``like``."""
    return Column(
        name, attrgetter(attr or name), heading, lambda v: quantities.energy(number(v), like)
    )


def share(name: str, heading: str, attr: str) -> Column:
    """A share of one, as a percentage."""
    return Column(name, attrgetter(attr), heading, lambda v: quantities.percent(number(v), 0))


def time(name: str, heading: str, attr: str, *, date: bool = False) -> Column:
    """An instant, UTC."""
    return Column(
        name,
        attrgetter(attr),
        heading,
        lambda v: quantities.instant(v if isinstance(v, datetime) else None, date=date),
    )


def millis(name: str, heading: str, attr: str) -> Column:
    """Milliseconds."""
    return Column(
        name,
        attrgetter(attr),
        heading,
        lambda v: quantities.duration(None if v is None else (number(v) or 0.0) / 1000),
    )


def flags(attr: str = "flags") -> Column:
    """Flags, as words."""
    get = attrgetter(attr)
    return Column("flags", lambda row: " ".join(get(row)), "Notes", right=False)


def number(value: Cell) -> float | None:
    """The number in a cell, None where it is none."""
    return float(value) if isinstance(value, int | float) else None
