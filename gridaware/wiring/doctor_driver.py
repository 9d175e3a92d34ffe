"""Asks a GPU driver how it is, in a process of its own, and prints the answer as one JSON list.

Reads only. Run by :mod:`gridaware.wiring.doctor`: ``python -m gridaware.wiring.doctor_driver
'["gridaware.devices.nvml", {}]'`` prints ``[[verdict, name, fact, fix], …]``.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

from gridaware.control.ports import Boards, Driver, GpuIdentity, Parts
from gridaware.domain.errors import DeviceError, GridawareError
from gridaware.domain.fixes import fix_for
from gridaware.domain.fleet import BoardState
from gridaware.domain.units import show_watts

__all__ = ["examine", "main"]

Line = tuple[str, str, str, str]
PERSISTENCE_FIX = "Run nvidia-persistenced, or `nvidia-smi -pm 1` at each start of the node."
PERMISSION_FIX = "Run the agent as root; reading needs no privilege, setting a limit does."


def examine(driver: Driver) -> Iterator[Line]:
    """What an opened driver says of its GPUs: models, limits and their range, permission."""
    gpus = list(driver.gpus())
    for code, words in driver.faults() if isinstance(driver, Parts) else ():
        yield "fail", code, words, fix_for(code) or ""
    if not gpus:
        yield "fail", "gpus", "the driver answers, and names no GPU", "Check `nvidia-smi -L`."
        return
    models = Counter(gpu.model for gpu in gpus)
    named = ", ".join(f"{count} x {model}" for model, count in models.items())
    yield "ok", "gpus", named, ""
    groups: dict[str, list[int]] = {}
    for gpu in gpus:
        try:
            limits = driver.limit_range(gpu.gpu_id)
            enforced = driver.enforced_limit_watts(gpu.gpu_id)
            fact = (
                f"accepts {show_watts(limits.least_watts)} to {show_watts(limits.greatest_watts)}, "
                f"in force {show_watts(enforced)}, default {show_watts(limits.default_watts)}"
            )
            groups.setdefault(fact, []).append(gpu.index)
        except DeviceError as error:
            yield "fail", f"gpu-{gpu.index}.{error.code}", error.message, fix_for(error.code) or ""
    for fact, indices in groups.items():
        yield "ok", "limits", f"GPUs {', '.join(map(str, indices))}: {fact}", ""
    locked = [gpu.index for gpu in gpus if not _may_set(driver, gpu.gpu_id)]
    if locked:
        fact = f"this process may not set limits of GPUs {', '.join(map(str, locked))}"
        yield "warn", "permission", fact, PERMISSION_FIX
    else:
        yield (
            "ok",
            "permission",
            "this process may set limits (nothing changed to find out)",
            "",
        )

    yield from _boards(driver, gpus)


def _may_set(driver: Driver, gpu_id: str) -> bool:
    try:
        return driver.can_set(gpu_id)
    except DeviceError:
        return False  # why, stands in a line of its own


def _boards(driver: Driver, gpus: Sequence[GpuIdentity]) -> Iterator[Line]:
    """What a limit on them is worth less for."""
    if not isinstance(driver, Boards):
        return
    states = {gpu.index: _state(driver, gpu.gpu_id) for gpu in gpus}
    volatile = [index for index, state in states.items() if state.persistence is False]
    if volatile:
        fact = f"persistence mode is off on GPUs {', '.join(map(str, volatile))}: limits get lost"
        yield "warn", "persistence", fact, PERSISTENCE_FIX
    for index, state in states.items():
        if state.slices:
            fact = f"GPU {index} has {len(state.slices)} MIG slices: its board is limited"
            yield "ok", "mig", fact, ""
        if state.profiles:
            fact = f"GPU {index}: workload power profiles requested: {', '.join(state.profiles)}"
            yield "warn", "power-profiles", fact, "See that they are meant: they shift its power."
        if state.smoothing is not None:
            fact = f"GPU {index} holds {show_watts(state.smoothing.floor_watts)} after work ends"
            yield "warn", "power-smoothing", fact, "Count on its pauses only after its ramp."


def _state(boards: Boards, gpu_id: str) -> BoardState:
    try:
        return boards.board_state(gpu_id)
    except DeviceError:
        return BoardState()


def _answer(module: str, options: Mapping[str, str]) -> list[Line]:
    try:
        driver: Driver = import_module(module).open_driver(options)
        driver.open()
        try:
            return list(examine(driver))
        finally:
            driver.close()
    except GridawareError as error:
        return [("fail", error.code, error.message, fix_for(error.code) or "")]
    except ImportError as error:
        return [("fail", "driver-import", str(error), "Name an installed driver module.")]


def main() -> None:
    """Print the answer for the driver that the first argument names."""
    module, options = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps(_answer(module, options)))


if __name__ == "__main__":
    main()
