"""The documents, held against the code: pages are current, commands parse, names exist."""

import ast
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.main import get_command

from gridaware.cli.main import app
from gridaware.client import Client
from gridaware.domain.fixes import FIXES
from gridaware.feeds import FEED_KINDS
from gridaware.wiring.config import Settings

ROOT = Path(__file__).parent.parent
WRITTEN = [
    "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs/feeds/webhook.md",
    "docs/feeds/README.md", "docs/relays.md",
    "configs/site.example.yaml",
]  # fmt: skip


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts() -> Iterator[tuple[str, str]]:
    """Everything that a person reads, by where it stands."""
    for name in WRITTEN:
        yield name, (ROOT / name).read_text(encoding="utf-8")
    for code, fix in FIXES.items():
        yield f"fix of {code}", fix
    for path in sorted((ROOT / "examples").glob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        yield f"examples/{path.name}", f"```\n{docstring}\n```"


def command_lines() -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """Every `gridaware …` command that a document shows, and whether it is shown as a whole."""
    for where, text in texts():
        blocks = re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL)
        lines = [line for block in blocks for line in re.sub(r"\\\n\s*", " ", block).splitlines()]
        spans = re.findall(
            r"`(gridaware [^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        )
        for whole, shown in ((True, lines), (False, spans)):
            for line in shown:
                command = re.sub(r"\s+#.*", "", line.strip()).removeprefix("sudo ")
                if command.startswith("gridaware ") and "…" not in command:
                    yield where, tuple(shlex.split(command)[1:]), whole


def parsed(arguments: list[str]) -> None:
    """Raise unless the command line is one that we take."""
    group: Any = get_command(app)
    context = group.make_context("gridaware", list(arguments))
    while hasattr(group, "commands"):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        name, group, rest = group.resolve_command(context, rest)
        context = group.make_context(name, rest, parent=context)


COMMANDS = sorted(set(command_lines()))


def test_there_are_commands_in_the_documents() -> None:
    assert sum(whole for _, _, whole in COMMANDS) > 20


@pytest.mark.parametrize(
    ("where", "words", "whole"), COMMANDS, ids=[f"{c[0]}: {' '.join(c[1])}" for c in COMMANDS]
)
def test_a_documented_command_is_one_that_we_take(
    where: str, words: tuple[str, ...], whole: bool
) -> None:
    try:
        parsed(list(words))
    except typer.Exit:
        assert "--help" in words
    except typer.TyperException as error:
        # In running text a command may be named without what it needs.
        if whole or type(error).__name__ != "MissingParameter":
            pytest.fail(f"{where}: gridaware {' '.join(words)}: {error.format_message()}")


def test_a_wrong_command_would_be_found() -> None:
    with pytest.raises(typer.TyperException):
        parsed(["job", "submit", "--gpu", "8"])
    with pytest.raises(typer.TyperException):
        parsed(["jobs"])


def test_the_generated_pages_are_current() -> None:
    old = [
        str(path.relative_to(ROOT))
        for path, text in generator().pages().items()
        if path.read_text(encoding="utf-8") != text
    ]
    assert not old, f"run `make docs`: {old}"


def test_every_setting_is_in_the_reference_and_in_the_example() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    example = (ROOT / "configs" / "site.example.yaml").read_text(encoding="utf-8")
    rows = generator().settings_rows
    section_in = generator().section_in
    for name, field in Settings.model_fields.items():
        for setting, *_ in rows(section_in(field.annotation), name):
            assert setting in page
            key = setting.strip("`").rpartition(".")[2]
            assert re.search(rf"^[# -]*{key}:", example, re.MULTILINE), setting


def test_every_named_variable_is_a_setting() -> None:
    fields: Any = Settings.model_fields
    for where, text in texts():
        for name in re.findall(r"GRIDAWARE__([A-Z_]+[A-Z])", text):
            if name == "SECTION__KEY":
                continue
            section, _, key = name.lower().partition("__")
            assert key.split("__")[0] in fields[section].annotation.model_fields, (where, name)


def test_every_link_leads_somewhere() -> None:
    for name in [*WRITTEN, *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md"))]:
        text = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / name).parent.joinpath(target).exists(), (name, target)


def test_every_named_file_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:control|domain|feeds|node|store|devices|wiring)/\w+\.py)", text))
    assert len(named) > 10
    missing = {name for name in named if not (ROOT / "gridaware" / name).exists()}
    assert not missing


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for where, text in texts():
        for target in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE):
            assert target in targets, (where, target)


def test_python_in_the_readme_compiles_and_calls_what_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        tree = ast.parse(block)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id == "client":
                    assert hasattr(Client, node.attr), node.attr
                elif node.value.id == "session":
                    from gridaware.train.session import Session

                    assert hasattr(Session, node.attr), node.attr


def test_every_kind_of_feed_has_a_page_and_stands_in_the_index() -> None:
    index = (ROOT / "docs" / "feeds" / "README.md").read_text(encoding="utf-8")
    for kind in FEED_KINDS.names():
        page = (ROOT / "docs" / "feeds" / f"{kind}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# `{kind}`"), kind
        assert f"[`{kind}`]({kind}.md)" in index, kind
