"""`gridaware feed`: where signals of the grid come from."""

import json
from pathlib import Path
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
    tell,
)
from gridaware.domain.errors import InvalidInput

__all__ = ["app"]

app = typer.Typer(
    help="Where signals of the grid come from.", no_args_is_help=True, rich_markup_mode=None
)
COLUMNS = (
    Column("ID", "feed_id"),
    Column("KIND", "kind"),
    Column("PROGRAMME", "programme_id"),
    Column("LEAST", "authority.least_watts"),
    Column("DEPTH", "authority.greatest_depth"),
    Column("HOURS/DAY", "authority.hours_per_day"),
    Column("NOTICE", "authority.least_notice_seconds"),
)
FeedId = Annotated[str, typer.Argument(help="The feed's id.")]


@app.command()
def add(
    context: typer.Context,
    feed_id: FeedId,
    kind: Annotated[str, typer.Option(help="webhook, schedule or file.")],
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
def remove(context: typer.Context, feed_id: FeedId) -> None:
    """Forget a feed; its open events go on."""
    connect(context).remove_feed(feed_id)
    tell(f"{feed_id} is removed")


def _settings(path: Path | None, texts: list[str]) -> dict[str, Any]:
    """A file's settings, with each KEY=VALUE put over them."""
    import yaml

    settings: dict[str, Any] = {}
    try:
        if path is not None:
            settings = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        for text in texts:
            key, separator, value = text.partition("=")
            if not (separator and key):
                raise InvalidInput("cli-pair-malformed", f"{text!r} is not KEY=VALUE")
            settings[key] = yaml.safe_load(value)
        json.dumps(settings)
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise InvalidInput(
            "cli-settings-malformed", f"the settings cannot be read: {error}"
        ) from error
    return settings
