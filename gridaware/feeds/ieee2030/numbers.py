"""Reads the plain values of IEEE 2030.5: whole numbers, flags, hexadecimal. Pure."""

from gridaware.domain.errors import InvalidInput
from gridaware.feeds.ieee2030.xml import CSIPAUS, Element

__all__ = ["boolean", "child", "hexadecimal", "whole", "whole_of"]

_DIGITS_AT_MOST = 20
_HEX = frozenset("0123456789abcdefABCDEF")


def child(parent: Element, name: str, code: str = "ieee2030-control") -> Element:
    """The child of that name, of either vocabulary.

    Raises:
        InvalidInput: there is none (``code``).
    """
    found = parent.find(name) or parent.find(name, CSIPAUS)
    if found is None:
        raise InvalidInput(code, f"{parent.name} has no {name}")
    return found


def whole(element: Element, least: int, most: int, code: str = "ieee2030-control") -> int:
    """The whole number that an element holds.

    Raises:
        InvalidInput: it holds none, or one out of range (``code``).
    """
    text = element.text
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_AT_MOST):
        raise InvalidInput(code, f"{element.name} is no whole number")
    number = int(text)
    if not least <= number <= most:
        raise InvalidInput(code, f"{element.name} is {number}, not {least} to {most}")
    return number


def whole_of(parent: Element, name: str, least: int, most: int, default: int | None = None) -> int:
    """The whole number of a child; where it is absent ``default`` stands, unless that is None.

    Raises:
        InvalidInput: see :func:`whole`.
    """
    if default is not None and parent.find(name) is None:
        return default
    return whole(child(parent, name), least, most)


def boolean(element: Element, code: str = "ieee2030-control") -> bool:
    """What a flag says.

    Raises:
        InvalidInput: it says neither (``code``).
    """
    text = element.text
    if text not in {"true", "false", "1", "0"}:
        raise InvalidInput(code, f"{element.name} is neither true nor false")
    return text in {"true", "1"}


def hexadecimal(text: str, digits_at_most: int, what: str) -> str:
    """``text``, if it is hexadecimal and not too long.

    Raises:
        InvalidInput: it is not (``ieee2030-control``).
    """
    if not text or len(text) > digits_at_most or set(text) - _HEX:
        raise InvalidInput(
            "ieee2030-control", f"{what} is not 1 to {digits_at_most} hexadecimal digits"
        )
    return text
