"""Every error of the store and of the API comes with what to do about it."""

import ast
from pathlib import Path

import gridaware
from gridaware.domain import errors
from gridaware.domain.fixes import fix_for
from gridaware.store.database import _SQLITE_CODES

RAISED = set(errors.__all__) - {"Bug"} | {"BrokenChain"}


def codes_of(room: str) -> set[str]:
    """The first argument of every error made in a room, where it is a plain text."""
    found = set()
    for path in (Path(gridaware.__file__).parent / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in RAISED and node.args:
                code = node.args[0]
                if isinstance(code, ast.Constant) and isinstance(code.value, str):
                    found.add(code.value)
    return found


def test_every_code_of_store_and_service_has_a_fix():
    codes = codes_of("store") | codes_of("service") | set(_SQLITE_CODES.values())
    assert len(codes) > 30
    assert {code for code in codes if fix_for(code) is None} == set()


def test_the_kinds_of_documents_that_can_be_absent_have_a_fix_too():
    for kind in ("job", "event", "node", "feed", "report"):
        assert fix_for(f"{kind}-unknown") is not None
