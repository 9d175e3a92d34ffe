"""An imitation of zeusd's HTTP API, on the registers of one virtual node.

Routes, parameters, bodies and statuses are those of zeusd's API reference and of its source
(``zeusd/src/routes`` of ``ml-energy/zeus``): errors of the GPU library are 403, 400 or 500, errors
of single GPUs come as ``{"errors": {id: words}}``, a disabled group is 404, a missing token 401.
"""

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qs, urlsplit

from gridaware.sim.vendors.server import Reply, Request
from gridaware.sim.window import GpuSlot, Window

__all__ = ["Zeusd", "pci_address"]

GROUPS: Final = ("gpu-control", "gpu-read")


class Zeusd:
    """Answers requests; serve it with a ``JsonServer``.

    Args:
        window: the virtual site.
        node: which of its nodes.
        token: what a client must bring; None = it asks for none.
        scopes: what that token is good for.
    """

    def __init__(
        self,
        window: Window,
        node: int = 0,
        *,
        token: str | None = None,
        scopes: tuple[str, ...] = GROUPS,
    ) -> None:
        self.groups: tuple[str, ...] = GROUPS
        self.tells_addresses = True
        self._window = window
        self._node = node
        self._token = token
        self._scopes = scopes
        self._reads: Mapping[str, Callable[[GpuSlot], object]] = {
            "/gpu/get_power_limit": lambda s: {"power_limit_mw": round(s.requested_watts * 1e3)},
            "/gpu/get_power_limit_constraints": lambda s: {
                "min_power_limit_mw": round(s.least_watts * 1e3),
                "max_power_limit_mw": round(s.greatest_watts * 1e3),
            },
            "/gpu/get_power": lambda s: round(s.instant_watts * 1e3),
            "/gpu/get_cumulative_energy": lambda s: {"energy_mj": s.energy_millijoules},
        }

    def reply(self, request: Request) -> Reply:
        """One answer."""
        if self._window.node(self._node).driver_gone:
            return Reply(500, "NVML error: the driver is not loaded")
        parts = urlsplit(request.target)
        if parts.path == "/discover":
            return Reply(200, self._discovery())
        refused = self._refused(request, parts.path)
        if refused is not None:
            return refused
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        slots = list(self._window.gpus_of(self._node))
        try:
            numbers = [int(n) for n in query.get("gpu_ids", "").split(",") if n]
            chosen = {n: slots[n] for n in numbers or range(len(slots))}
        except (ValueError, IndexError):
            return Reply(400, f"GPU index {query.get('gpu_ids')} does not exist.")
        if request.method == "POST" and parts.path == "/gpu/set_power_limit":
            return self._set(chosen, query)
        if request.method == "GET" and parts.path in self._reads:
            return self._read(chosen, parts.path)
        return Reply(404)

    def _discovery(self) -> dict[str, object]:
        gpus = []
        for number, slot in enumerate(self._window.gpus_of(self._node)):
            told: dict[str, object] = {"id": number, "name": slot.model.decode(errors="replace")}
            if self.tells_addresses:
                told["pci_address"] = pci_address(slot)
                told["cumulative_energy_available"] = not slot.energy_unsupported
            gpus.append(told)
        return {
            "gpus": gpus,
            "cpus": [{"id": 0, "dram_available": True}],
            "enabled_api_groups": list(self.groups),
            "auth_required": self._token is not None,
        }

    def _refused(self, request: Request, path: str) -> Reply | None:
        group = "gpu-control" if path.startswith(("/gpu/set_", "/gpu/reset_")) else "gpu-read"
        if group not in self.groups:
            return Reply(404, {"error": f"API group '{group}' is not enabled on this server."})
        if self._token is None:
            return None
        if request.headers.get("authorization") != f"Bearer {self._token}":
            return Reply(401, {"error": "Authentication required."})
        if group not in self._scopes:
            return Reply(403, {"error": f"Token lacks required scope '{group}'."})
        return None

    def _set(self, chosen: Mapping[int, GpuSlot], query: Mapping[str, str]) -> Reply:
        milliwatts = query.get("power_limit_mw", "")
        if query.get("block") not in {"true", "false"} or not milliwatts.isdigit():
            return Reply(400, "Query deserialize error")
        watts = int(milliwatts) / 1000
        errors: dict[str, tuple[int, str]] = {}
        for number, slot in chosen.items():
            error = _error(slot)
            if error is None and slot.permission_denied:
                error = (403, "NVML error: NoPermission")
            if error is None and not slot.least_watts <= watts <= slot.greatest_watts:
                error = (400, "NVML error: InvalidArg")
            if error is not None:
                errors[str(number)] = error
            else:
                slot.requested_watts = watts
        return _failed(errors) if errors else Reply(200)

    def _read(self, chosen: Mapping[int, GpuSlot], path: str) -> Reply:
        errors: dict[str, tuple[int, str]] = {}
        told: dict[str, object] = {}
        for number, slot in chosen.items():
            error = _error(slot)
            if error is None and path.endswith("energy") and slot.energy_unsupported:
                error = (400, "no trustworthy cumulative energy counter")
            if error is not None:
                errors[str(number)] = error
            else:
                told[str(number)] = self._reads[path](slot)
        if errors:
            return _failed(errors)
        if path == "/gpu/get_power":
            return Reply(200, {"timestamp_ms": 0, "power_mw": told})
        return Reply(200, told)


def pci_address(slot: GpuSlot) -> str:
    """As ``lspci -D`` writes it: NVML has a domain of eight digits."""
    domain, _, rest = slot.pci_bus_id.decode().partition(":")
    return f"{domain[-4:]}:{rest}".lower()


def _error(slot: GpuSlot) -> tuple[int, str] | None:
    if slot.lost:
        return 500, "NVML error: GpuLost"
    if slot.error_code:
        status = {2: 400, 4: 403}.get(slot.error_code, 500)
        return status, f"NVML error: {slot.error_code}"
    return None


def _failed(errors: Mapping[str, tuple[int, str]]) -> Reply:
    worst = max(status for status, _ in errors.values())
    return Reply(worst, {"errors": {number: words for number, (_, words) in errors.items()}})
