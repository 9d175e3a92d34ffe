"""`gridaware feed`: where signals of the grid come from."""

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    tell,
)
from gridaware.domain.errors import ConfigError, InvalidInput

if TYPE_CHECKING:
    from gridaware.feeds.kind import ParsedRow

__all__ = ["app"]

app = typer.Typer(
    help="Where signals of the grid come from.", no_args_is_help=True, rich_markup_mode=None
)
COLUMNS = (
    Column("ID", "feed_id"),
    Column("KIND", "kind"),
    Column("PROGRAMME", "programme_id"),
    Column("STATE", "health.state"),
    Column("LAST GOOD", "health.last_good_at"),
    Column("LEAST", "authority.least_watts"),
    Column("DEPTH", "authority.greatest_depth"),
    Column("HOURS/DAY", "authority.hours_per_day"),
    Column("NOTICE", "authority.least_notice_seconds"),
    Column("WHY", "health.reason"),
)
ADVISORY_COLUMNS = (
    Column("QUANTITY", "quantity"),
    Column("VALUE", "value"),
    Column("UNIT", "unit"),
    Column("FROM", "start"),
    Column("UNTIL", "end"),
    Column("QUALITY", "quality"),
    Column("TEXT", "text"),
)
PARSED_COLUMNS = (
    Column("ID", "id"),
    Column("START", "start"),
    Column("END", "end"),
    Column("TYPE", "type"),
    Column("VALUE", "value"),
    Column("DISPOSITION", "disposition"),
    Column("REASON", "reason"),
)
MESSAGE_BYTES_AT_MOST = 16 << 20
FeedId = Annotated[str, typer.Argument(help="The feed's id.")]


@app.command()
def add(
    context: typer.Context,
    feed_id: FeedId,
    kind: Annotated[
        str,
        typer.Option(
            help="What it speaks: openadr3, webhook, mapped, mqtt, dnp3, schedule, file, …"
        ),
    ],
    programme: Annotated[str, typer.Option(help="Id of the programme it speaks for.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="KEY=VALUE of the kind's settings, the value as YAML; repeatable."
        ),
    ] = None,
    settings_file: Annotated[
        Path | None, typer.Option(help="The kind's settings as a YAML or JSON file.")
    ] = None,
    least_watts: Annotated[
        float | None, typer.Option(help="Lowest site limit it may set, at the meter.")
    ] = None,
    greatest_depth: Annotated[
        float | None, typer.Option(help="Largest share of the reference it may take, 0 to 1.")
    ] = None,
    hours_per_day: Annotated[
        float | None, typer.Option(help="How long a day its events may last.")
    ] = None,
    least_notice_seconds: Annotated[
        float | None, typer.Option(help="Shortest notice it may give.")
    ] = None,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Register a feed: `gridaware feed add utility --kind webhook --programme p --set ...`."""
    authority = {
        "least_watts": least_watts,
        "greatest_depth": greatest_depth,
        "hours_per_day": hours_per_day,
        "least_notice_seconds": least_notice_seconds,
    }
    feed = connect(context).register_feed(
        feed_id,
        kind=kind,
        programme=programme,
        settings=_settings(settings_file, settings or []),
        authority={name: value for name, value in authority.items() if value is not None},
    )
    show_record(dict(feed), form_of(output, as_json))


@app.command("list")
def list_feeds(
    context: typer.Context, output: OutputOption = Form.TABLE, as_json: JsonOption = False
) -> None:
    """List feeds."""
    feeds = connect(context).feeds()
    show_rows((dict(feed) for feed in feeds), COLUMNS, form_of(output, as_json))


@app.command("test")
def try_feed(
    context: typer.Context,
    feed_id: FeedId,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Try a feed; nothing is concluded from what it says."""
    show_record(connect(context).test_feed(feed_id), form_of(output, as_json))


@app.command()
def advisories(
    context: typer.Context,
    feed_id: FeedId,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """What a feed heard that only informs: prices, alerts, forecasts; the newest first."""
    heard = connect(context).advisories(feed_id)
    show_rows((dict(each) for each in heard), ADVISORY_COLUMNS, form_of(output, as_json))


@app.command()
def parse(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A message of the grid, as it came.")],
    kind: Annotated[str, typer.Option(help="Whose messages it holds: openadr3, file, ...")],
    feed: Annotated[
        str | None, typer.Option(help="Read it with this feed's settings and authority.")
    ] = None,
    now: Annotated[
        str | None, typer.Option(help="The time to judge it by; the present one if left out.")
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(help="A CSV of date, peak_mw, forecast_mw that hit rates are counted on."),
    ] = None,
    output: OutputOption = Form.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Say what would become of each part of a message; nothing is done, no site is needed."""
    from gridaware.clock import SystemClock
    from gridaware.domain.eventjson import instant
    from gridaware.domain.programme import Authority
    from gridaware.feeds.parsing import parse_file, within_authority

    at = SystemClock().wall() if now is None else instant(now, "now")
    body = _message(file)
    registered = None if feed is None else connect(context).feed(feed)
    given = {} if registered is None else dict(registered["settings"])
    if history is not None:
        given["history_file"] = str(history)
    settings = json.dumps(given) if given or registered is not None else None
    parsed = parse_file(kind, body, at, settings)
    rows = parsed.events
    if registered is not None:
        authority = Authority(**registered["authority"])
        rows = tuple(within_authority(row, authority) for row in rows)
    shown = [_row(row) for row in rows]
    refused = [asdict(part) for part in parsed.refused]
    form = form_of(output, as_json)
    if form is Form.JSON:
        show_record({"events": shown, "refused": refused}, form)
        return
    show_rows(shown, PARSED_COLUMNS, form)
    for part in refused:
        tell(f"refused {part['where']}: {part['code']}: {part['reason']}")


@app.command()
def remove(context: typer.Context, feed_id: FeedId) -> None:
    """Forget a feed; its open events go on."""
    connect(context).remove_feed(feed_id)
    tell(f"{feed_id} is removed")


def _message(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            body = file.read(MESSAGE_BYTES_AT_MOST + 1)
    except OSError as error:
        raise InvalidInput("message-unreadable", f"{path}: {error.strerror}") from error
    if len(body) > MESSAGE_BYTES_AT_MOST:
        raise InvalidInput("message-too-large", f"{path} has more than 16 MiB")
    return body


def _row(row: "ParsedRow") -> dict[str, Any]:
    def instant(at: datetime | None) -> str | None:
        return None if at is None else at.isoformat().replace("+00:00", "Z")

    return {
        "id": row.id,
        "start": instant(row.start),
        "end": instant(row.end),
        "type": row.type,
        "value": row.value,
        "disposition": row.disposition.value,
        "reason": row.reason,
    }


def _settings(path: Path | None, texts: list[str]) -> dict[str, Any]:
    """A file's settings, with each KEY=VALUE put over them."""
    import yaml

    settings: dict[str, Any] = {} if path is None else _settings_of_file(path)
    for text in texts:
        key, separator, value = text.partition("=")
        if not (separator and key):
            raise InvalidInput("cli-pair-malformed", f"{text!r} is not KEY=VALUE")
        try:
            settings[key] = yaml.safe_load(value)
            json.dumps(settings[key])
        except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
            raise InvalidInput(
                "cli-settings-malformed", f"the value of {key} cannot be read: {error}"
            ) from error
    return settings


def _settings_of_file(path: Path) -> dict[str, Any]:
    """What a settings file says; a key that is there twice is refused, as in the site's file."""
    from gridaware.wiring.settings_file import read_settings_file

    try:
        said = read_settings_file(path)
        json.dumps(said.values)
    except (ConfigError, ValueError, TypeError, RecursionError) as error:
        why = error.message if isinstance(error, ConfigError) else f"{path}: {error}"
        raise InvalidInput("cli-settings-file", why) from error
    for where, line in said.duplicates:
        name = ".".join(str(part) for part in where)
        raise InvalidInput("cli-settings-file", f"{path}:{line}: {name} is there twice")
    return dict(said.values)
