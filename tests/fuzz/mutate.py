"""Messages made wrong, from ones that are right: by their JSON, or by their bytes.

Everything comes from one seed and the number of the message, so that one can be made again.
"""

import copy
import json
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["MESSAGES", "fewer", "hang_guard", "mutants", "mutate_bytes", "mutate_json"]

MESSAGES = int(os.environ.get("GRIDAWARE_FUZZ", "2000"))
"""How many a kind is given; `make fuzz` gives 200 000."""

SLICE = 2000
"""What `make test` gives."""


def fewer(parts: int) -> int:
    """How many a kind is given whose messages take longer: all of them, but in a slice."""
    return MESSAGES if MESSAGES > SLICE else MESSAGES // parts


NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 4, 9, 10**30, -(10**18), 0.5, -0.0, 1e308, float("nan"),
    float("inf"), "", "0", "2", "500", "NaN", "1e999", "null", "P9999Y", "PT0S", "-PT1H", "P1M",
    "PT0.0000001S", "P0.5Y", "PT1S", "P1W", "1h", "0001-01-01", "0000-00-00", "0001-01-01T00:00:00",
    "2026-12-01T14:00:00Z", "2026-12-01 14:00:00", "2199-12-31T23:59:59Z", "9999-12-31T23:59:59Z",
    "2026-02-30T00:00:00Z", "2026-12-01T14:00:00+99:99", "SIMPLE", "PRICE", "DISPATCH_SETPOINT",
    "IMPORT_CAPACITY_SUBSCRIPTION", "IMPORT_CAPACITY_RESERVATION", "KW", "MW", "PERCENT",
    "\u0000", "\ud800", "\u0661", "x" * 5000, "../../etc/passwd", [], {}, [[]], [None], {"": None},
    [1] * 1500, [0.1, 0.2, 0.3], {"x": 1, "y": 2},
)  # fmt: skip
TOKENS = (
    b"NaN", b"-Infinity", b"1e999", b"\\u0000", b"\\ud800", b"\xff", b"\x00", b"{", b"}", b"[",
    b"]", b'"', b",", b":", b"null", b"true", b"-", b"9" * 5000, b"[" * 2000, b"0001-01-01",
    b"P9999Y", b"PT0S", b"\xef\xbb\xbf",
)  # fmt: skip


def mutants(
    good: Sequence[bytes], count: int = MESSAGES, *, seed: int = 1
) -> Iterator[tuple[int, bytes]]:
    """``count`` messages, each with its number: half by JSON where it is JSON, half by bytes."""
    for number in range(count):
        drawn = random.Random(f"{seed}:{number}")
        body = drawn.choice(good)
        by_json = drawn.random() < 0.6
        for _ in range(drawn.choice((1, 1, 1, 2, 3, 6))):
            body = mutate_json(body, drawn) if by_json else mutate_bytes(body, drawn)
        yield number, body


def mutate_json(body: bytes, drawn: random.Random) -> bytes:
    """One value, key or list of it made wrong; by bytes where it is no JSON."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return mutate_bytes(body, drawn)
    places = list(_places(value))
    if not places:
        return mutate_bytes(body, drawn)
    holder, key = drawn.choice(places)
    try:
        drawn.choice(_CHANGES)(holder, key, places, drawn)
        return json.dumps(value).encode()
    except RecursionError:  # it was wrapped often enough
        return mutate_bytes(body, drawn)


def mutate_bytes(body: bytes, drawn: random.Random) -> bytes:
    """A few bytes of it flipped, left out, doubled, or replaced by a token."""
    at = drawn.randrange(len(body) + 1)
    end = min(len(body), at + drawn.choice((1, 1, 2, 8, 64)))
    way = drawn.randrange(6)
    if way == 0 and at < len(body):
        return body[:at] + bytes([body[at] ^ (1 << drawn.randrange(8))]) + body[at + 1 :]
    if way == 1:
        return body[:at] + body[end:]
    if way == 2:
        return body[:at] + body[at:end] * drawn.choice((2, 3, 50)) + body[end:]
    if way == 3:
        return body[:at]
    if way == 4:
        return body[:at] + drawn.randbytes(end - at) + body[end:]
    return body[:at] + drawn.choice(TOKENS) + body[end:]


@contextmanager
def hang_guard(seconds: float = 1.0) -> Iterator[None]:
    """Fail if what is inside takes longer, in time of this process: a busy machine is no hang."""

    def stop(number: int, frame: object) -> None:
        raise AssertionError(f"it took more than {seconds:g} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


Place = tuple[Any, Any]


def _places(value: Any) -> Iterator[Place]:
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        if not isinstance(holder, dict | list):
            continue  # the whole message is a number or a text
        keys = holder.keys() if isinstance(holder, dict) else range(len(holder))
        for key in list(keys):
            yield holder, key
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])


def _replace(holder: Any, key: Any, places: Sequence[Place], drawn: random.Random) -> None:
    holder[key] = copy.deepcopy(drawn.choice(NASTY))


def _leave_out(holder: Any, key: Any, places: Sequence[Place], drawn: random.Random) -> None:
    del holder[key]


def _transplant(holder: Any, key: Any, places: Sequence[Place], drawn: random.Random) -> None:
    other, other_key = drawn.choice(places)
    holder[key] = copy.deepcopy(other[other_key])


def _wrap(holder: Any, key: Any, places: Sequence[Place], drawn: random.Random) -> None:
    value = holder[key]
    for _ in range(drawn.choice((1, 2, 200))):
        value = [value] if drawn.random() < 0.5 else {"value": value}
    holder[key] = value


def _as_text(holder: Any, key: Any, places: Sequence[Place], drawn: random.Random) -> None:
    holder[key] = json.dumps(holder[key])


def _rename(holder: Any, key: Any, places: Sequence[Place], drawn: random.Random) -> None:
    if isinstance(holder, dict):
        new = drawn.choice((key.lower(), key.upper(), key[:-1], f"{key}s", f"_{key}", ""))
        holder[new] = holder.pop(key)


def _repeat(holder: Any, key: Any, places: Sequence[Place], drawn: random.Random) -> None:
    if isinstance(holder, list):
        holder[key:key] = [copy.deepcopy(holder[key]) for _ in range(drawn.choice((1, 2, 60)))]


def _scale(holder: Any, key: Any, places: Sequence[Place], drawn: random.Random) -> None:
    value = holder[key]
    if isinstance(value, int | float) and not isinstance(value, bool):
        holder[key] = value * drawn.choice((-1, 1000, 1e-9, 1e300)) + drawn.choice((0, 1))
    elif isinstance(value, str) and value:
        at = drawn.randrange(len(value))
        holder[key] = value[:at] + drawn.choice("0919:-TZPHM .,+\u00e9") + value[at + 1 :]


_CHANGES: tuple[Callable[[Any, Any, Sequence[Place], random.Random], None], ...] = (
    _replace, _replace, _replace, _leave_out, _transplant, _wrap, _as_text, _rename, _repeat,
    _scale, _scale,
)  # fmt: skip
