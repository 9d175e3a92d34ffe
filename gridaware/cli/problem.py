"""Errors as a person reads them: the fact, because of what, and what to do; and the exit code."""

import sys
from typing import TextIO

from gridaware.cli.output import colourful
from gridaware.domain.errors import (
    Bug,
    ConfigError,
    GridawareError,
    InvalidInput,
    NotFound,
    Refused,
    Unavailable,
)
from gridaware.domain.fixes import fix_for
from gridaware.domain.units import show

__all__ = ["ExitCode", "exit_code_of", "print_error"]


class ExitCode:
    """What a command's exit status means."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    """Refused for safety, authority or state."""
    TARGET_MISSED = 5
    UNAVAILABLE = 69
    INTERRUPTED = 130


_CODES: tuple[tuple[type[GridawareError], int], ...] = (
    (ConfigError, ExitCode.USAGE),
    (InvalidInput, ExitCode.USAGE),
    (NotFound, ExitCode.NOT_FOUND),
    (Refused, ExitCode.REFUSED),
    (Unavailable, ExitCode.UNAVAILABLE),
)


def exit_code_of(error: GridawareError) -> int:
    """The exit status for an error."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ExitCode.FAILED


def print_error(error: GridawareError, stream: TextIO | None = None) -> None:
    """``error[code]: fact``, then ``because`` and ``fix`` lines, on stderr."""
    stream = sys.stderr if stream is None else stream
    red, bold, plain = ("\x1b[31;1m", "\x1b[1m", "\x1b[0m") if colourful(stream) else ("", "", "")
    fact, *details = error.message.splitlines() or [error.code]
    stream.write(f"{red}error[{error.code}]{plain}: {fact}\n")
    facts = ", ".join(
        f"{name} {show(name, value) if isinstance(value, int | float) else value}"
        for name, value in error.facts.items()
        if value is not None and not isinstance(value, bool) and str(value) not in error.message
    )
    for because in details or ([facts] if facts else []):
        stream.write(f"  {bold}because{plain}  {because}\n")
    fix = fix_for(error.code)
    if fix is None and isinstance(error, Bug):
        fix = "Report it with the command that led here; --debug shows where it arose."
    if fix is not None:
        stream.write(f"  {bold}fix{plain}      {fix}\n")
