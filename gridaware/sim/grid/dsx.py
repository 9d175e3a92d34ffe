"""A sender of load targets as DSX Flex 1.7 has them (an ISV), well behaved or not.

::

    isv = Isv("acme-energy", SystemClock())
    message = isv.message([load_target(6, "megawatt", end="2026-12-01T16:00:00Z")])
    with Broker() as broker, Sender(broker.url) as sender:
        sender.publish(isv.topic, message)

``isv.public_pem`` is what the site is given. Every part of a message can be said otherwise, before
it is signed or after.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from gridaware.clock import Clock
from gridaware.feeds.dsx.jws import Private, Signer, VerifyKey, signer_of, verify
from gridaware.feeds.dsx.messages import LOAD_TARGET

__all__ = ["Isv", "load_target", "private_pem", "public_pem", "read_status"]

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
"""The example of W3C Trace Context."""


def load_target(
    value: float | None,
    unit: str = "kilowatt",
    *,
    start: str | None = None,
    end: str | None = None,
    tags: Sequence[str] | None = None,
    best_effort: bool | None = None,
) -> dict[str, object]:
    """One target; ``value`` None = back to the default."""
    target: dict[str, object] = {
        "interval": {
            key: at for key, at in (("start_time", start), ("end_time", end)) if at is not None
        },
        "load_constraint": None if value is None else {"value": value, "unit": unit},
    }
    if tags is not None:
        target["feed_tags"] = list(tags)
    if best_effort is not None:
        target["strategy"] = {"best_effort": best_effort}
    return target


class Isv:
    """One sender with its key.

    Args:
        isv_id: its name in topics and sources.
        clock: says when a message was made.
        kid: name of its key.
        key: its private key; made anew (P-256) where none is given.
    """

    def __init__(
        self, isv_id: str, clock: Clock, *, kid: str = "isv-1", key: Private | None = None
    ) -> None:
        self.isv_id = isv_id
        self.kid = kid
        self._clock = clock
        self._key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
        self.signer: Signer = signer_of(private_pem(self._key), kid, "the key of the sender")

    @property
    def topic(self) -> str:
        """Where it says its targets."""
        return f"grid/v1/isv/{self.isv_id}/loadtarget/set"

    @property
    def public_pem(self) -> str:
        """What a site checks its signatures with."""
        return public_pem(self._key)

    def message(self, targets: Sequence[Mapping[str, object]], **otherwise: Any) -> bytes:
        """One signed message.

        Args:
            targets: as :func:`load_target` makes them.
            otherwise: attributes in place of the right ones; None leaves one out.
        """
        return self.event({"targets": list(targets)}, **otherwise)

    def event(self, content: object, **otherwise: Any) -> bytes:
        """One event with whatever content; a ``data`` in ``otherwise`` takes its place unsigned."""
        attributes: dict[str, Any] = {
            "specversion": "1.0.2",
            "id": str(uuid.uuid4()),
            "source": f"//grid/v1/isv/{self.isv_id}",
            "type": LOAD_TARGET,
            "time": self._clock.wall().isoformat().replace("+00:00", "Z"),
            "datacontenttype": "application/json",
            "subject": "loadtarget",
            "correlationid": str(uuid.uuid4()),
            "traceparent": TRACE,
            "data": self.signer.sign(json.dumps(content).encode("utf-8")),
        } | otherwise
        return json.dumps({k: v for k, v in attributes.items() if v is not None}).encode("utf-8")


def private_pem(key: Private) -> bytes:
    """A private key as a file holds it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(key: Private) -> str:
    """Its public half as a file holds it."""
    public = key.public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")


def read_status(payload: bytes, keys: Mapping[str, VerifyKey]) -> tuple[dict[str, Any], Any]:
    """A status of the site as its sender reads it: the envelope, and the data, verified.

    Raises:
        Refused: the signature is none of ``keys``.
    """
    envelope = json.loads(payload)
    return envelope, json.loads(verify(envelope["data"], keys).payload)
