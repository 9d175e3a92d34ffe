"""`gridaware programme`: contracts with the grid, the site's own and those of the catalogue."""

from typing import Annotated, Any

import typer

from gridaware.cli.connection import connect
from gridaware.cli.output import (
    Column,
    Form,
    JsonOption,
    OutputOption,
    form_of,
    show_record,
    show_rows,
    write,
)

__all__ = ["app"]

app = typer.Typer(
    help="Contracts with the grid: the site's own, and the catalogue with its sources.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
COLUMNS = (
    Column("ID", "programme_id"),
    Column("ORIGIN", "origin"),
    Column("FOLLOWS", "catalogue"),
    Column("OPERATOR", "operator"),
    Column("VERSION", "version"),
    Column("IN FORCE", "in_force"),
    Column("DEADLINE", "deadline_seconds"),
    Column("MUST", "mandatory"),
    Column("BASELINE", "baseline"),
    Column("SOURCED", "sourced"),
    Column("TO CHECK", "to_check"),
)
TERM_COLUMNS = (
    Column("VALUE", "term"),
    Column("WHAT", "words"),
    Column("MARK", "mark"),
    Column("SOURCE", "source"),
    Column("NOTE", "note"),
)
CAP_COLUMNS = (
    Column("CAP", "cap"),
    Column("FROM", "from"),
    Column("UNTIL", "until"),
    Column("USED", "used"),
    Column("LEFT", "left"),
)
At = Annotated[
    str | None, typer.Option(help="Show the rules of this RFC 3339 time; now if left out.")
]
CatalogueOnly = Annotated[
    bool, typer.Option("--catalogue", help="Only what comes with gridaware; no site is needed.")
]


@app.command("list")
def list_programmes(
    context: typer.Context,
    at: At = None,
    catalogue: CatalogueOnly = False,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """List programmes: the site's own, then the catalogue's."""
    if catalogue:
        from gridaware.service.programmes import entry_row

        entries, when = _catalogue(at)
        rows = [entry_row(entry, when) for entry in entries.values()]
    else:
        rows = [dict(each) for each in connect(context).programmes(at=at)]
    show_rows(map(_plain, rows), COLUMNS, form_of(output, as_json))


@app.command()
def show(
    context: typer.Context,
    programme_id: Annotated[str, typer.Argument(help="The programme's id.")],
    at: At = None,
    catalogue: CatalogueOnly = False,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Show one programme: every value with its source, and what was used of its caps."""
    if catalogue:
        from gridaware.service.programmes import entry_of
        from gridaware.wiring.catalogue import named

        found = _plain(entry_of(named(programme_id), _catalogue(at)[1]))
    else:
        found = dict(connect(context).programme(programme_id, at=at))
    form = form_of(output, as_json)
    if form is Form.JSON:
        show_record(found, form)
        return
    if form is Form.CSV:
        show_rows(found["terms"], TERM_COLUMNS, form)
        return
    tables = ("terms", "caps_used", "versions", "exclusions")
    show_record(found, form, hide=(*tables, "sourced", "to_check"))
    write("\n")
    show_rows(found["terms"], TERM_COLUMNS, form)
    if found["caps_used"]:
        write("\n")
        show_rows(found["caps_used"], CAP_COLUMNS, form)


def _catalogue(at: str | None) -> tuple[Any, Any]:
    """The entries that come with gridaware, and the time to show them at."""
    from gridaware.clock import SystemClock
    from gridaware.domain.eventjson import instant
    from gridaware.wiring.catalogue import load_catalogue

    when = SystemClock().wall() if at is None else instant(at, "at")
    return load_catalogue().entries, when


def _plain(row: Any) -> dict[str, Any]:
    """As the API would send it."""
    import msgspec

    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(row))
    return plain
