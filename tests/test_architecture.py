"""The rooms of the design, held: who imports whom, what stays pure, how large things may grow."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gridaware"
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

OTHER_DRIVERS = tuple(f"devices/{name}.py" for name in ("amd", "zeusd", "redfish", "mixed"))
AGENT_SIDE = ("node", "devices/nvml.py", *OTHER_DRIVERS, "wiring/agent.py", "wiring/relay.py")
AGENT_GRIDAWARE = (
    "__version__",
    "domain",
    "clock",
    "control.ports",
    "node",
    "devices",
    "wiring.agent",
    "wiring.ask_agent",
    "wiring.uninstall",
)
ALLOWED: dict[str, tuple[set[str], tuple[str, ...]]] = {
    "domain": (set(), ("domain",)),
    "planning": ({"numpy"}, ("domain", "planning")),
    "settlement": ({"numpy"}, ("domain", "settlement")),
    "train": (set(), ("domain", "clock", "train")),
    "client": ({"requests"}, ("domain", "clock", "client")),
    **dict.fromkeys(AGENT_SIDE, ({"pynvml", "msgspec", "yaml"}, AGENT_GRIDAWARE)),
}
"""Part of the package: (distributions, parts of gridaware) that it may import beside the standard
library, at the top or inside a function."""

IMPURE_MODULES = {
    "asyncio", "concurrent", "io", "logging", "multiprocessing", "os", "pathlib", "queue", "random",
    "sched", "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess",
    "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "eval", "exec", "__import__"}
IMPURE_METHODS = {"now", "utcnow", "today", "random", "default_rng", "urandom"}


def python_files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        place = ROOT / folder
        yield from [place] if place.suffix == ".py" else sorted(place.rglob("*.py"))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Every module named by an import anywhere in a file, with its line."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def files_of_the_machine() -> set[Path]:
    """control/machine.py and everything of control that it reaches."""
    found: set[Path] = set()
    pending = [PACKAGE / "control" / "machine.py"]
    while pending:
        path = pending.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        for name, _ in imports_of(path):
            if name.startswith("gridaware.control."):
                parts = name.split(".")[1:]
                for length in (2, 3):
                    pending.append(PACKAGE.joinpath(*parts[:length]).with_suffix(".py"))
    return found


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_a_part_imports_only_what_its_room_may(part: str) -> None:
    distributions, rooms = ALLOWED[part]
    wrong = []
    for path in python_files(f"gridaware/{part}"):
        for name, line in imports_of(path):
            top = name.split(".")[0]
            if top == "gridaware":
                inside = name.removeprefix("gridaware.")
                if not any(inside == room or inside.startswith(f"{room}.") for room in rooms):
                    wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
            elif top not in sys.stdlib_module_names and top not in distributions:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_pure_rooms_have_no_clock_no_threads_no_chance_and_no_io() -> None:
    pure = {*python_files("gridaware/domain", "gridaware/planning", "gridaware/settlement")}
    wrong = []
    for path in sorted(pure | files_of_the_machine()):
        where = path.relative_to(ROOT)
        for name, line in imports_of(path):
            if name.startswith("pathlib.Pure"):
                continue
            if name.split(".")[0] in IMPURE_MODULES or name.startswith("gridaware.clock"):
                wrong.append(f"{where}:{line} imports {name}")
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.AsyncFunctionDef | ast.Await):
                wrong.append(f"{where}:{node.lineno} is asynchronous")
            elif isinstance(node, ast.Call):
                called = getattr(node.func, "id", "")
                method = getattr(node.func, "attr", "")
                if called in IMPURE_CALLS or method in IMPURE_METHODS:
                    wrong.append(f"{where}:{node.lineno} calls {called or method}")
    assert not wrong, "\n".join(wrong)


def test_the_machine_is_found_by_the_purity_check() -> None:
    assert PACKAGE / "control" / "machine.py" in files_of_the_machine()


def test_no_module_is_longer_than_a_person_can_hold() -> None:
    lines = {
        path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files("gridaware", "benchmarks", "examples")
    }
    long = {str(path): count for path, count in lines.items() if count > MODULE_LINES_MAX}
    assert not long, long


def test_no_function_is_longer_than_a_screen() -> None:
    long = {}
    for path in python_files("gridaware", "benchmarks", "examples"):
        if "versions" in path.parts:
            continue  # a migration is one list of tables
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    long[f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"] = length
    assert not long, long


CHILD = """
import importlib, importlib.abc, pathlib, sys

allowed = set(sys.argv[1].split(",")) | {"gridaware"} | set(sys.stdlib_module_names)


class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in allowed:
            raise ImportError(f"{name} is not allowed here")
        return None


sys.meta_path.insert(0, Refuse())
for name in sys.argv[2:]:
    importlib.import_module(name)
"""


@pytest.mark.parametrize(
    ("part", "distributions"),
    [
        ("domain", ""),
        ("train", ""),
        ("client", "requests,urllib3,certifi,idna,charset_normalizer"),
        ("node", "pynvml,msgspec,yaml"),
        ("devices/nvml.py", "pynvml,msgspec,yaml"),
        *((driver, "") for driver in OTHER_DRIVERS),
        ("wiring/agent.py", "pynvml,msgspec,yaml"),
        ("wiring/relay.py", "msgspec,yaml"),
    ],
)
def test_a_part_loads_where_nothing_else_is_installed(part: str, distributions: str) -> None:
    modules = [module_of(path) for path in python_files(f"gridaware/{part}")]
    assert modules
    done = subprocess.run(
        [sys.executable, "-c", CHILD, distributions, *modules],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_importing_gridaware_loads_nothing_of_it() -> None:
    program = "import sys, gridaware; print(sorted(n for n in sys.modules if 'gridaware' in n))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ast.literal_eval(done.stdout) == ["gridaware"]


def test_only_the_clock_module_may_silence_the_clock_rule() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in python_files("gridaware")
        if "noqa: TID251" in path.read_text(encoding="utf-8")
    ]
    assert silent == ["gridaware/clock.py"]
