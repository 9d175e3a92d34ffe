"""Writes the reference pages from the code: ``python docs/generate.py``; a test compares them.

Settings, commands, error codes and both lives stand in the code once; pages repeat them, so that
they can never disagree.
"""

import dataclasses
import inspect
import pkgutil
import re
import types
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Union, get_args, get_origin
from zoneinfo import ZoneInfo

from pydantic import AwareDatetime, BaseModel
from pydantic.fields import FieldInfo
from typer.main import get_command

import gridaware.devices
from gridaware.cli.main import app
from gridaware.control.ports import Boards, ClockLocks, Paced
from gridaware.domain.catalogue import Entry, Term, Terms, in_words
from gridaware.domain.event import EVENT_LIFE
from gridaware.domain.fixes import FIXES
from gridaware.domain.job import JOB_LIFE
from gridaware.domain.reasons import REASONS
from gridaware.domain.transitions import LifeCycle
from gridaware.feeds import FEED_KINDS
from gridaware.node.settings import AgentSettings, RelaySettings
from gridaware.sim.failsafe import FAILURES, Phase
from gridaware.wiring.catalogue import load_catalogue
from gridaware.wiring.config import Settings

DOCS = Path(__file__).parent
ARCHITECTURE = DOCS.parent / "ARCHITECTURE.md"
HEAD = "<!-- Written by docs/generate.py from the code: change the code, then run it. -->\n"
SETTINGS = f"""{HEAD}
# Settings

A site's settings come from its YAML file, which yields to the environment, which yields to a flag.
The variable of a setting is `GRIDAWARE__` and its path in capitals, joined by `__`:
`GRIDAWARE__CONTROL__ACT=true`. Unknown keys are refused with the nearest known one, and every error
is told at once with its line. `configs/site.example.yaml` shows all of them with comments."""
COMMANDS = f"""{HEAD}
# Commands

Every command that reads takes `-o table`, `-o json` or `-o csv`; `--json` is short for `-o json`.
JSON and CSV are the payload alone, on stdout; everything else goes to stderr.
`--url`/`GRIDAWARE_URL` and `--api-key`/`GRIDAWARE_API_KEY` stand before the command.
"""
ERRORS = f"""{HEAD}
# Error codes

An error says `error[code]: fact`, then `because` and `fix`; the API sends the same as an RFC 9457
problem. Codes are stable; one that starts with `*` stands for every code with that ending.
"""
FAILSAFE = f"""{HEAD}
# What holds when something fails

Each cell is a test: the failure is really made (a process is killed, a network cut, a disk filled)
at that moment of an event, on a whole site of real processes whose GPUs alone are virtual.
`make test-all` runs them all, `make test` the ones that matter most (tests/e2e/test_failsafe.py).
Judged by the plant's own registers: in every settlement interval true power is at or below what was
promised; found limits come back within the site's ramp; the ledger's chain is whole, and replaying
it makes the same decisions again.

The ceiling of the connection holds in every cell, also outside events: an agent keeps it without an
end and without a controller.
"""
REASON_CODES = f"""{HEAD}
# Reason codes

Every state of a job or event has a reason code and its sentence. What stands in braces is a number,
shown in the unit that its name ends with.
"""
PROGRAMMES = f"""{HEAD}
# Grid programmes

The catalogue in `configs/programmes`: what grid programmes ask, value by value, with the source of
each. `sourced` was read there; `check the tariff` was not, and is to be read before anybody relies
on it. What nobody here has read is *unknown*; in place of a number that a programme does not have
stands what its source says.

A site's programme follows an entry, and what its own settings say wins:

```yaml
programmes:
  - id: ers
    catalogue: ercot-ers-30
    obligation_hours: ["Mon-Fri 13:00-19:00"]
```

It takes over the deadline, the settlement interval, whether events must be served, the longest
event, the rule of local frequency, `ramp_exempt`, what happens on signal loss, obligation hours
that are sourced, and the baseline where gridaware computes it: elsewhere the report says that it
rests on another. An event wholly outside the obligation hours is served as voluntary: as far as the
tiers of jobs allow. All other values are recorded and shown, and nothing acts on them;
`gridaware programme show` counts what is used of the caps.

Each version counts for the events that start while it is in force, so a past event is settled under
the rules of its day; it keeps what the one before it stated, unless its own sources say otherwise.
Programmes that exclude each other are refused together, in settings and by `gridaware feed add`.
"""
DEVICES = f"""{HEAD}
# Drivers and meters

A driver sets and reads the GPUs of a node; the node's agent loads the one that its settings name
(`driver.module`, with `driver.options`) in a child process, and only that one. A meter reads power
at a boundary: a site's settings name them in order (`site.meters`). A driver or a meter of yours is
a module with `open_driver(options)` or `open_meter(options)`; the ports are in
`gridaware/control/ports.py`.

Nothing here has set a limit on a real GPU yet. What each has been run against stands with it.
"""


def pages() -> dict[Path, str]:
    """Every generated page as it should be."""
    return {
        DOCS / "settings.md": settings_page(),
        DOCS / "cli.md": cli_page(),
        DOCS / "devices.md": devices_page(),
        DOCS / "errors.md": errors_page(),
        DOCS / "reasons.md": reasons_page(),
        DOCS / "programmes.md": programmes_page(),
        DOCS / "failsafe.md": failsafe_page(),
        ARCHITECTURE: with_lives(ARCHITECTURE.read_text(encoding="utf-8")),
    }


def settings_page() -> str:
    """Every setting of a site and of each kind of feed."""
    lines = [SETTINGS]
    for name, field in Settings.model_fields.items():
        section = section_in(field.annotation)
        many = " (a list)" if get_origin(field.annotation) is tuple else ""
        lines += ["", f"## `{name}`{many}", "", first_line(section.__doc__), ""]
        lines += table(("setting", "type", "default", "meaning"), settings_rows(section, name))
    lines += ["", "## Settings of each kind of feed", ""]
    for kind, feed in FEED_KINDS:
        lines += ["", f"### `{kind}`", ""]
        rows = settings_rows(feed.settings_model, "settings")
        lines += table(("setting", "type", "default", "meaning"), rows)
    lines += ["", "## The agent's own file", ""]
    lines += ["`gridaware init DIR --node NAME` writes one; it knows nothing of the site's.", ""]
    lines += table(("setting", "type", "default", "meaning"), agent_rows(AgentSettings, ""))
    lines += ["", "## A relay's own file", ""]
    lines += ["`gridaware init DIR --relay NAME=HOST` writes one; see `docs/relays.md`.", ""]
    lines += table(("setting", "type", "default", "meaning"), agent_rows(RelaySettings, ""))
    return "\n".join(lines) + "\n"


def agent_rows(section: Any, path: str) -> Iterator[tuple[str, ...]]:
    """One row a setting of agent or relay, which know no pydantic."""
    docs = docs_of(section)
    for field in dataclasses.fields(section):
        if dataclasses.is_dataclass(field.type):
            yield from agent_rows(field.type, f"{path}{field.name}.")
            continue
        missing = dataclasses.MISSING
        needed = field.default is missing and field.default_factory is missing
        default = "needed" if needed else f"`{'' if field.default is missing else field.default}`"
        words = {Path: "path", Mapping[str, str]: "table"}
        kind = words.get(field.type) or type_words(field.type)
        yield (f"`{path}{field.name}`", kind, default, first_line(docs.get(field.name)))


def settings_rows(section: type[BaseModel], path: str) -> Iterator[tuple[str, ...]]:
    """One row a setting; sections within are walked into."""
    for name, field in section.model_fields.items():
        inner = section_in(field.annotation)
        if inner is not None:
            yield from settings_rows(inner, f"{path}.{name}")
        else:
            yield (
                f"`{path}.{name}`",
                type_words(field.annotation),
                default_words(field),
                first_line(field.description or docs_of(section).get(name, "")),
            )


def section_in(annotation: Any) -> Any:
    """The section that an annotation holds, or None."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def docs_of(section: type[BaseModel]) -> dict[str, str]:
    """The docstrings under a model's fields, which pydantic keeps only when asked to."""
    import ast
    import inspect
    import textwrap

    found: dict[str, str] = {}
    nodes: list[ast.AST | None] = []
    for each in reversed(section.__mro__):
        if each.__module__.startswith("gridaware."):
            body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
            nodes += [*getattr(body, "body", []), None]
    last = None
    for node in nodes:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.target.id
        elif last and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found[last] = str(node.value.value)
        else:
            last = None
    return found


def type_words(annotation: Any) -> str:
    """A type as an operator reads it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is not None and hasattr(annotation, "__metadata__"):
        return type_words(arguments[0])
    if origin in {Union, types.UnionType}:
        return " or ".join(type_words(argument) for argument in arguments)
    if origin in {tuple, list}:
        inner = dict.fromkeys(type_words(a) for a in arguments if a is not Ellipsis)
        return f"list of {' or '.join(inner)}"
    if origin in {dict, Mapping}:
        return "table"
    if arguments:  # a literal
        return " or ".join(f"`{argument}`" for argument in arguments)
    words = {str: "text", float: "number", int: "whole number", bool: "true or false"}
    words |= {AwareDatetime: "time with its zone"}
    return "null" if annotation is type(None) else words.get(annotation, str(annotation))


def default_words(field: FieldInfo) -> str:
    """A default as YAML would write it."""
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "`null`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple | list):
        return f"`{list(value)}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def cli_page() -> str:
    """Every command with its options."""
    lines = [
        COMMANDS,
        *table(
            ("exit status", "meaning"),
            [
                ("0", "ok"),
                ("1", "failed"),
                ("2", "wrong command line, input or settings"),
                ("3", "not found"),
                ("4", "refused: safety, authority or state"),
                ("5", "target missed"),
                ("69", "unavailable"),
                ("130", "interrupted"),
            ],
        ),
    ]
    for path, command in commands(get_command(app), ()):
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        usage = " ".join([*path, *map(placeholder, arguments)])
        lines += ["", f"## `gridaware {usage}`", "", command.help.strip(), ""]
        rows = [
            (", ".join(f"`{opt}`" for opt in [*p.opts, *p.secondary_opts]), p.help or "")
            for p in command.params
            if p.param_type_name == "option" and "--help" not in p.opts
        ]
        lines += table(("option", "meaning"), rows) if rows else []
    return "\n".join(line.rstrip() for line in lines) + "\n"


def placeholder(argument: Any) -> str:
    """An argument as a command line shows it."""
    name = argument.name.upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below a group, with its path."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def devices_page() -> str:
    """Every driver and meter: what it can do, its options, and what it was run against."""
    modules = [
        import_module(f"gridaware.devices.{found.name}")
        for found in pkgutil.iter_modules(gridaware.devices.__path__)
    ]
    openers = ("open_driver", "open_meter")
    modules = [m for m in modules if any(hasattr(m, opener) for opener in openers)]
    lines = [DEVICES]
    rows = [device_row(m, opener) for m in modules for opener in openers if hasattr(m, opener)]
    lines += table(("module", "kind", "what", "clock locks", "board state", "slow"), rows)
    for module in modules:
        lines += ["", f"## `{module.__name__}`", "", page_text(module.__doc__), ""]
        if hasattr(module, "TESTED"):
            lines += [f"Run against: {module.TESTED}.", ""]
        for name in ("OPTIONS", "METER_OPTIONS"):
            options = getattr(module, name, {})
            heading = "option of the meter" if name == "METER_OPTIONS" else "option"
            rows = [(f"`{key}`", meaning) for key, meaning in options.items()]
            lines += [*table((heading, "meaning"), rows), ""] if rows else []
    return "\n".join(lines).rstrip() + "\n"


def device_row(module: Any, opener: str) -> tuple[str, ...]:
    """One driver or meter, and which of the optional ports it has."""
    made = getattr(module, str(inspect.signature(getattr(module, opener)).return_annotation), None)
    what = first_line(module.__doc__).rstrip(".")
    kind = opener.removeprefix("open_")
    has = ("yes" if made and issubclass(made, port) else "" for port in (ClockLocks, Boards, Paced))
    return (f"`{module.__name__}`", kind, what, *has)


def page_text(docstring: str | None) -> str:
    """A module's own page as Markdown: code in single marks, names without their roles."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", (docstring or "").strip())
    return text.replace("::\n", ":\n").replace("``", "`")


def errors_page() -> str:
    """Every error code with its fix."""
    rows = [(f"`{code}`", fix) for code, fix in sorted(FIXES.items())]
    return "\n".join([ERRORS, *table(("code", "what to do"), rows)]) + "\n"


def reasons_page() -> str:
    """Every reason code with the template of its sentence."""
    rows = [(f"`{code}`", template) for code, template in sorted(REASONS.items())]
    return "\n".join([REASON_CODES, *table(("code", "sentence"), rows)]) + "\n"


def programmes_page() -> str:
    """Every programme of the catalogue, value by value with its source."""
    entries = load_catalogue().entries
    lines = [PROGRAMMES]
    rows = [
        (
            f"[`{name}`](#{name})",
            entry.operator,
            deadlines(entry),
            "yes" if entry.versions[-1].baseline_available else "no",
            ", ".join(f"`{e.programme}`" for e in entry.exclusive_with),
        )
        for name, entry in entries.items()
    ]
    heading = ("programme", "operator", "full response", "baseline computed here", "not with")
    lines += table(heading, rows)
    lines += ["", "## What each value means", ""]
    lines += table(
        ("value", "meaning"),
        [(f"`{name}`", first_line(text)) for name, text in docs_of(Terms).items()],
    )
    for entry in entries.values():
        lines += programme_section(entry)
    return "\n".join(lines) + "\n"


def programme_section(entry: Entry) -> list[str]:
    """One programme: its versions, and the values that each of them states or changes."""
    lines = ["", f"## `{entry.programme_id}`", "", f"{entry.name}. {entry.summary}", ""]
    lines += [f"Operator: {entry.operator}. Hours and dates: {entry.time_zone}.", ""]
    for exclusion in entry.exclusive_with:
        why = f"{exclusion.note}; " if exclusion.note else ""
        source = f"{why}{exclusion.source} ({exclusion.mark.value})"
        lines += [f"Not together with `{exclusion.programme}`: {source}.", ""]
    before: dict[str, Any] = {}
    for version in entry.versions:
        terms = dict(version.terms.items())
        rows = [
            (
                f"`{name}`",
                with_note(in_words(name, term), term.note),
                term.mark.value,
                term.source,
            )
            for name, term in terms.items()
            if before.get(name) != term
        ]
        changes = " What it changes:" if before else ""
        since, until = day_of(entry, version.valid_from), day_of(entry, version.valid_to)
        days = (f" from {since}" if since else "") + (f", before {until}" if until else "")
        lines += [f"**Version {version.version}**{days}.{changes}", ""]
        lines += [*table(("value", "what", "mark", "source"), rows), ""]
        before = terms
    return lines[:-1]


def deadlines(entry: Entry) -> str:
    """Its deadline, and those that later versions change it to."""
    words: list[str] = []
    for version in entry.versions:
        deadline = in_words("deadline_seconds", version.terms.deadline_seconds)
        if not words or deadline not in words[-1]:
            since = day_of(entry, version.valid_from)
            words.append(f"{deadline} from {since}" if words else deadline)
    return "; ".join(words)


def day_of(entry: Entry, date: Term[datetime]) -> str:
    """A day in the programme's own zone, or nothing where there is none."""
    return (
        "" if date.value is None else f"{date.value.astimezone(ZoneInfo(entry.time_zone)):%Y-%m-%d}"
    )


def with_note(words: str, note: str) -> str:
    """A value with the note beside it."""
    return f"{words} ({note})" if note and note != words else words


def failsafe_page() -> str:
    """Every failure, and what holds at each moment of an event."""
    lines = [FAILSAFE]
    heading = ("what fails", *(phase.value.replace("_", " ") for phase in Phase))
    rows = [(f.name, *(f.cell(phase) for phase in Phase)) for f in FAILURES]
    lines += table(heading, rows)
    lines += ["", "## What is done, and who holds the promise meanwhile", ""]
    words = [(f.name, f.done, f.holds) for f in FAILURES]
    lines += table(("what fails", "how", "what follows"), words)
    lines += ["", "The way back by hand, with anything down: [release.md](release.md)."]
    return "\n".join(lines) + "\n"


def with_lives(text: str) -> str:
    """A page with the tables of both lives between their marks."""
    for life in (EVENT_LIFE, JOB_LIFE):
        begin, end = f"<!-- life: {life.name} -->", f"<!-- end: {life.name} -->"
        before, found, rest = text.partition(begin)
        if found:
            after = rest.partition(end)[2]
            text = "\n".join([before + begin, "", *life_table(life), "", end + after])
    return text


def life_table(life: LifeCycle[Any]) -> list[str]:
    """One row an edge."""
    rows = [(f"`{a}`", f"`{b}`", *rest, f"`{why}`") for a, b, *rest, why in life.as_rows()]
    return table(("from", "to", "trigger", "guard", "instruction", "reason"), rows)


def table(heading: tuple[str, ...], rows: Any) -> list[str]:
    """A Markdown table."""
    cells = [heading, tuple("---" for _ in heading), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]


def first_line(text: str | None) -> str:
    """The first paragraph of a docstring as one line."""
    return " ".join((text or "").strip().split("\n\n")[0].split()).replace("``", "`")


def main() -> None:
    """Write every page."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(DOCS.parent)}")  # noqa: T201


if __name__ == "__main__":
    main()
