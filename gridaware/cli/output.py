"""How every read command shows what it read: as a table, as JSON or as CSV.

JSON and CSV are the payload alone, with raw numbers whose units are in their names. A table shows
the same numbers as people read them; piped, it is plain text that cuts nothing off.
"""

import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from gridaware.domain.units import DASH, show, unit_word

__all__ = [
    "Column",
    "Form",
    "JsonOption",
    "OutputOption",
    "colourful",
    "form_of",
    "said",
    "show_record",
    "show_rows",
    "tell",
    "write",
]


class Form(StrEnum):
    """A way to show a payload."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


OutputOption = Annotated[
    Form, typer.Option("--output", "-o", help="How to show it; JSON and CSV are payload alone.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Short for -o json.")]


def form_of(output: Form, as_json: bool) -> Form:
    """The form that the two options ask for together."""
    return Form.JSON if as_json else output


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a list: its heading in a table, and where its value is."""

    heading: str
    key: str
    """Key of the item; a dot goes one level in. Its ending says the unit."""

    def value(self, item: Mapping[str, Any]) -> Any:
        """The raw value, or None."""
        found: Any = item
        for part in self.key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    def text(self, item: Mapping[str, Any], like_joules: float | None = None) -> str:
        """The value as people read it; ``like_joules``: the table's largest energy."""
        return _text(self.key, self.value(item), like_joules)


def show_rows(items: Iterable[Mapping[str, Any]], columns: Sequence[Column], form: Form) -> None:
    """A list: everything of each item as JSON, the columns as table or CSV."""
    rows = list(items)
    if form is Form.JSON:
        _write_json(rows)
    elif form is Form.CSV:
        _write_csv(
            [column.key.replace(".", "_") for column in columns],
            [[column.value(row) for column in columns] for row in rows],
        )
    else:
        like = _largest_joules(rows, columns)
        _write_table(
            [column.heading for column in columns],
            [[column.text(row, like) for column in columns] for row in rows],
        )


def _largest_joules(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> float | None:
    """The largest energy of a table: all are shown in its unit."""
    energies = [column for column in columns if unit_word(column.key) == "joules"]
    found = (column.value(row) for column in energies for row in rows)
    return max((abs(v) for v in found if isinstance(v, int | float)), default=None)


def show_record(item: Mapping[str, Any], form: Form, *, hide: Sequence[str] = ()) -> None:
    """One thing: as JSON, as one row of CSV, or one line a field."""
    if form is Form.JSON:
        _write_json(item)
        return
    flat = _flat({key: value for key, value in item.items() if key not in hide})
    if form is Form.CSV:
        _write_csv(list(flat), [list(flat.values())])
        return
    width = max((len(name) for name in flat), default=0)
    for name, value in flat.items():
        write(f"{name:<{width}}  {_text(name, value)}\n")


def write(text: str) -> None:
    """Payload."""
    sys.stdout.write(text)


def tell(text: str) -> None:
    """Anything that is not payload."""
    sys.stderr.write(text + "\n")


def said(answer: Mapping[str, Any]) -> None:
    """What became of a command."""
    message = answer.get("message")
    tell(f"{answer.get('id')}: {answer.get('disposition')}" + (f"; {message}" if message else ""))


def colourful(stream: Any) -> bool:
    """Whether a stream is a terminal that wants colour."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _write_json(payload: object) -> None:
    indent = 2 if sys.stdout.isatty() else None
    write(json.dumps(payload, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def _write_csv(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(headings)
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    write(buffer.getvalue())


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"}:
        return "'" + value  # a spreadsheet would run it
    return value


def _write_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if colourful(sys.stdout):
        _write_rich_table(headings, rows)
        return
    widths = [
        max(len(heading), *(len(row[i]) for row in rows)) if rows else len(heading)
        for i, heading in enumerate(headings)
    ]
    for row in (headings, *rows):
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        write("  ".join(cells).rstrip() + "\n")


def _write_rich_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for position, heading in enumerate(headings):
        # The first column is what other commands take: it is never cut.
        table.add_column(heading, no_wrap=position == 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLE.get(cell, "")) for cell in row))
    Console().print(table)


_STYLE = {
    **dict.fromkeys(("running", "holding", "ok", "settled", "succeeded", "yes"), "green"),
    **dict.fromkeys(
        ("capped", "pausing", "paused", "ramping_down", "ramping_up", "warn"), "yellow"
    ),
    **dict.fromkeys(("failed", "stalled", "fail", "no"), "red"),
}


_INSTANT = re.compile(r"([0-9-]{10}T[0-9:]{8})\.[0-9]+(Z|[+-][0-9:]{5})")
"""With a fraction of its seconds, which a table leaves out; JSON and CSV keep it."""


def _text(name: str, value: Any, like_joules: float | None = None) -> str:
    if value is None or value == "":
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return show(name, value, like_joules)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(key, inner)}" for key, inner in value.items()) or DASH
    if isinstance(value, list | tuple):
        return ", ".join(_text(name, inner) for inner in value) or DASH
    text = str(value)
    instant = _INSTANT.fullmatch(text)
    return _printable(text) if instant is None else "".join(instant.groups())


def _printable(text: str) -> str:
    """Without what could move the cursor or change colours: names come from outside."""
    return "".join(c if c.isprintable() else " " for c in text)


def _flat(item: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in item.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{before}{key}.")
        else:
            flat[f"{before}{key}"] = value
    return flat
