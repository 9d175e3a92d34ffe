"""The register window: one block of memory through which the virtual world is seen and steered.

The plant process owns all physics. Whoever acts as a driver, a job, a meter or a fault reaches it
only through these registers, as real software reaches silicon. The block is a memory-mapped file
(processes) or a ``bytearray`` (the seeded world); the layout is fixed, little-endian, and every
number is 8 bytes on an 8-byte boundary, so a load or a store of one register is never torn.

Each register has **one writer**, so no locks are needed::

    header (4096 bytes)     site registers: plant; faults: whoever tests
    node slots (256 each)   plant; ``reload_requests`` and faults: whoever tests
    GPU slots (1024 each)   identity: creator, once; limits: the drivers of that node;
                            faults: whoever tests; readings and truth: plant
    load slots (4 a GPU)    the job process that claimed the slot; ``state``: plant

Claiming a load slot is the one read-modify-write; it holds ``flock`` on the file. Offsets are the
order of declaration below; ``gridaware.sim.nvml.build`` prints them as a C header, so the C
library can never disagree. Registers ``true_*`` and ``*_gain`` are the truth that tests and
benchmarks compare with: no driver or meter may show them.
"""

import contextlib
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self, overload

from gridaware.domain.errors import InvalidInput, Unavailable

__all__ = [
    "CLOCK_STEP_MHZ",
    "F64",
    "GPU_LOADS",
    "I64",
    "MAGIC",
    "SMOOTHING_ON",
    "VERSION",
    "Field",
    "GpuSlot",
    "Header",
    "LoadSlot",
    "LoadState",
    "NodeSlot",
    "Slot",
    "Text",
    "Window",
    "process_started_ticks",
]

MAGIC = 0x31574449524157  # "WARIDW1" read as little-endian bytes
VERSION = 3
CLOCK_STEP_MHZ = 15
SMOOTHING_ON = 2
GPU_LOADS = 4
"""Load slots of one GPU: more processes than that on one GPU are refused."""


_FLOCK = "hhqqi4x"
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""


class Field:
    """One register of a slot: where it is and how wide."""

    width = 8
    name: str
    offset: int

    def __set_name__(self, owner: type["Slot"], name: str) -> None:
        self.name = name


class F64(Field):
    """A register that holds a double."""

    @overload
    def __get__(self, slot: None, owner: type["Slot"]) -> Self: ...
    @overload
    def __get__(self, slot: "Slot", owner: type["Slot"]) -> float: ...
    def __get__(self, slot: "Slot | None", owner: type["Slot"]) -> "Self | float":
        if slot is None:
            return self
        return slot.window.doubles[(slot.base + self.offset) >> 3]

    def __set__(self, slot: "Slot", value: float) -> None:
        slot.window.doubles[(slot.base + self.offset) >> 3] = value


class I64(Field):
    """A register that holds a signed 64-bit integer; flags are 0 or 1."""

    @overload
    def __get__(self, slot: None, owner: type["Slot"]) -> Self: ...
    @overload
    def __get__(self, slot: "Slot", owner: type["Slot"]) -> int: ...
    def __get__(self, slot: "Slot | None", owner: type["Slot"]) -> "Self | int":
        if slot is None:
            return self
        return slot.window.integers[(slot.base + self.offset) >> 3]

    def __set__(self, slot: "Slot", value: int) -> None:
        slot.window.integers[(slot.base + self.offset) >> 3] = value


class Text(Field):
    """A register of zero-padded bytes; not 8 bytes, so written only where nobody reads yet."""

    def __init__(self, width: int) -> None:
        self.width = width

    @overload
    def __get__(self, slot: None, owner: type["Slot"]) -> Self: ...
    @overload
    def __get__(self, slot: "Slot", owner: type["Slot"]) -> bytes: ...
    def __get__(self, slot: "Slot | None", owner: type["Slot"]) -> "Self | bytes":
        if slot is None:
            return self
        start = slot.base + self.offset
        return bytes(slot.window.memory[start : start + self.width]).partition(b"\0")[0]

    def __set__(self, slot: "Slot", value: bytes) -> None:
        if len(value) >= self.width:
            raise InvalidInput("register-too-long", f"{self.name} holds {self.width - 1} bytes")
        start = slot.base + self.offset
        slot.window.memory[start : start + self.width] = value.ljust(self.width, b"\0")


class Slot:
    """A fixed run of registers, at a place in a window."""

    size: ClassVar[int]
    fields: ClassVar[dict[str, Field]]

    def __init_subclass__(cls, *, size: int) -> None:
        cls.size = size
        cls.fields = {}
        offset = 0
        for name, field in vars(cls).items():
            if isinstance(field, Field):
                field.offset = offset
                offset += field.width
                cls.fields[name] = field
        assert offset <= size, f"{cls.__name__} needs {offset} bytes"

    __slots__ = ("base", "window")

    def __init__(self, window: "Window", base: int) -> None:
        self.window = window
        self.base = base


class Header(Slot, size=4096):
    """What the window holds, and the registers of the site."""

    magic = I64()
    version = I64()
    nodes = I64()
    gpus = I64()
    nodes_offset = I64()
    gpus_offset = I64()
    plant_pid = I64()
    plant_seconds = F64()
    """How far the plant has come, on the machine's monotonic clock (or the world's)."""
    plant_epoch = I64()
    """Counts starts of the plant: the site meter's counter begins anew with each."""
    true_site_watts = F64()
    true_site_joules = F64()
    meter_watts = F64()
    meter_joules = F64()
    meter_gain = F64()
    meter_fault = I64()
    """1: the site meter does not answer."""
    gpu_watts = F64()
    """Sum of the GPUs' true power."""
    meter_dip = F64()
    """A voltage sag: the share by which the meter shows too little; 0: none."""
    sensor_dip = F64()
    """The same of every GPU's power sensor."""


class NodeSlot(Slot, size=256):
    """One node: its share of the GPUs, its overhead and its driver."""

    first_gpu = I64()
    gpus = I64()
    true_overhead_watts = F64()
    """What the node draws at its socket beyond its GPUs."""
    true_wall_watts = F64()
    driver_epoch = I64()
    """Counts loads of the GPU driver on this node, from 1."""
    reload_requests = I64()
    """Add 1 to have the plant reload the driver."""
    driver_gone = I64()
    """1: every driver call answers that the driver is not loaded."""
    error_code = I64()
    fault_call = Text(64)
    """NVML code that calls of the driver as a whole answer (0: none), and which; empty: all."""
    shuffle_on_reload = I64()
    """1: a reload of the driver gives its GPUs other indices."""


class LoadState:
    """What the plant thinks of a claimed load slot."""

    UNSEEN = 0
    ALIVE = 1
    DEAD = 2
    UNKNOWN_WORKLOAD = 3


class LoadSlot(Slot, size=96):
    """A process that may work on the GPU."""

    serial = I64()
    """Changes with each claim; written last, so what precedes it is complete."""
    pid = I64()
    """0: free."""
    started_ticks = I64()
    """Start time of that pid (``/proc/PID/stat`` field 22): a reused pid is someone else."""
    until_seconds = F64()
    """The GPU has work of this process queued until then."""
    steps = I64()
    state = I64()
    workload = Text(32)

    def claim(self, workload: str, pid: int, started_ticks: int) -> None:
        """Take the slot for a process; nothing is queued yet."""
        self.workload = workload.encode()
        self.started_ticks = started_ticks
        self.until_seconds = 0.0
        self.steps = 0
        self.state = LoadState.UNSEEN
        self.pid = pid
        self.serial += 1

    def leave(self) -> None:
        """Give the slot back."""
        self.until_seconds = 0.0
        self.pid = 0
        self.serial += 1


_GPU_SIZE = 1024
_LOADS_OFFSET = _GPU_SIZE - GPU_LOADS * LoadSlot.size


class GpuSlot(Slot, size=_LOADS_OFFSET):
    """One GPU; the rest of its 1024 bytes are its load slots."""

    # identity and range: the creator, once (tests shuffle ``index`` and spoil ``model``)
    uuid = Text(48)
    model = Text(64)
    pci_bus_id = Text(32)
    node = I64()
    index = I64()
    """Driver order on its node; identity is the UUID."""
    least_watts = F64()
    greatest_watts = F64()
    default_watts = F64()
    tdp_watts = F64()
    capability = I64()
    """CUDA compute capability, major * 10 + minor."""
    memory_bytes = I64()
    least_mhz = F64()
    greatest_mhz = F64()
    memory_mhz = I64()
    mig_slices = I64()
    """How many MIG slices it is cut into, 0 to 7; 0: MIG is off."""
    mig_uuid = Text(48)
    """UUID of its slices but for the last digit, which is the slice's number from 1."""
    # limits and locks: the drivers of the node; the plant too when a reload loses them
    requested_watts = F64()
    locked_least_mhz = F64()
    locked_mhz = F64()
    """Most that a clock lock allows; 0: not locked."""
    persistence = I64()
    """1: limits outlive a reload of the driver, and the end of its last client."""
    profiles_supported = I64()
    profiles_requested = I64()
    """Workload power profiles as bits (``NVML_POWER_PROFILE_…``); they change no number here."""
    # faults and foreign hands: whoever tests
    out_of_band_watts = F64()
    """A limit set by the BMC; infinity: none."""
    permission_denied = I64()
    lost = I64()
    error_code = I64()
    """An NVML return code that calls of this GPU answer; 0: none."""
    hang_seconds = F64()
    """Calls of this GPU take that long; infinity: they never return."""
    fault_call = Text(64)
    """The one call that ``error_code`` and ``hang_seconds`` are of; empty: all but handles."""
    limits_ignored = I64()
    """1: limits are accepted and shown, and the silicon does not care."""
    energy_unsupported = I64()
    instant_unsupported = I64()
    module_scope = I64()
    """1: power fields answer at module scope only, as on GH200."""
    smoothing = I64()
    """Power smoothing: 0 absent, 1 present and off, 2 on; its ramps are watts a second."""
    smoothing_floor_watts = F64()
    smoothing_hysteresis_seconds = F64()
    smoothing_down_watts = F64()
    smoothing_up_watts = F64()
    ripple_watts = F64()
    ripple_seconds = F64()
    """A square wave of the job's steps on top of its mean power: height up and down, and period."""
    resets = I64()
    """Add 1 to reset the GPU: its counter starts anew, its limits and locks are the default."""
    part_time = I64()
    """1: the sensor sees the last 25 ms of each 100 ms alone (arXiv 2312.02741)."""
    # what the sensors show: plant
    instant_watts = F64()
    average_watts = F64()
    energy_millijoules = I64()
    cap_binds = I64()
    clock_mhz = F64()
    throughput = F64()
    """Of one process on it, relative to uncapped and alone; 0: nothing runs."""
    # truth: plant
    true_watts = F64()
    true_joules = F64()
    true_work_seconds = F64()
    """Integral of ``throughput``: the uncapped seconds of work done by one process on it."""
    power_gain = F64()
    energy_gain = F64()
    xids = I64()
    """Whoever tests: the last Xid, and how many so far (:mod:`gridaware.sim.nvml.xids`)."""

    def slice_uuid(self, number: int) -> str:
        """UUID of MIG slice ``number``, from 1."""
        return self.mig_uuid.decode()[:-1] + str(number)

    @property
    def enforced_watts(self) -> float:
        """The limit in force: the least of every limiter."""
        return min(self.requested_watts, self.out_of_band_watts, self.greatest_watts)

    def load(self, which: int) -> LoadSlot:
        """One of its load slots."""
        return LoadSlot(self.window, self.base + _LOADS_OFFSET + which * LoadSlot.size)

    def loads(self) -> Iterator[LoadSlot]:
        """All its load slots."""
        return (self.load(which) for which in range(GPU_LOADS))


class Window:
    """A window that exists; make one with :meth:`create`, :meth:`in_memory` or :meth:`open`."""

    def __init__(self, memory: bytearray | mmap.mmap, file_descriptor: int | None = None) -> None:
        self._owner = memory
        self._file_descriptor = file_descriptor
        self.memory = memoryview(memory)
        self.doubles = self.memory.cast("d")
        self.integers = self.memory.cast("q")
        self.header = Header(self, 0)

    @classmethod
    def in_memory(cls, nodes: int, gpus: int) -> Self:
        """An empty window of this process alone."""
        window = cls(bytearray(_size(nodes, gpus)))
        window._lay_out(nodes, gpus)
        return window

    @classmethod
    def create(cls, path: Path, nodes: int, gpus: int) -> Self:
        """A new, empty window file; it replaces an old one in one step once it is laid out."""
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_bytes(bytes(_size(nodes, gpus)))
        window = cls._map(draft)
        window._lay_out(nodes, gpus)
        draft.rename(path)
        return window

    @classmethod
    def open(cls, path: Path) -> Self:
        """The window at ``path``.

        Raises:
            Unavailable: it is not there (yet).
            InvalidInput: that file is something else, or of another version.
        """
        try:
            with path.open("rb") as file:
                start = file.read(Header.size)
        except OSError as error:
            raise Unavailable(
                "window-absent", f"the plant's window {path} cannot be read: {error.strerror}"
            ) from error
        magic, version = struct.unpack_from("<qq", start.ljust(16, b"\0"))
        if magic != MAGIC or version != VERSION or len(start) != Header.size:
            raise InvalidInput("window-foreign", f"{path} is no window of version {VERSION}")
        return cls._map(path)

    @classmethod
    def _map(cls, path: Path) -> Self:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        return cls(mmap.mmap(descriptor, 0), descriptor)

    def _lay_out(self, nodes: int, gpus: int) -> None:
        header = self.header
        header.version = VERSION
        header.nodes = nodes
        header.gpus = gpus
        header.nodes_offset = Header.size
        header.gpus_offset = Header.size + nodes * NodeSlot.size
        header.magic = MAGIC

    def close(self) -> None:
        """Let go of the memory; the registers keep their values."""
        self.integers.release()
        self.doubles.release()
        self.memory.release()
        if isinstance(self._owner, mmap.mmap):
            self._owner.close()
        if self._file_descriptor is not None:
            os.close(self._file_descriptor)
            self._file_descriptor = None

    def node(self, which: int) -> NodeSlot:
        """Node ``which``, from 0."""
        if not 0 <= which < self.header.nodes:
            raise InvalidInput("window-node", f"the window has no node {which}")
        return NodeSlot(self, self.header.nodes_offset + which * NodeSlot.size)

    def gpu(self, which: int) -> GpuSlot:
        """GPU ``which`` of the whole site, from 0."""
        if not 0 <= which < self.header.gpus:
            raise InvalidInput("window-gpu", f"the window has no GPU {which}")
        return GpuSlot(self, self.header.gpus_offset + which * _GPU_SIZE)

    def gpus_of(self, node: int) -> list[GpuSlot]:
        """The GPUs of a node in its driver's order."""
        slot = self.node(node)
        first = slot.first_gpu
        found = [self.gpu(which) for which in range(first, first + slot.gpus)]
        return sorted(found, key=lambda gpu: gpu.index)

    def gpu_by_uuid(self, uuid: str) -> GpuSlot:
        """The GPU of that UUID."""
        wanted = uuid.encode()
        for which in range(self.header.gpus):
            slot = self.gpu(which)
            if slot.uuid == wanted:
                return slot
        raise InvalidInput("window-gpu", f"the window has no GPU {uuid}")

    @property
    def gpu_stride(self) -> int:
        """Bytes from one GPU to the next, for vectorised views."""
        return _GPU_SIZE

    @property
    def loads_offset(self) -> int:
        """Bytes from a GPU to its first load slot."""
        return _LOADS_OFFSET

    def has_client(self, node: int) -> bool | None:
        """Whether a process holds that node's byte, as its open NVML does; None: no file."""
        if self._file_descriptor is None:
            return None
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, node, 1, 0)
        answer = fcntl.fcntl(self._file_descriptor, fcntl.F_OFD_GETLK, asked)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)

    @contextlib.contextmanager
    def claiming(self) -> Iterator[None]:
        """Hold while looking for a free load slot and taking it."""
        if self._file_descriptor is None:
            yield
            return
        # flock belongs to the open file, so each claim opens its own.
        descriptor = os.open(f"/proc/self/fd/{self._file_descriptor}", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _size(nodes: int, gpus: int) -> int:
    return Header.size + nodes * NodeSlot.size + gpus * _GPU_SIZE


def process_started_ticks(pid: int) -> int | None:
    """When that process started, in clock ticks since boot; None where none lives by that pid.

    A zombie counts as dead. Source: proc_pid_stat(5), fields 3 and 22.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The command name (field 2) may hold spaces and brackets; the last bracket closes it.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])
