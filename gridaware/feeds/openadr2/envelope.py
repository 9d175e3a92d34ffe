"""What of the envelope of a 2.0b message has to hold before its content is looked at. Pure."""

from dataclasses import dataclass

from gridaware.domain.errors import InvalidInput
from gridaware.domain.eventjson import printable
from gridaware.feeds.openadr2.xmltree import Node

__all__ = ["Message", "bare_message", "message_in"]

SIGNED = "oadrSignedObject"


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its name, such as ``oadrDistributeEvent``, and its content."""

    kind: str
    content: Node

    @property
    def code(self) -> int | None:
        """The response code that it carries; None where it carries none that is a number."""
        said = self.content.said("eiResponse", "responseCode")
        return int(said) if said and said.isascii() and said.isdigit() and len(said) < 6 else None

    @property
    def told(self) -> str:
        """The description beside it, for people."""
        return printable(self.content.said("eiResponse", "responseDescription") or "", 200)

    @property
    def request_id(self) -> str:
        """Its own request id; "" where it has none."""
        return (self.content.said("requestID") or "")[:200]


def message_in(root: Node) -> Message:
    """The message in an ``oadrPayload``, as a server has to send it.

    Raises:
        InvalidInput: it is not in one (``openadr2-envelope``).
    """
    signed = root.get(SIGNED) if root.name == "oadrPayload" else None
    if signed is None:
        shown = printable(root.name)
        raise InvalidInput("openadr2-envelope", f"{shown} is no oadrPayload with a signed object")
    return signed_message(signed)


def signed_message(signed: Node) -> Message:
    """The message in an ``oadrSignedObject``.

    Raises:
        InvalidInput: it does not hold exactly one (``openadr2-envelope``).
    """
    if signed.name != SIGNED or len(signed.children) != 1:
        raise InvalidInput("openadr2-envelope", f"not one message in an {SIGNED}")
    return Message(signed.children[0].name, signed.children[0])


def bare_message(root: Node) -> Message:
    """The message of a file, which may come without its envelope as the profile's samples do.

    Raises:
        InvalidInput: it is no message of the profile (``openadr2-envelope``).
    """
    if root.name == "oadrPayload":
        return message_in(root)
    if root.name == SIGNED:
        return signed_message(root)
    if not root.name.startswith("oadr"):
        shown = printable(root.name)
        raise InvalidInput("openadr2-envelope", f"{shown} is no message of OpenADR 2.0b")
    return Message(root.name, root)
