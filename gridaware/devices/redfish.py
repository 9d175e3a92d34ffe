"""GPUs, modules and nodes through their BMC: Redfish ``EnvironmentMetrics`` (DMTF DSP8010).

For machines whose limits are set out of band: HGX and DGX baseboards, GB200 trays, and whole nodes
that have no finer limit. What is particular here, and why:

* **It is slow.** A limit takes seconds to be set and up to tens of seconds to be obeyed (POLCA,
  arXiv 2308.12908: about 40 s). The driver says so (:meth:`RedfishDriver.pace`), and control counts
  on it for nothing that is due sooner.
* One GET tells range, limit, power and energy; it serves every question for a second, since no BMC
  refreshes its sensors faster.
* A limit whose ``ControlMode`` is ``Disabled`` holds nothing: it cannot be set here.
* Where the settings name a Node Manager (DGX H100, H200, B200: ``Domains/*/Policies/*`` of the DGX
  user guides), an enabled policy on GPUs is another limiter: a GPU's share of it is in force where
  it is lower. It is only read: its write format is not public.
* A driver of a *node* is one device for all its GPUs: for nodes that are given to one job at a
  time, and for sites whose overhead model counts watts of nodes.
"""

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gridaware.clock import Clock
from gridaware.devices import redfish_bmc
from gridaware.devices.kernel import NVIDIA_GPUS, driver_load, nvidia_gpus
from gridaware.devices.options import check_names, choice, needed, positive
from gridaware.devices.readings import Counters, LastGood
from gridaware.devices.redfish_bmc import Bmc, Resource, bmc_from, number_of
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceLost,
    DeviceNoPermission,
    DeviceNotSupported,
    DeviceOutOfRange,
    DriverGone,
    Unavailable,
)
from gridaware.domain.fleet import LimitRange, Pace
from gridaware.domain.reading import Boundary, EnergyReading, Method, Reading

__all__ = [
    "METER_OPTIONS",
    "OPTIONS",
    "TESTED",
    "RedfishDriver",
    "RedfishMeter",
    "RedfishPart",
    "open_driver",
    "open_meter",
]

OPTIONS: Final[Mapping[str, str]] = {
    **redfish_bmc.OPTIONS,
    "system": "whose processors of type GPU to drive; default `HGX_Baseboard_0`",
    "paths": "instead: the resources to drive, by comma, such as "
    "`/redfish/v1/Chassis/HGX_ProcessorModule_0`",
    "boundary": "what each of `paths` encloses: `gpu` (default), `module` or `node`",
    "node_manager": "where its Node Manager is, such as `/redfish/v1/Managers/BMC/NodeManager`; "
    "default: none is asked",
    "latency_seconds": "how long a limit takes to be obeyed; default 40",
}
METER_OPTIONS: Final[Mapping[str, str]] = {
    **redfish_bmc.OPTIONS,
    "path": "the chassis to read, such as `/redfish/v1/Chassis/Chassis_0`",
}
LATENCY_SECONDS: Final = 40.0
TESTED: Final = "an imitation of a BMC over TLS; no real BMC has been asked yet"
EXCHANGES: Final = 4
"""Of one call at most: sign in anew, read what has changed meanwhile, and change it."""
SAME_SECONDS: Final = 1.0
OPEN_SECONDS: Final = 5.0
"""Of the 10 s that the agent gives a driver child to be ready."""
POLICIES_SECONDS: Final = 10.0
JOULES_PER_KWH: Final = 3.6e6
MOST_PARTS: Final = 64
MODULE: Final = Path("/sys/module/nvidia")
GPU_COMPONENT: Final = "COMP_GPU"
"""A Node Manager policy on GPUs, named as the guides name ``COMP_CPU`` and ``COMP_MEMORY``."""


@dataclass(slots=True)
class RedfishPart:
    """Who a device is, and where its metrics are."""

    gpu_id: str
    index: int
    model: str
    path: str
    read: Resource | None = None
    read_seconds: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


def open_driver(options: Mapping[str, str]) -> "RedfishDriver":
    """The driver of what a BMC limits; nothing is asked before :meth:`RedfishDriver.open`.

    Args:
        options: see ``OPTIONS``.

    Raises:
        ConfigError: an option is unknown, missing or malformed, or a file cannot be read.
    """
    check_names(options, OPTIONS, "redfish")
    words = tuple(b.value for b in (Boundary.GPU, Boundary.MODULE, Boundary.NODE))
    paths = tuple(p for p in (p.strip() for p in options.get("paths", "").split(",")) if p)
    if "boundary" in options and not paths:
        raise ConfigError("redfish-options", "redfish: boundary says what each of paths encloses")
    for path in (*paths, options.get("node_manager", "/redfish/")):
        if not path.startswith("/redfish/") or not path.isprintable() or " " in path:
            raise ConfigError("redfish-options", f"redfish: {path!r} is no path of a BMC")
    return RedfishDriver(
        bmc_from(options, "redfish"),
        system=options.get("system", "HGX_Baseboard_0"),
        paths=paths,
        boundary=Boundary(choice(options, "boundary", words, "redfish")),
        node_manager=options.get("node_manager"),
        latency_seconds=positive(options, "latency_seconds", LATENCY_SECONDS, "redfish"),
    )


class RedfishDriver:
    """The driver port on a BMC.

    Args:
        bmc: signed in as somebody who may set limits, or may only read.
        system: whose processors of type GPU are driven, unless ``paths`` names the resources.
        paths: resources that have ``EnvironmentMetrics``.
        boundary: what each of them encloses.
        node_manager: where a Node Manager is.
        latency_seconds: how long a limit takes to be obeyed.
        same_seconds: a resource that was read this recently is not read again.
        proc: where the NVIDIA kernel driver lists its GPUs, in the order that jobs number them by.
    """

    def __init__(
        self,
        bmc: Bmc,
        *,
        system: str = "HGX_Baseboard_0",
        paths: Sequence[str] = (),
        boundary: Boundary = Boundary.GPU,
        node_manager: str | None = None,
        latency_seconds: float = LATENCY_SECONDS,
        same_seconds: float = SAME_SECONDS,
        proc: Path = NVIDIA_GPUS,
    ) -> None:
        self.boundary = boundary.value
        self._bmc = bmc
        self._clock = bmc.clock
        self._system = system
        self._paths = tuple(paths)
        self._encloses = boundary
        self._latency_seconds = latency_seconds
        self._same_seconds = same_seconds
        self._proc = proc
        self._policies = None if node_manager is None else _Policies(bmc, node_manager)
        self._forget()

    def _forget(self) -> None:
        self._open = False
        self._parts: dict[str, RedfishPart] = {}
        self._faults: list[tuple[str, str]] = []
        self._power = LastGood(self._clock)
        self._counters = Counters(self._clock)

    def pace(self, gpu_id: str) -> Pace:  # noqa: ARG002 - the same for each of them
        """How long a call may take, and how long a limit takes to be obeyed."""
        return Pace(EXCHANGES * self._bmc.seconds, self._latency_seconds)

    # -- the driver as a whole -----------------------------------------------------------------

    def open(self) -> None:
        """Sign in and find the devices, with their limits.

        They stand in the order of the kernel's GPU driver: a BMC numbers by socket, jobs do not.
        """
        self.close()
        until = self._clock.monotonic_seconds() + OPEN_SECONDS
        found: dict[str, RedfishPart] = {}
        for path in (self._paths or self._processors())[:MOST_PARTS]:
            if self._clock.monotonic_seconds() > until:
                self._faults.append(("driver-slow", f"BMC: {path} was not reached in time"))
                continue
            part = self._found(path)
            if part is not None:
                found.setdefault(part.gpu_id, part)
        order = list(nvidia_gpus(self._proc).values())
        places = {gpu_id: place for place, gpu_id in enumerate(order)}
        for part in sorted(found.values(), key=lambda p: places.get(p.gpu_id, len(places))):
            part.index = len(self._parts)
            self._parts[part.gpu_id] = part
        self._open = True

    def faults(self) -> Sequence[tuple[str, str]]:
        """Devices that the BMC names and does not tell of."""
        return tuple(self._faults)

    def _processors(self) -> list[str]:
        return self._bmc.get(f"/redfish/v1/Systems/{self._system}/Processors").members()

    def _found(self, path: str) -> RedfishPart | None:
        """What is there; one that is no GPU, or broken, never hides the others."""
        try:
            resource = self._bmc.get(path)
            if not self._paths and resource.text("ProcessorType") != "GPU":
                return None
            metrics = resource.link("EnvironmentMetrics") or f"{path}/EnvironmentMetrics"
            part = RedfishPart(_identity(resource), 0, resource.text("Model"), metrics)
            self._metrics(part)
        except (DriverGone, DeviceNoPermission):
            raise
        except DeviceError as error:
            self._faults.append((error.code, error.message))
            return None
        return part

    def close(self) -> None:
        """Sign out. Limits stay as they are."""
        if self._open:
            self._bmc.close()
        self._forget()

    def epoch(self) -> str:
        """Boot of this node, and load of its GPU driver."""
        return driver_load(MODULE)

    def gpus(self) -> Sequence[RedfishPart]:
        """Every device that answers."""
        self._attached()
        return tuple(part for part in self._parts.values() if self._answers(part))

    def _answers(self, part: RedfishPart) -> bool:
        try:
            self._metrics(part)
        except DriverGone:
            raise
        except DeviceError:
            return False
        return True

    # -- limits --------------------------------------------------------------------------------

    def can_set(self, gpu_id: str) -> bool:
        """Whether the BMC lets us set the limit.

        Told by its ``Allow`` header where it has one; else found out by writing the limit that
        stands.
        """
        metrics = self._metrics(self._part(gpu_id))
        if metrics.part("PowerLimitWatts").get("ControlMode") == "Disabled":
            return False
        if metrics.allows is not None:
            return "PATCH" in metrics.allows
        try:
            self.set_limit_watts(gpu_id, self.requested_limit_watts(gpu_id))
        except (DeviceNoPermission, DeviceNotSupported):
            return False
        return True

    def limit_range(self, gpu_id: str) -> LimitRange:
        """Limits the device accepts."""
        limit = self._metrics(self._part(gpu_id)).part("PowerLimitWatts")
        least, greatest = number_of(limit.get("AllowableMin")), number_of(limit.get("AllowableMax"))
        if least is None or greatest is None or not 0 <= least <= greatest:
            raise DeviceNotSupported(
                "device-not-supported", f"GPU {gpu_id}: the BMC names no range of limits"
            )
        default = number_of(limit.get("DefaultSetPoint"))
        return LimitRange(least, greatest, greatest if default is None else default)

    def requested_limit_watts(self, gpu_id: str) -> float:
        """The limit that stands in the BMC; the greatest where it is switched off."""
        limit = self._metrics(self._part(gpu_id)).part("PowerLimitWatts")
        watts = number_of(limit.get("SetPoint"))
        if watts is None or limit.get("ControlMode") == "Disabled":
            return self.limit_range(gpu_id).greatest_watts
        return watts

    def enforced_limit_watts(self, gpu_id: str) -> float:
        """The limit in force: the one in the BMC, or the Node Manager's share, if lower."""
        watts = self.requested_limit_watts(gpu_id)
        if self._policies is None:
            return watts
        return min(watts, self._policies.gpu_watts() / max(1, len(self._parts)))

    def set_limit_watts(self, gpu_id: str, watts: float) -> None:
        """Ask for a limit, in whole watts."""
        limits = self.limit_range(gpu_id)
        if not limits.least_watts <= watts <= limits.greatest_watts:  # NaN is refused too
            raise DeviceOutOfRange(
                "device-out-of-range",
                f"GPU {gpu_id}: {watts} W is outside {limits.least_watts:g} to "
                f"{limits.greatest_watts:g} W",
                gpu_id=gpu_id,
            )
        part = self._part(gpu_id)
        with part.lock:
            resource, part.read = part.read, None
            if resource is None:
                resource = self._bmc.get(part.path)
            whole = int(limits.clamp(round(watts)))
            self._bmc.patch(resource, {"PowerLimitWatts": {"SetPoint": whole}})

    # -- readings ------------------------------------------------------------------------------

    def power_watts(self, gpu_id: str) -> Reading:
        """Power as the BMC shows it; over what time it is averaged, it does not say."""
        watts = number_of(self._metrics(self._part(gpu_id)).body.get("PowerWatts"))
        if watts is None:
            raise DeviceNotSupported("device-not-supported", f"GPU {gpu_id}: no power reading")
        greatest = self.limit_range(gpu_id).greatest_watts
        return self._power.reading(gpu_id, watts, greatest, self._encloses, Method.AVERAGED)

    def energy_joules(self, gpu_id: str) -> EnergyReading:
        """The energy counter, where the BMC keeps one."""
        joules = _joules(self._metrics(self._part(gpu_id)))
        if joules is None:
            raise DeviceNotSupported("device-not-supported", f"GPU {gpu_id}: no energy counter")
        watts = self._power.watts(gpu_id)
        return self._counters.reading(gpu_id, joules, self.epoch(), self._encloses, watts=watts)

    def processes(self, gpu_id: str) -> tuple[int, ...]:
        """A BMC knows no processes."""
        raise DeviceNotSupported("device-not-supported", f"GPU {gpu_id}: a BMC knows no processes")

    def cap_binds(self, gpu_id: str) -> bool | None:
        """A BMC does not say."""
        self._part(gpu_id)
        return None

    # -- how the BMC is asked ------------------------------------------------------------------

    def _attached(self) -> None:
        if not self._open:
            raise DriverGone("driver-uninitialised", "driver: it is not open")

    def _part(self, gpu_id: str) -> RedfishPart:
        self._attached()
        part = self._parts.get(gpu_id)
        if part is None:
            raise DeviceLost("device-lost", f"GPU {gpu_id}: not there", gpu_id=gpu_id)
        return part

    def _metrics(self, part: RedfishPart) -> Resource:
        """Its metrics, as they were at most a second ago."""
        with part.lock:
            now = self._clock.monotonic_seconds()
            if part.read is None or now - part.read_seconds >= self._same_seconds:
                part.read = None
                part.read = self._bmc.get(part.path)
                part.read_seconds = now
            return part.read


class _Policies:
    """What a Node Manager allows the GPUs of its node together."""

    def __init__(self, bmc: Bmc, path: str) -> None:
        self._bmc = bmc
        self._path = path
        self._lock = threading.Lock()
        self._read_seconds: float | None = None
        self._watts = float("inf")

    def gpu_watts(self) -> float:
        """The least of the enabled policies on GPUs; infinite without one."""
        with self._lock:
            now = self._bmc.clock.monotonic_seconds()
            if self._read_seconds is None or now - self._read_seconds >= POLICIES_SECONDS:
                self._watts = min(self._limits(), default=float("inf"))
                self._read_seconds = now
            return self._watts

    def _limits(self) -> list[float]:
        found = []
        for domain in self._members(f"{self._path}/Domains"):
            for path in self._members(f"{domain}/Policies"):
                policy = self._bmc.get(path)
                watts = number_of(policy.body.get("Limit"))
                enabled = policy.part("Status").get("State") == "Enabled"
                if enabled and policy.text("ComponentId") == GPU_COMPONENT and watts is not None:
                    found.append(watts)
        return found

    def _members(self, path: str) -> list[str]:
        try:
            return self._bmc.get(path).members()[:MOST_PARTS]
        except DeviceLost:
            return []


def open_meter(options: Mapping[str, str]) -> "RedfishMeter":
    """The power meter of a node, read from its BMC.

    Args:
        options: see ``METER_OPTIONS``.

    Raises:
        ConfigError: an option is unknown, missing or malformed, or a file cannot be read.
    """
    check_names(options, METER_OPTIONS, "redfish")
    path = needed(options, "path", "redfish")
    bmc = bmc_from({k: v for k, v in options.items() if k != "path"}, "redfish")
    return RedfishMeter(bmc, path, bmc.clock)


class RedfishMeter:
    """Power and energy of a chassis, at the boundary of a node.

    Args:
        bmc: signed in.
        path: the chassis.
        clock: stamps the readings.
    """

    pace_seconds = 1.0

    def __init__(self, bmc: Bmc, path: str, clock: Clock) -> None:
        self._bmc = bmc
        self._path = path
        self._clock = clock
        self._counters = Counters(clock)

    def close(self) -> None:
        """Sign out; a later reading signs in anew."""
        self._bmc.close()

    def read(self) -> tuple[Reading, EnergyReading | None]:
        """Power now, and the energy counter where the BMC keeps one.

        Raises:
            Unavailable: ``meter-silent``: the BMC does not answer, or shows no power.
        """
        try:
            metrics = self._bmc.get(f"{self._path}/EnvironmentMetrics")
        except DeviceError as error:
            raise Unavailable("meter-silent", error.message) from error
        watts = number_of(metrics.body.get("PowerWatts"))
        if watts is None or not 0 <= watts < float("inf"):
            raise Unavailable("meter-silent", f"BMC: {self._path} shows no power")
        power = Reading(watts, self._clock.wall(), Boundary.NODE, Method.METER)
        joules = _joules(metrics)
        if joules is None:
            return power, None
        with contextlib.suppress(DeviceError):
            return power, self._counters.reading(
                self._path, joules, driver_load(MODULE), Boundary.NODE, watts=watts
            )
        return power, None


def _joules(metrics: Resource) -> float | None:
    """The counter: in joules, or in kilowatt-hours as older schemas have it."""
    joules = number_of(metrics.body.get("EnergyJoules"))
    if joules is not None:
        return joules
    kwh = number_of(metrics.body.get("EnergykWh"))
    return None if kwh is None else kwh * JOULES_PER_KWH


def _identity(resource: Resource) -> str:
    """NVML's UUID where the BMC tells it, so that one GPU has one name on every path to it."""
    uuid = resource.text("UUID").lower()
    if len(uuid) == 36 and set(uuid) <= set("0123456789abcdef-"):
        return f"GPU-{uuid}"
    name = resource.text("SerialNumber") or resource.text("Id") or resource.path
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)
    return f"RF-{plain[-56:].strip('-') or 'device'}"
