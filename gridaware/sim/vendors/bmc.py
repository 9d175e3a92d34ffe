"""An imitation of a BMC's Redfish service, on the registers of one virtual node.

Resources are shaped as DMTF's schemas have them (Processor, EnvironmentMetrics v1.3, Session) at
the paths that NVIDIA documents for HGX baseboards (DPS and DGX user guides): one GPU is one
processor ``GPU_SXM_n``, whose limit is ``PowerLimitWatts.SetPoint``. Entity tags, session tokens
and messages follow DSP0266.
"""

import secrets
from typing import Final

from gridaware.sim.vendors.server import Reply, Request
from gridaware.sim.window import GpuSlot, Window

__all__ = ["PASSWORD", "USERNAME", "Bmc"]

USERNAME: Final = "gridaware"
PASSWORD: Final = "correct horse"  # noqa: S105 - of an imitation
ROOT: Final = "/redfish/v1"
PROCESSORS: Final = f"{ROOT}/Systems/HGX_Baseboard_0/Processors"
CHASSIS: Final = f"{ROOT}/Chassis/HGX_Chassis_0"
NODE_MANAGER: Final = f"{ROOT}/Managers/BMC/NodeManager"


class Bmc:
    """Answers requests; serve it with a ``JsonServer``.

    Args:
        window: the virtual site.
        node: which of its nodes.
        overhead_watts: of the node, beside its GPUs.
    """

    def __init__(self, window: Window, node: int = 0, *, overhead_watts: float = 1000.0) -> None:
        self._window = window
        self._node = node
        self._overhead_watts = overhead_watts
        self._changes = 0
        self.tokens: set[str] = set()
        self.has_sessions = True
        self.control_mode = "Automatic"
        self.gpu_policy_watts: float | None = None
        """An enabled Node Manager policy on all GPUs together."""
        self.energy_in_kwh = False

    def reply(self, request: Request) -> Reply:
        """One answer."""
        path = request.target.rstrip("/")
        if path == f"{ROOT}/SessionService/Sessions" and request.method == "POST":
            return self._sign_in(request)
        if not self._signed_in(request):
            return _refusal(401, "While accessing the resource, the service found no valid token.")
        if request.method == "DELETE":
            self.tokens.discard(request.headers.get("x-auth-token", ""))
            return Reply(204)
        if request.method == "PATCH":
            return self._patch(path, request)
        return self._get(path)

    def _sign_in(self, request: Request) -> Reply:
        if not self.has_sessions:
            return _refusal(405, "Sessions are not supported.")
        if request.body != {"UserName": USERNAME, "Password": PASSWORD}:
            return _refusal(401, "The credentials are wrong.")
        token = secrets.token_hex(16)
        self.tokens.add(token)
        place = f"{ROOT}/SessionService/Sessions/{len(self.tokens)}"
        return Reply(201, {"@odata.id": place}, {"X-Auth-Token": token, "Location": place})

    def _signed_in(self, request: Request) -> bool:
        if request.headers.get("x-auth-token") in self.tokens:
            return True
        basic = request.headers.get("authorization", "")
        return basic == "Basic Z3JpZGF3YXJlOmNvcnJlY3QgaG9yc2U="

    def _get(self, path: str) -> Reply:
        if path == PROCESSORS:
            numbers = range(len(list(self._slots())))
            found = [f"{PROCESSORS}/CPU_0", *(f"{PROCESSORS}/GPU_SXM_{n + 1}" for n in numbers)]
            return _collection(path, found)
        if path == f"{PROCESSORS}/CPU_0":
            return Reply(200, {"@odata.id": path, "Id": "CPU_0", "ProcessorType": "CPU"})
        if path == CHASSIS:
            link = {"@odata.id": f"{CHASSIS}/EnvironmentMetrics"}
            return Reply(
                200, {"@odata.id": path, "Id": "HGX_Chassis_0", "EnvironmentMetrics": link}
            )
        if path == f"{CHASSIS}/EnvironmentMetrics":
            return Reply(200, self._chassis())
        if path.startswith(NODE_MANAGER) and self.gpu_policy_watts is not None:
            return self._policy(path, self.gpu_policy_watts)
        slot = self._slot(path)
        if slot is None or slot.lost:
            return _refusal(404, f"The requested resource {path} was not found.")
        if slot.error_code:
            return _refusal(500, "The request failed due to an internal service error.")
        if not path.endswith("/EnvironmentMetrics"):
            return Reply(200, self._processor(path, slot))
        allow = "GET" if slot.permission_denied else "GET, PATCH"
        return Reply(200, self._metrics(path, slot), {"ETag": self._tag(), "Allow": allow})

    def _patch(self, path: str, request: Request) -> Reply:
        slot = self._slot(path)
        if slot is None or slot.lost or not path.endswith("/EnvironmentMetrics"):
            return _refusal(404, f"The requested resource {path} was not found.")
        if slot.error_code:
            return _refusal(500, "The request failed due to an internal service error.")
        if request.headers.get("if-match", self._tag()) != self._tag():
            return _refusal(412, "The ETag supplied did not match.")
        if slot.permission_denied:
            return _refusal(403, "There are insufficient privileges for the account.")
        match request.body:
            case {"PowerLimitWatts": {"SetPoint": int(watts)}}:
                if not slot.least_watts <= watts <= slot.greatest_watts:
                    return _refusal(400, f"The value {watts} is not within the allowable range.")
                slot.requested_watts = float(watts)
                self._changes += 1
                return Reply(204)
            case _:
                return _refusal(400, "The request body contains no property that can be written.")

    def _metrics(self, path: str, slot: GpuSlot) -> dict[str, object]:
        told: dict[str, object] = {
            "@odata.id": path,
            "@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics",
            "Id": "EnvironmentMetrics",
            "PowerWatts": {"Reading": round(slot.average_watts, 3)},
            "PowerLimitWatts": {
                "AllowableMin": slot.least_watts,
                "AllowableMax": slot.greatest_watts,
                "DefaultSetPoint": slot.default_watts,
                "SetPoint": slot.requested_watts,
                "ControlMode": self.control_mode,
            },
        }
        if slot.energy_unsupported:
            told["EnergykWh"] = []  # as firmware 25.07 of one vendor has it
        elif self.energy_in_kwh:
            told["EnergykWh"] = {"Reading": slot.energy_millijoules / 3.6e9}
        else:
            told["EnergyJoules"] = {"Reading": slot.energy_millijoules / 1000}
        return told

    def _processor(self, path: str, slot: GpuSlot) -> dict[str, object]:
        return {
            "@odata.id": path,
            "@odata.type": "#Processor.v1_18_0.Processor",
            "Id": path.rsplit("/", 1)[1],
            "ProcessorType": "GPU",
            "Manufacturer": "NVIDIA",
            "Model": slot.model.decode(errors="replace"),
            "UUID": slot.uuid.decode().removeprefix("GPU-"),
            "EnvironmentMetrics": {"@odata.id": f"{path}/EnvironmentMetrics"},
        }

    def _chassis(self) -> dict[str, object]:
        slots = list(self._slots())
        watts = sum(slot.average_watts for slot in slots) + self._overhead_watts
        joules = sum(slot.energy_millijoules for slot in slots) / 1000
        return {
            "@odata.id": f"{CHASSIS}/EnvironmentMetrics",
            "PowerWatts": {"Reading": round(watts, 3)},
            "EnergyJoules": {"Reading": joules},
        }

    def _policy(self, path: str, watts: float) -> Reply:
        domain = f"{NODE_MANAGER}/Domains/10"
        if path == f"{NODE_MANAGER}/Domains":
            return _collection(path, [domain])
        if path == f"{domain}/Policies":
            return _collection(path, [f"{domain}/Policies/0", f"{domain}/Policies/1"])
        gpus = path.endswith("/1")
        return Reply(
            200,
            {
                "@odata.id": path,
                "@odata.type": "#NvidiaNmPolicy.v1_2_0.NvidiaNmPolicy",
                "ComponentId": "COMP_GPU" if gpus else "COMP_MEMORY",
                "Limit": watts if gpus else 800,
                "Status": {"State": "Enabled"},
            },
        )

    def _slots(self) -> list[GpuSlot]:
        return list(self._window.gpus_of(self._node))

    def _slot(self, path: str) -> GpuSlot | None:
        name = path.removeprefix(f"{PROCESSORS}/GPU_SXM_").removesuffix("/EnvironmentMetrics")
        slots = self._slots()
        if name.isdigit() and 0 < int(name) <= len(slots):
            return slots[int(name) - 1]
        return None

    def _tag(self) -> str:
        return f'"{self._changes}"'


def _collection(path: str, found: list[str]) -> Reply:
    members = [{"@odata.id": member} for member in found]
    return Reply(200, {"@odata.id": path, "Members": members, "Members@odata.count": len(found)})


def _refusal(status: int, words: str) -> Reply:
    """A Redfish error (DSP0266 §8.6)."""
    info = [{"MessageId": "Base.1.18.GeneralError", "Message": words}]
    body = {"error": {"code": "Base.1.18.GeneralError", "@Message.ExtendedInfo": info}}
    return Reply(status, body)
