"""XML from strangers, as a small tree: no document type, no entities, bounded in every way.

The usual parsers take a document type and expand what it declares before anybody can look, so it is
refused here while it is read. Names are kept without their name space: senders disagree about
prefixes, and within the 2.0b profile no two names collide.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from gridaware.domain.errors import InvalidInput

__all__ = ["BYTES_AT_MOST", "Node", "read_xml"]

BYTES_AT_MOST = 1 << 20
ELEMENTS_AT_MOST = 50_000
DEPTH_AT_MOST = 60


@dataclass(slots=True)
class Node:
    """One element."""

    name: str
    text: str = ""
    children: list["Node"] = field(default_factory=list)
    raw: bytes = b""
    """As it came, where that was asked for."""

    def all(self, name: str) -> Iterator["Node"]:
        """Its children of a name."""
        return (child for child in self.children if child.name == name)

    def get(self, *path: str) -> "Node | None":
        """The first element along a path of names; None where there is none."""
        node: Node | None = self
        for name in path:
            node = None if node is None else next(node.all(name), None)
        return node

    def said(self, *path: str) -> str | None:
        """The text of the element along a path, without white space around it; None = none."""
        node = self.get(*path)
        return None if node is None else node.text.strip() or None

    def walk(self) -> Iterator["Node"]:
        """It and everything in it."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


def read_xml(body: bytes, keep: str = "") -> Node:
    """The root element of a document.

    Args:
        body: the document.
        keep: name of the elements whose raw text is kept.

    Raises:
        InvalidInput: ``xml-too-large``, ``xml-malformed``, ``xml-doctype`` or ``xml-nested``.
    """
    if len(body) > BYTES_AT_MOST:
        raise InvalidInput("xml-too-large", f"the message has {len(body)} bytes, more than 1 MiB")
    parser = expat.ParserCreate(namespace_separator=" ")
    builder = _Builder(body, keep, parser)
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = builder.begin
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    try:
        parser.Parse(body, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise InvalidInput("xml-malformed", f"the message is not XML: {error}") from None
    return builder.root.children[0]


class _Builder:
    def __init__(self, body: bytes, keep: str, parser: expat.XMLParserType) -> None:
        self._body = body
        self._keep = keep
        self._parser = parser
        self._began = 0
        self.root = Node("")
        self._open = [self.root]
        self._texts: list[list[str]] = [[]]
        self._count = 0

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        del attributes
        self._count += 1
        if self._count > ELEMENTS_AT_MOST or len(self._open) > DEPTH_AT_MOST:
            raise InvalidInput(
                "xml-nested",
                f"more than {ELEMENTS_AT_MOST} elements, or {DEPTH_AT_MOST} within each other",
            )
        node = Node(name.rpartition(" ")[2])
        if node.name == self._keep:
            self._began = self._parser.CurrentByteIndex
        self._open[-1].children.append(node)
        self._open.append(node)
        self._texts.append([])

    def end(self, name: str) -> None:
        del name
        node = self._open.pop()
        node.text = "".join(self._texts.pop())
        if node.name == self._keep:
            ends = self._body.find(b">", self._parser.CurrentByteIndex)
            node.raw = self._body[self._began : ends + 1]

    def text(self, text: str) -> None:
        self._texts[-1].append(text)


def _refuse_doctype(*declared: object) -> None:
    del declared
    raise InvalidInput("xml-doctype", "the message declares a document type")
