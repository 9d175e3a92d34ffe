"""What a meter's Modbus registers mean, as data: one YAML file a family, its manual named.

Addresses are those on the wire (the first register is 0); a manual that counts from 1 is one more.
Bytes within a register are big-endian, as the standard has it; only the order of the words of a
wider value differs between makers.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import yaml

from gridaware.domain.errors import ConfigError, DeviceError, DeviceNotSupported

__all__ = ["Field", "RegisterMap", "load_map"]

_TYPES: Final[Mapping[str, tuple[str, int]]] = {
    "int16": (">h", 1),
    "uint16": (">H", 1),
    "int32": (">i", 2),
    "uint32": (">I", 2),
    "int64": (">q", 4),
    "uint64": (">Q", 4),
    "float32": (">f", 2),
    "float64": (">d", 4),
}
"""How :mod:`struct` calls it, and its registers."""
_MOST_REGISTERS: Final = 125
"""One request reads no more (Modbus application protocol 1.1b3, §6.3)."""
_TOP: Final = {
    "manual",
    "accuracy_share",
    "accuracy_source",
    "function",
    "word_order",
    "together",
    "sunspec_model",
    "power",
    "energy",
}
_FIELD: Final = {"register", "type", "scale", "sign", "absent", "scale_register", "wraps_at"}
_MOST_DECIMALS: Final = 10
"""A SunSpec scale factor lies between -10 and 10."""


@dataclass(frozen=True, slots=True)
class Field:
    """One value in the registers."""

    register: int
    """Its address; in a SunSpec model, from the model's beginning."""
    type: str
    scale: float
    """Watts, or joules, for one unit of it."""
    absent: frozenset[int] = frozenset()
    """Bit patterns that mean: not implemented, or no reading."""
    scale_register: int | None = None
    """Where the power of ten stands that multiplies it."""
    wraps_at: int | None = None
    """An energy counter starts again at 0 when it has come to this."""

    @property
    def registers(self) -> int:
        """How many it takes."""
        return _TYPES[self.type][1]

    def value(self, words: Sequence[int], *, little: bool) -> float:
        """The raw number that the words hold, not scaled.

        Args:
            words: its registers, in the order of their addresses.
            little: the least significant word comes first.

        Raises:
            DeviceNotSupported: ``meter-value-absent``: the meter says that it has none.
        """
        data = b"".join(word.to_bytes(2) for word in (reversed(words) if little else words))
        if int.from_bytes(data) in self.absent:
            raise DeviceNotSupported(
                "meter-value-absent", f"register {self.register} says that it has no value"
            )
        value = float(struct.unpack(_TYPES[self.type][0], data)[0])
        if not math.isfinite(value):
            raise DeviceNotSupported("meter-value-absent", f"register {self.register} is {value}")
        return value


@dataclass(frozen=True, slots=True)
class RegisterMap:
    """Where a family of meters has its power and energy."""

    manual: str
    accuracy_share: float
    """Of its accuracy class."""
    function: int
    """3 reads holding registers, 4 input registers."""
    little: bool
    """The least significant word of a wider value comes first."""
    together: bool
    """One request reads everything: values and their scale factors are of one moment."""
    sunspec_model: int | None
    """Registers count from the beginning of this SunSpec model; None = from 0."""
    power: Field
    energy: Field | None

    def span(self) -> tuple[int, int]:
        """First register and number of registers that hold everything."""
        ends = [(f.register, f.register + f.registers) for f in self._fields()]
        ends += [(r, r + 1) for f in self._fields() if (r := f.scale_register) is not None]
        first = min(start for start, _ in ends)
        return first, max(end for _, end in ends) - first

    def _fields(self) -> list[Field]:
        return [self.power] if self.energy is None else [self.power, self.energy]


def ten_to(word: int) -> float:
    """The multiplier that a SunSpec scale factor stands for.

    Raises:
        DeviceError: ``meter-answer``: it is none.
    """
    power = word - 0x10000 if word & 0x8000 else word
    if abs(power) > _MOST_DECIMALS:
        raise DeviceError("meter-answer", f"{power} is no scale factor")
    return float(10.0**power)


def load_map(path: Path) -> RegisterMap:
    """A map from its file.

    Raises:
        ConfigError: ``meter-map``; it names the file and what is wrong.
    """
    try:
        return _parse(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, ValueError, KeyError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigError("meter-map", f"{path.name}: {what}", file=path.name) from error


def _parse(document: object) -> RegisterMap:
    top = _table(document, "the file", _TOP)
    function, order = top.get("function", 3), top.get("word_order", "big")
    if function not in {3, 4}:
        raise ValueError("function is 3 (holding registers) or 4 (input registers)")
    if order not in {"big", "little"}:
        raise ValueError("word_order is big or little")
    share = _number(top["accuracy_share"], "accuracy_share")
    if not 0 < share < 1:
        raise ValueError("accuracy_share lies between 0 and 1")
    energy = top.get("energy")
    made = RegisterMap(
        manual=str(top["manual"]),
        accuracy_share=share,
        function=int(function),
        little=order == "little",
        together=bool(top.get("together", False)),
        sunspec_model=_register(top, "sunspec_model"),
        power=_field(top["power"], "power"),
        energy=None if energy is None else _field(energy, "energy"),
    )
    if made.together and made.span()[1] > _MOST_REGISTERS:
        raise ValueError(f"one request reads at most {_MOST_REGISTERS} registers")
    if made.power.scale_register is not None and not made.together:
        raise ValueError("values with a scale_register are read together")
    return made


def _field(value: object, where: str) -> Field:
    table = _table(value, where, _FIELD)
    kind, sign = table["type"], table.get("sign", 1)
    if kind not in _TYPES:
        raise ValueError(f"{where}.type is one of {', '.join(_TYPES)}")
    if sign not in {1, -1}:
        raise ValueError(f"{where}.sign is 1, or -1 where consumption is negative")
    absent = table.get("absent", [])
    if not isinstance(absent, list) or not all(isinstance(bits, int) for bits in absent):
        raise ValueError(f"{where}.absent is a list of bit patterns")
    register = _register(table, "register")
    if register is None:
        raise KeyError("register")
    return Field(
        register=register,
        type=str(kind),
        scale=sign * _number(table.get("scale", 1), f"{where}.scale"),
        absent=frozenset(absent),
        scale_register=_register(table, "scale_register"),
        wraps_at=cast("int | None", table.get("wraps_at")),
    )


def _table(value: object, where: str, known: set[str]) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"{where} is not a table")
    odd = sorted(str(key) for key in value if key not in known)
    if odd:
        raise ValueError(f"{where} does not know {odd[0]!r}")
    return cast("Mapping[str, object]", value)


def _register(table: Mapping[str, object], key: str) -> int | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 0xFFFF:
        raise ValueError(f"{key} is a number from 0 to 65535")
    return value


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{where} is not a number")
    return float(value)
