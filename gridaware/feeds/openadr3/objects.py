"""The objects that we keep at a server, in the shapes of 3.0.1 and of 3.1.

What is absent is left out: the reference server refuses null.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gridaware.feeds.openadr3.client import quoted

__all__ = [
    "Json",
    "asks_for_targets",
    "report_object",
    "resource_object",
    "resources_path",
    "same_object",
    "subscription_object",
    "ven_object",
]

Json = dict[str, Any]
CLIENT_NAME_AT_MOST = 128


def ven_object(version: str, name: str) -> Json:
    """Ourselves."""
    return {"objectType": "VEN" if version == "3.0.1" else "VEN_VEN_REQUEST", "venName": name}


def resource_object(version: str, name: str, ven_id: str) -> Json:
    """One resource of ours."""
    kind = "RESOURCE" if version == "3.0.1" else "VEN_RESOURCE_REQUEST"
    return {"objectType": kind, "resourceName": name, "venID": ven_id}


def resources_path(version: str, ven_id: str) -> str:
    """Where a VEN's resources are: beneath it in 3.0.1, a list of their own in 3.1."""
    return f"/vens/{quoted(ven_id)}/resources" if version == "3.0.1" else "/resources"


def subscription_object(
    version: str,
    name: str,
    callback_url: str,
    bearer: str,
    targets: Sequence[str],
    *,
    program_id: str | None,
) -> Json:
    """Our wish to be called back whenever an event or a program changes."""
    verbs = ["POST", "PUT", "DELETE"] if version == "3.0.1" else ["CREATE", "UPDATE", "DELETE"]
    made: Json = {
        "objectType": "SUBSCRIPTION",
        "clientName": name[:CLIENT_NAME_AT_MOST],
        "objectOperations": [
            {
                "objects": ["EVENT", "PROGRAM"],
                "operations": verbs,
                "callbackUrl": callback_url,
                "bearerToken": bearer,
            }
        ],
    }
    if program_id is not None:
        made["programID"] = program_id
    if targets and version != "3.0.1":
        made["targets"] = list(targets)
    return made


def report_object(
    version: str,
    *,
    event_id: str,
    program_id: str | None,
    client_name: str,
    report_name: str,
    descriptors: Sequence[Json],
    resource_name: str,
    intervals: Sequence[Json],
) -> Json:
    """One report of an event; ``programID`` is left out of 3.1, which took it away."""
    made: Json = {
        "objectType": "REPORT",
        "eventID": event_id,
        "clientName": client_name[:CLIENT_NAME_AT_MOST],
        "reportName": report_name[:CLIENT_NAME_AT_MOST],
        "payloadDescriptors": list(descriptors),
        "resources": [{"resourceName": resource_name, "intervals": list(intervals)}],
    }
    if version == "3.0.1" and program_id is not None:
        made["programID"] = program_id
    return made


def asks_for_targets(version: str, targets: Sequence[str], kind: str) -> list[tuple[str, str]]:
    """The query that asks for events for ``targets``; without it 3.1 shows untargeted ones."""
    if version != "3.0.1":
        return [("targets", name) for name in targets]
    return [("targetType", kind), *(("targetValues", name) for name in targets)]


def same_object(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both are one object: a restarted server gives the same ids to others."""
    return all(one.get(key) == other.get(key) for key in ("id", "createdDateTime"))
