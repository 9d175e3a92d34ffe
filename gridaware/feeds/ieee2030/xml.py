"""Reads the XML of an IEEE 2030.5 server: no document type, no entities, bounded in every way."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from gridaware.domain.errors import InvalidInput

__all__ = ["CSIPAUS", "NAMESPACE", "SEP", "Element", "read_xml", "text_of"]

NAMESPACE = "urn:ieee:std:2030.5:ns"
SEP, CSIPAUS = "sep", "csipaus"
"""The two vocabularies that are understood; an element of any other is carried and not read."""
BYTES_AT_MOST = 4 << 20
DEPTH_AT_MOST = 24
ELEMENTS_AT_MOST = 100_000
_CSIPAUS = re.compile(r"https?://csipaus\.org/ns(/v1\.[0-9]{1,3}(-beta/storage)?)?")
"""Servers were seen that use it without a version, and with 1.3 (published and in trial)."""


@dataclass(slots=True)
class Element:
    """One element."""

    space: str
    """``sep``, ``csipaus``, or the namespace as it stands there."""
    name: str
    attributes: dict[str, str]
    parts: list[str] = field(default_factory=list)
    children: list["Element"] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Its own text, without white space around it."""
        return "".join(self.parts).strip()

    def find(self, name: str, space: str = SEP) -> "Element | None":
        """The first child of that name."""
        return next(self.all(name, space), None)

    def all(self, name: str, space: str = SEP) -> "Iterator[Element]":
        """Every child of that name."""
        return (each for each in self.children if each.name == name and each.space == space)


def read_xml(body: bytes) -> Element:
    """The root element of ``body``.

    Raises:
        InvalidInput: it is no XML, too large or too deep, or has a document type
            (``ieee2030-xml``).
    """
    if len(body) > BYTES_AT_MOST:
        raise InvalidInput("ieee2030-xml", "the document has more than 4 MiB")
    reader = _Reader()
    parser = expat.ParserCreate(namespace_separator="\n")
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = reader.doctype
    try:
        parser.Parse(body, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise InvalidInput("ieee2030-xml", f"no XML: {error}") from None
    assert reader.root is not None
    return reader.root


def text_of(element: Element) -> str:
    """The element as XML once more, without white space and prefixes; for people and the ledger."""
    return "".join(_written(element, ""))


class _Reader:
    def __init__(self) -> None:
        self.root: Element | None = None
        self._open: list[Element] = []
        self._count = 0

    def start(self, joined: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) >= DEPTH_AT_MOST or self._count > ELEMENTS_AT_MOST:
            raise InvalidInput("ieee2030-xml", "the document is nested too deeply, or too long")
        namespace, _, name = joined.rpartition("\n")
        element = Element(_space(namespace), name, attributes)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def end(self, joined: str) -> None:
        del joined
        self._open.pop()

    def text(self, data: str) -> None:
        self._open[-1].parts.append(data)

    def doctype(self, *_: object) -> None:
        raise InvalidInput("ieee2030-xml", "the document has a document type")


def _space(namespace: str) -> str:
    if namespace == NAMESPACE:
        return SEP
    return CSIPAUS if _CSIPAUS.fullmatch(namespace) else namespace


def _written(element: Element, around: str) -> Iterator[str]:
    space = {SEP: NAMESPACE, CSIPAUS: "https://csipaus.org/ns"}.get(element.space, element.space)
    attributes = {k: v for k, v in element.attributes.items() if "\n" not in k}
    if space != around:
        attributes = {"xmlns": space, **attributes}
    yield f"<{element.name}"
    yield from (f" {key}={quoteattr(value)}" for key, value in attributes.items())
    yield f">{escape(element.text)}"
    for child in element.children:
        yield from _written(child, space)
    yield f"</{element.name}>"
