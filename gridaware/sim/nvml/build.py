"""Compiles the virtual ``libnvidia-ml.so.1``.

Two headers are written first: ``window.h``, the register offsets as :mod:`gridaware.sim.window`
has them, and ``stubs.h``, one NOT_SUPPORTED answer for each call that nvidia-ml-py knows and
``library.c`` does not define.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from gridaware.domain.errors import Unavailable
from gridaware.sim.nvml.xids import XID_STRIDE
from gridaware.sim.window import (
    CLOCK_STEP_MHZ,
    GPU_LOADS,
    MAGIC,
    VERSION,
    GpuSlot,
    Header,
    LoadSlot,
    LoadState,
    NodeSlot,
    Slot,
    Text,
    Window,
)

__all__ = ["build"]

SOURCE = Path(__file__).with_name("library.c")
PARTS = tuple(Path(__file__).with_name(f"{name}.h") for name in ("core", "power", "work", "events"))
SONAME = "libnvidia-ml.so.1"
NOT_SUPPORTED = 3


def build(cache: Path) -> Path:
    """The path of the compiled library; compiled once for each state of its sources.

    Its folder belongs on ``LD_LIBRARY_PATH`` *before* a client starts; a process that runs already
    loads the path itself.

    Args:
        cache: where compiled libraries are kept.

    Raises:
        Unavailable: there is no C compiler, or it refuses.
    """
    headers = {"window.h": _window_header(), "stubs.h": _stubs()}
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Unavailable("no-c-compiler", "the virtual NVML needs a C compiler (cc)")
    sources = [compiler, _source(), *headers.values()]
    digest = hashlib.sha256("\0".join(sources).encode()).hexdigest()
    library = cache / f"nvml-{digest[:16]}" / SONAME
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        for name, text in headers.items():
            (Path(scratch) / name).write_text(text, encoding="ascii")
        draft = Path(scratch) / SONAME
        command = [compiler, "-std=gnu11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra"]
        command += ["-I", scratch, f"-Wl,-soname,{SONAME}", "-o", str(draft), str(SOURCE)]
        command += ["-lpthread", "-lm"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
        if done.returncode:
            raise Unavailable("c-compiler-refused", done.stderr.strip()[-2000:])
        draft.replace(library)
    return library


def _source() -> str:
    return "\0".join(part.read_text(encoding="ascii") for part in (SOURCE, *PARTS))


def _window_header() -> str:
    window = Window.in_memory(0, 0)
    numbers = {
        "WINDOW_MAGIC": MAGIC,
        "WINDOW_VERSION": VERSION,
        "GPU_STRIDE": window.gpu_stride,
        "LOADS_OFFSET": window.loads_offset,
        "GPU_LOADS": GPU_LOADS,
        "LOAD_ALIVE": LoadState.ALIVE,
        "CLOCK_STEP_MHZ": CLOCK_STEP_MHZ,
        "XID_STRIDE": XID_STRIDE,
    }
    kinds: tuple[tuple[str, type[Slot]], ...] = (
        ("HEADER", Header),
        ("NODE", NodeSlot),
        ("GPU", GpuSlot),
        ("LOAD", LoadSlot),
    )
    for prefix, kind in kinds:
        numbers[f"{prefix}_SIZE"] = kind.size
        for name, field in kind.fields.items():
            numbers[f"{prefix}_{name.upper()}"] = field.offset
            if isinstance(field, Text):
                numbers[f"{prefix}_{name.upper()}_WIDTH"] = field.width
    return "".join(f"#define {name} {value}LL\n" for name, value in numbers.items())


def _stubs() -> str:
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise Unavailable("nvml-client-missing", "nvidia-ml-py is not installed")
    client = Path(spec.origin).read_text(encoding="utf-8")
    known = set(re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', client))
    source = _source()
    defined = set(re.findall(r"^(?:nvmlReturn_t |const char \*)(nvml\w+)\(", source, re.MULTILINE))
    names = sorted(known - defined)
    return "".join(f"int {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in names)
