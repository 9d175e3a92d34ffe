"""`gridaware`: the root of the command line, and what becomes of errors."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from gridaware import __version__
from gridaware.cli import (
    events,
    feeds,
    fleet,
    jobs,
    policies,
    processes,
    programmes,
    release,
    reports,
    site,
)
from gridaware.cli.connection import Target
from gridaware.cli.output import tell, write
from gridaware.cli.problem import ExitCode, exit_code_of, print_error
from gridaware.domain.errors import Bug, GridawareError

__all__ = ["app", "main"]

app = typer.Typer(
    name="gridaware",
    help="Makes a GPU cluster on Ray yield to the power grid on command, and proves it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 ok, 1 failed, 2 usage, 3 not found, 4 refused, 5 target missed, "
    "69 unavailable.",
)
processes.add_to(app)
site.add_to(app)
release.add_to(app)
for name, group in (
    ("feed", feeds.app),
    ("event", events.app),
    ("job", jobs.app),
    ("node", fleet.nodes),
    ("gpu", fleet.gpus),
    ("policy", policies.app),
    ("programme", programmes.app),
    ("report", reports.app),
):
    app.add_typer(group, name=name)


def _show_version(wanted: bool) -> None:
    if wanted:
        write(f"gridaware {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Option(envvar="GRIDAWARE_URL", help="Where the API is.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="GRIDAWARE_API_KEY", help="The key that init showed.")
    ] = None,
    debug: Annotated[bool, typer.Option(help="Show a traceback with an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Options that stand before the command."""
    del version
    context.obj = Target(url, api_key, debug)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        returned = app(args=given, prog_name="gridaware", standalone_mode=False)
        sys.stdout.flush()
    except GridawareError as error:
        if "--debug" in given:
            raise
        print_error(error)
        return exit_code_of(error)
    except BrokenPipeError:
        # Whoever read us has had enough: say nothing, not even at the interpreter's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except typer.TyperException as error:
        _print_usage_error(error)
        return ExitCode.USAGE
    except (typer.Abort, KeyboardInterrupt):
        tell("stopped")
        return ExitCode.INTERRUPTED
    except Exception as error:
        if "--debug" in given:
            raise
        print_error(Bug("bug", f"an error of gridaware itself: {type(error).__name__}: {error}"))
        return ExitCode.FAILED
    return returned if isinstance(returned, int) else ExitCode.OK


def _print_usage_error(error: typer.TyperException) -> None:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "gridaware"
    message = error.format_message()
    if not message:  # no command was given, and its help has been shown
        return
    tell(f"error[cli-usage]: {message}\n  fix      {command} --help")
