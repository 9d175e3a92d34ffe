"""GPUs through zeusd, the Zeus project's privileged daemon, so that the agent needs no privilege.

zeusd sets limits over HTTP on a UNIX socket (or TCP); what it does not tell is read by NVML where
that library is on the node, which reading needs no privilege for.

* GPUs are known by their PCI address: zeusd's indices are its own. The UUID comes from the NVIDIA
  kernel driver's ``/proc`` entry of that address; without one (AMD) the address is the identity.
  A zeusd that tells no addresses (up to Zeus 0.16) needs NVML beside it, whose order it has.
* zeusd tells the limit that was asked for, not the one in force: without NVML the two are the same
  here, and a limit set by a BMC goes unseen.
* zeusd keeps no lease and restores nothing: the agent's journal and lease do.
* A token (JWT) goes into the ``Authorization`` header; a scope that it lacks is no permission.

Source: the HTTP API reference of zeusd (ml.energy/zeus/zeusd) and its routes in ``ml-energy/zeus``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, cast

from gridaware.clock import Clock, SystemClock
from gridaware.control.ports import Driver
from gridaware.devices import nvml
from gridaware.devices.jsonhttp import Answer, JsonHttp, tcp, unix
from gridaware.devices.kernel import NVIDIA_GPUS, driver_load, nvidia_gpus
from gridaware.devices.options import absolute_path, check_names, secret_from
from gridaware.devices.readings import Counters, LastGood
from gridaware.domain.errors import (
    ConfigError,
    DeviceError,
    DeviceHung,
    DeviceLost,
    DeviceNoPermission,
    DeviceNotSupported,
    DeviceOutOfRange,
    DriverGone,
    InvalidInput,
    TimedOut,
    Unavailable,
)
from gridaware.domain.fleet import LimitRange
from gridaware.domain.reading import Boundary, EnergyReading, Method, Reading

__all__ = ["OPTIONS", "TESTED", "ZeusdDriver", "ZeusdGpu", "open_driver"]

OPTIONS: Final[Mapping[str, str]] = {
    "socket": "absolute path of zeusd's UNIX socket; default `/run/zeusd/zeusd.sock`",
    "address": "`host:port` instead of a socket, where zeusd listens on TCP (without TLS: on this "
    "node only)",
    "token_file": "absolute path of a file with the token, where zeusd asks for one",
    "library": "absolute path of `libnvidia-ml.so.1`, which reads what zeusd does not tell; `none` "
    "leaves NVML out",
}
SOCKET: Final = "/run/zeusd/zeusd.sock"
TESTED: Final = (
    "an imitation of its HTTP API on a UNIX socket, which Zeus's own client (0.16.0) took for a "
    "zeusd by hand; no real zeusd has been asked yet"
)
CALL_SECONDS: Final = 0.9
"""The agent gives up on a call after 1 s."""
MODULES: Final = (Path("/sys/module/nvidia"), Path("/sys/module/amdgpu"))
CONTROL: Final = "gpu-control"


@dataclass(slots=True)
class ZeusdGpu:
    """Who a GPU is. ``number`` is zeusd's own index."""

    gpu_id: str
    index: int
    model: str
    number: int
    counts_energy: bool


def open_driver(options: Mapping[str, str]) -> "ZeusdDriver":
    """The driver of the zeusd of this node; nothing is asked before :meth:`ZeusdDriver.open`.

    Args:
        options: see ``OPTIONS``.

    Raises:
        ConfigError: an option is unknown or malformed, or the token cannot be read.
    """
    check_names(options, OPTIONS, "zeusd")
    if "socket" in options and "address" in options:
        raise ConfigError("zeusd-options", "zeusd is reached by socket or by address, not by both")
    clock = SystemClock()
    if "address" in options:
        host, _, port = options["address"].rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError("zeusd-options", f"zeusd: address is host:port, not {host}:{port}")
        daemon = JsonHttp(tcp(host.strip("[]"), int(port)), options["address"], clock, CALL_SECONDS)
    else:
        path = absolute_path(options.get("socket", SOCKET), "socket", "zeusd")
        daemon = JsonHttp(unix(path), "localhost", clock, CALL_SECONDS)
    token = None
    if "token_file" in options:
        token = secret_from(absolute_path(options["token_file"], "token_file", "zeusd"), "zeusd")
    return ZeusdDriver(daemon, clock, reader=_reader(options.get("library")), token=token)


def _reader(library: str | None) -> Driver | None:
    if library == "none":
        return None
    try:
        driver = nvml.open_driver({} if library is None else {"library": library})
    except Unavailable:
        if library is not None:
            raise  # named by the operator: its absence is no fall-back
        return None
    return cast("Driver", driver)


class ZeusdDriver:
    """The driver port on zeusd.

    Args:
        daemon: the exchange with it.
        clock: stamps the readings.
        reader: reads what zeusd does not tell; not yet opened.
        token: for the ``Authorization`` header.
        proc: where the NVIDIA kernel driver lists its GPUs by PCI address.
    """

    boundary = "gpu"

    def __init__(
        self,
        daemon: JsonHttp,
        clock: Clock,
        *,
        reader: Driver | None = None,
        token: str | None = None,
        proc: Path = NVIDIA_GPUS,
    ) -> None:
        self._daemon = daemon
        self._clock = clock
        self._configured_reader = reader
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._proc = proc
        self._forget()

    def _forget(self) -> None:
        self._open = False
        self._reader: Driver | None = None
        self._readable: frozenset[str] = frozenset()
        self._gpus: dict[str, ZeusdGpu] = {}
        self._groups: frozenset[str] = frozenset()
        self._power = LastGood(self._clock)
        self._counters = Counters(self._clock)

    # -- the driver as a whole -----------------------------------------------------------------

    def open(self) -> None:
        """Ask zeusd what it has, and open NVML beside it where that is there.

        Raises:
            DriverGone: zeusd does not answer, or nothing says which GPUs its are.
        """
        self.close()
        told = self._whole(self._exchange("GET", "/discover"), "/discover")
        groups, listed = _list(told.get("enabled_api_groups")), _list(told.get("gpus"))
        self._open_reader()
        names = _Names(nvidia_gpus(self._proc), self._reader, len(listed))
        gpus = [_gpu_of(index, one, names) for index, one in enumerate(listed)]
        self._gpus = {gpu.gpu_id: gpu for gpu in gpus}
        self._groups = frozenset(group for group in groups if isinstance(group, str))
        self._open = True

    def _open_reader(self) -> None:
        reader = self._configured_reader
        if reader is None:
            return
        try:
            reader.open()
            self._readable = frozenset(gpu.gpu_id for gpu in reader.gpus())
        except DeviceError:
            return  # an AMD node, or NVML is out of order: zeusd's own reads do
        self._reader = reader
        self.boundary = reader.boundary

    def close(self) -> None:
        """Hang up. Limits stay as they are."""
        reader = self._reader
        self._forget()
        self._daemon.close()
        if reader is not None:
            reader.close()

    def epoch(self) -> str:
        """Boot and load of the vendor's kernel module: zeusd itself keeps no limits."""
        return driver_load(next((m for m in MODULES if m.exists()), MODULES[0]))

    def gpus(self) -> Sequence[ZeusdGpu]:
        """Every GPU that answers, in zeusd's order; one that does not never hides the others."""
        self._attached()
        if self._reader is not None:
            self._readable = frozenset(gpu.gpu_id for gpu in self._reader.gpus())
        return tuple(gpu for gpu in self._gpus.values() if self._answers(gpu))

    def _answers(self, gpu: ZeusdGpu) -> bool:
        if gpu.gpu_id in self._readable:
            return True
        try:
            self.requested_limit_watts(gpu.gpu_id)
        except DriverGone:
            raise
        except DeviceError:
            return False
        return True

    # -- limits --------------------------------------------------------------------------------

    def can_set(self, gpu_id: str) -> bool:
        """Whether zeusd sets the limit for us; found out by asking it for the one that stands."""
        if CONTROL not in self._groups:
            return False
        try:
            self.set_limit_watts(gpu_id, self.requested_limit_watts(gpu_id))
        except (DeviceNoPermission, DeviceNotSupported):
            return False
        return True

    def limit_range(self, gpu_id: str) -> LimitRange:
        """Limits the GPU accepts; zeusd tells no default, so the greatest stands for it."""
        reader = self._reads(gpu_id)
        if reader is not None:
            return reader.limit_range(gpu_id)
        told = self._of(gpu_id, "/gpu/get_power_limit_constraints")
        least, greatest = _milli(told, "min_power_limit_mw"), _milli(told, "max_power_limit_mw")
        return LimitRange(least, greatest, greatest)

    def requested_limit_watts(self, gpu_id: str) -> float:
        """The limit last asked for by anyone on this host."""
        reader = self._reads(gpu_id)
        if reader is not None:
            return reader.requested_limit_watts(gpu_id)
        return _milli(self._of(gpu_id, "/gpu/get_power_limit"), "power_limit_mw")

    def enforced_limit_watts(self, gpu_id: str) -> float:
        """The limit in force, by NVML; without it the one asked for, which zeusd tells."""
        reader = self._reads(gpu_id)
        if reader is not None:
            return reader.enforced_limit_watts(gpu_id)
        return self.requested_limit_watts(gpu_id)

    def set_limit_watts(self, gpu_id: str, watts: float) -> None:
        """Ask zeusd to set a limit, and wait until it has."""
        limits = self.limit_range(gpu_id)
        if not limits.least_watts <= watts <= limits.greatest_watts:  # NaN has no milliwatts
            raise DeviceOutOfRange(
                "device-out-of-range",
                f"GPU {gpu_id}: {watts} W is outside {limits.least_watts:g} to "
                f"{limits.greatest_watts:g} W",
                gpu_id=gpu_id,
            )
        number, milliwatts = self._known(gpu_id).number, round(watts * 1000)
        target = f"/gpu/set_power_limit?gpu_ids={number}&power_limit_mw={milliwatts}&block=true"
        try:
            answer = self._exchange("POST", target)
        except DriverGone as error:
            if self._reads(gpu_id) is None:
                raise
            # NVML still reads the GPU: only limits have to wait for zeusd.
            raise DeviceError(error.code, error.message, gpu_id=gpu_id) from error
        if answer.status != 200:
            raise _refusal(answer, gpu_id, "/gpu/set_power_limit")

    # -- readings ------------------------------------------------------------------------------

    def power_watts(self, gpu_id: str) -> Reading:
        """Power now."""
        reader = self._reads(gpu_id)
        if reader is not None:
            return reader.power_watts(gpu_id)
        answer = self._get(gpu_id, "/gpu/get_power")
        told = _dict(self._whole(answer, "/gpu/get_power").get("power_mw"))
        watts = _milli(told, str(self._known(gpu_id).number))
        greatest = self.limit_range(gpu_id).greatest_watts
        return self._power.reading(gpu_id, watts, greatest, Boundary.GPU, Method.INSTANT)

    def energy_joules(self, gpu_id: str) -> EnergyReading:
        """The energy counter, where zeusd found it to count."""
        reader = self._reads(gpu_id)
        if reader is not None:
            return reader.energy_joules(gpu_id)
        if not self._known(gpu_id).counts_energy:
            raise DeviceNotSupported(
                "device-not-supported", f"GPU {gpu_id}: has no energy counter to trust"
            )
        joules = _milli(self._of(gpu_id, "/gpu/get_cumulative_energy"), "energy_mj")
        watts = self._power.watts(gpu_id)
        return self._counters.reading(gpu_id, joules, self.epoch(), Boundary.GPU, watts=watts)

    def processes(self, gpu_id: str) -> tuple[int, ...]:
        """Host pids with a compute context on the GPU; only NVML tells them."""
        reader = self._reads(gpu_id)
        if reader is None:
            raise DeviceNotSupported("device-not-supported", "zeusd does not tell processes")
        return reader.processes(gpu_id)

    def cap_binds(self, gpu_id: str) -> bool | None:
        """Whether the power cap holds the clocks down; None where NVML is not there to ask."""
        reader = self._reads(gpu_id)
        return None if reader is None else reader.cap_binds(gpu_id)

    # -- how zeusd is asked --------------------------------------------------------------------

    def _reads(self, gpu_id: str) -> Driver | None:
        self._known(gpu_id)
        return self._reader if gpu_id in self._readable else None

    def _known(self, gpu_id: str) -> ZeusdGpu:
        self._attached()
        gpu = self._gpus.get(gpu_id)
        if gpu is None:
            raise DeviceLost("device-lost", f"GPU {gpu_id}: not there", gpu_id=gpu_id)
        return gpu

    def _attached(self) -> None:
        if not self._open:
            raise DriverGone("driver-uninitialised", "driver: it is not open")

    def _get(self, gpu_id: str, route: str) -> Answer:
        answer = self._exchange("GET", f"{route}?gpu_ids={self._known(gpu_id).number}")
        if answer.status != 200:
            raise _refusal(answer, gpu_id, route)
        return answer

    def _of(self, gpu_id: str, route: str) -> dict[str, object]:
        """What a read route tells of one GPU."""
        told = self._whole(self._get(gpu_id, route), route)
        return _dict(told.get(str(self._known(gpu_id).number)))

    def _whole(self, answer: Answer, route: str) -> dict[str, object]:
        if answer.status != 200:
            raise DriverGone("zeusd-answer", f"zeusd: {route} was answered {answer.status}")
        return _dict(answer.body)

    def _exchange(self, method: str, target: str) -> Answer:
        try:
            return self._daemon.ask(method, target, headers=self._headers)
        except TimedOut as error:
            raise DeviceHung("device-hung", f"zeusd: {error.message}") from error
        except Unavailable as error:
            raise DriverGone("zeusd-unreachable", f"zeusd: {error.message}") from error
        except InvalidInput as error:
            raise DeviceError("zeusd-answer", f"zeusd: {error.message}") from error


class _Names:
    """Who a GPU of zeusd's is.

    By its PCI address; releases of zeusd that tell none number GPUs as NVML does, which is taken
    only from an NVML that sees as many.
    """

    def __init__(self, uuids: Mapping[str, str], reader: Driver | None, count: int) -> None:
        self._uuids = uuids
        numbered = {} if reader is None else {g.index: g.gpu_id for g in reader.gpus()}
        self._numbered = numbered if len(numbered) == count else {}

    def name(self, number: int, address: object) -> str:
        """The UUID, or the address where no kernel driver names it."""
        if isinstance(address, str) and address:
            return self._uuids.get(address.lower(), f"PCI-{address.lower()}")
        if number in self._numbered:
            return self._numbered[number]
        raise DriverGone("zeusd-too-old", "zeusd: does not say where its GPUs are")


def _gpu_of(index: int, told: object, names: _Names) -> ZeusdGpu:
    """One entry of ``/discover``."""
    entry = _dict(told)
    number, model = entry.get("id"), entry.get("name")
    if not isinstance(number, int) or isinstance(number, bool):
        _malformed("/discover")
    return ZeusdGpu(
        names.name(number, entry.get("pci_address")),
        index,
        model if isinstance(model, str) else "",
        number,
        entry.get("cumulative_energy_available") is not False,
    )


def _refusal(answer: Answer, gpu_id: str, route: str) -> DeviceError:
    """The error for a status that is not 200; what 400 means depends on the route."""
    body = answer.body if isinstance(answer.body, dict) else {}
    told = body.get("error") or body.get("errors") or ""
    words = f"GPU {gpu_id}: zeusd answers {answer.status} to {route}: {str(told)[:200]}"
    kind, code = _REFUSALS.get(answer.status, (DeviceError, "zeusd-failed"))
    if answer.status == 400:
        kind, code = _WRONG.get(route, (DeviceError, "zeusd-failed"))
    return kind(code, words, gpu_id=gpu_id, status=answer.status)


_REFUSALS: Final[dict[int, tuple[type[DeviceError], str]]] = {
    401: (DeviceNoPermission, "zeusd-refused"),
    403: (DeviceNoPermission, "zeusd-refused"),
    404: (DeviceNotSupported, "zeusd-disabled"),
}
_WRONG: Final[dict[str, tuple[type[DeviceError], str]]] = {
    "/gpu/set_power_limit": (DeviceOutOfRange, "device-out-of-range"),
    "/gpu/get_cumulative_energy": (DeviceNotSupported, "device-not-supported"),
}


def _milli(told: dict[str, object], name: str) -> float:
    """A whole number of thousandths of the unit."""
    value = told.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        _malformed(name)
    return value / 1000


def _dict(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        _malformed("an answer")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        _malformed("/discover")
    return value


def _malformed(what: str) -> NoReturn:
    raise DeviceError("zeusd-answer", f"zeusd: {what} is not as its API says")
