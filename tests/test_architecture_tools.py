"""Formatter, linter, types, import contracts and the wheel, run as tests."""

import os
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
TOOLS = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "--output-format", "concise", "."],
    "types": ["mypy"],
    "imports": ["lint-imports"],
}


def run(*command: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / command[0]
    return subprocess.run(
        [str(program), *command[1:]],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.timeout(310)
@pytest.mark.parametrize("tool", TOOLS)
def test_the_code_satisfies(tool: str) -> None:
    done = run(*TOOLS[tool])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_the_wheel_carries_the_data_and_nothing_else(tmp_path: Path) -> None:
    done = run(
        "python", "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("policies", "configs", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path.name != ".keep":
                assert f"gridaware/_data/{path.relative_to(ROOT)}" in names
    assert "gridaware/py.typed" in names
    tops = {name.split("/")[0] for name in names}
    assert all(top == "gridaware" or top.endswith(".dist-info") for top in tops), tops
    assert not [name for name in names if name.endswith((".pyc", ".o"))]


def test_everything_that_is_installed_for_us_is_pinned_as_it_is() -> None:
    pins = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        name, _, version = line.partition("==")
        pins[canonicalize_name(name)] = version
    pending, seen = [("gridaware", "dev")], set()
    while pending:
        name, extra = pending.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for text in distribution(name).requires or ():
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                pending += [(canonicalize_name(wanted.name), e) for e in ("", *wanted.extras)]
    installed = {name: distribution(name).version for name, _ in seen if name != "gridaware"}
    assert len(installed) > 50
    assert {name: pins.get(name) for name in installed} == installed


def test_every_pin_is_exact_and_names_no_place() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    for pin in pins:
        name, separator, version = pin.partition("==")
        assert all((name, separator, version)), pin
        assert not set(pin) & set("@/;<>~ "), pin
