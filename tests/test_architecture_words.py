"""The words: every error code has a fix, every reason code a sentence, and neither is idle."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import gridaware
from gridaware.domain import errors, fixes
from gridaware.domain.event import EVENT_LIFE
from gridaware.domain.fixes import FIXES, fix_for
from gridaware.domain.job import JOB_LIFE
from gridaware.domain.reasons import REASONS, names_of, sentence

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gridaware"
UNSEEN = {"Bug"}
"""Errors that are never the user's: their advice is to report them."""
REASON = re.compile(r"([A-Z][a-z0-9]+){1,6}")


def sources() -> Iterator[Path]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if not (path.parent.name == "domain" and path.name.startswith(("fixes", "reasons"))):
            yield path


def text_of(node: ast.expr) -> str | None:
    """A literal, with ``*`` for what is only known when it runs."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [str(p.value) if isinstance(p, ast.Constant) else "*" for p in node.values]
        return "".join(parts)
    return None


def error_codes() -> dict[str, str]:
    """Every code that an error of ours is raised with, and one place where it is.

    Those of the simulator are the developer's own and need no advice.
    """
    kinds = {*errors.__all__, "refuse"} - UNSEEN
    found = {}
    for path in sources():
        if path.is_relative_to(PACKAGE / "sim"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            code = text_of(node.args[0]) if name in kinds else None
            if code is not None:
                found[code] = f"{path.relative_to(ROOT)}:{node.lineno}"
    return found


def strings() -> set[str]:
    """Every string of the package that is no docstring of a catalogue."""
    found = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant | ast.JoinedStr):
                text = text_of(node)
                if text is not None:
                    found.add(text)
    return found


def reasons_given() -> dict[str, str]:
    """Every reason code that the code gives: by keyword, to a life cycle, or in planning."""
    found = {}
    for path in sources():
        room = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.keyword) and node.arg == "reason":
                code = text_of(node.value)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "move_job":
                code = text_of(node.args[2]) if len(node.args) > 2 else None
            elif room == "planning" and isinstance(node, ast.Constant):
                code = text_of(node) if "Spare" in str(node.value)[:5] else None
            else:
                continue
            if code is not None and REASON.fullmatch(code):
                found[code] = place
    return found


def test_every_error_that_a_person_may_meet_says_what_to_do() -> None:
    without = {
        code: place
        for code, place in error_codes().items()
        if fix_for(code.replace("*", "some")) is None
    }
    assert not without, without


def test_every_code_is_kebab_case_and_no_fix_is_idle() -> None:
    codes = set(error_codes())
    for code in codes:
        assert re.fullmatch(r"[a-z0-9*]+(-[a-z0-9*]+)*", code), code
    used = codes | strings()
    endings = {code[code.rindex("*") + 1 :] for code in used if "*" in code}
    idle = {
        key
        for key in FIXES
        if key not in used
        and not (key.startswith("*") and any(code.endswith(key[1:]) for code in used | endings))
        and not any(key.endswith(ending) for ending in endings if len(ending) > 4)
    }
    assert not idle, idle


def test_no_code_is_in_two_catalogues() -> None:
    sizes = [len(part) for part in fixes._PARTS]
    assert sum(sizes) == len(FIXES), "a code has two fixes"


def test_a_fix_is_one_imperative_sentence() -> None:
    for code, fix in FIXES.items():
        assert fix[0].isupper(), code
        assert fix.endswith("."), code
        assert "\n" not in fix, code
        assert len(fix) <= 200, code


def test_every_edge_of_both_lives_has_a_sentence() -> None:
    edges = {edge.reason for life in (JOB_LIFE, EVENT_LIFE) for edge in life.transitions}
    assert not edges - set(REASONS)


def test_every_reason_that_is_given_has_a_sentence() -> None:
    without = {code: place for code, place in reasons_given().items() if code not in REASONS}
    assert not without, without


def test_every_sentence_is_used() -> None:
    edges = {edge.reason for life in (JOB_LIFE, EVENT_LIFE) for edge in life.transitions}
    assert not set(REASONS) - edges - strings()


def test_a_sentence_names_its_numbers_with_units_and_has_no_full_stop() -> None:
    for code, template in REASONS.items():
        numbers = dict.fromkeys(names_of(code), 2.0)
        text = sentence(code, numbers)
        assert "{" not in text, code
        assert not text.endswith("."), code
        assert len(text) <= 300, code
        assert len(set(names_of(code))) <= 6, template


def test_the_public_names_are_pinned() -> None:
    assert gridaware.__all__ == ["Client", "__version__", "train"]
    for name in gridaware.__all__:
        assert getattr(gridaware, name) is not None
