"""Field maps: how the messages of an aggregator say what ours say. A map is data, not code.

A path names a field of one item: ``a.b`` goes one level in, ``^a`` looks in what holds the item
(``^^a`` further out), ``a[]`` means every element of a list. ``items`` is the path of the events
themselves within a message, and may go through several lists.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from itertools import islice
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError

from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput
from gridaware.domain.eventjson import instant, printable, target_from_mapping
from gridaware.domain.signal import EventKind, EventRequest, TargetSpec
from gridaware.feeds.ids import source_id
from gridaware.feeds.kind import FeedSettings

__all__ = ["AuthMap", "FetchMap", "FieldMap", "Mapped", "StatusMap", "read_items", "shipped_map"]

ITEMS_AT_MOST = 1000
REVISION_AT_MOST = 2**31
URL_AT_MOST = 2000
Path = Annotated[
    str, Field(max_length=200, pattern=r"^\^*[A-Za-z0-9_\-]*(\[\])?(\.[\w\-]+(\[\])?)*$")
]
_WATTS = {"W": 1.0, "kW": 1e3, "MW": 1e6}


class MatchMap(FeedSettings):
    """A field, and the values of it that mean yes."""

    path: Path
    values: tuple[bool | int | str, ...] = Field(min_length=1, max_length=20)


class TargetMap(FeedSettings):
    """How much is asked."""

    path: Path
    unit: Literal["W", "kW", "MW", "percent"]
    means: Literal["reduce", "limit", "output"]
    """``output``: power put out, as for a battery; a load takes in its negative."""
    may_be_null: bool = False
    """null = as much as you can: what that is says ``null_target`` of the feed's settings."""


class AuthMap(FeedSettings):
    """How a push shows that it is authentic."""

    scheme: Literal["hmac", "header", "bearer", "none"]
    """``hmac``: SHA-256 in hexadecimal digits; ``none``: a push is a wake-up and nothing else."""
    header: str = Field(default="authorization", pattern=r"^[A-Za-z0-9\-]{1,64}$")
    prefix: str = Field(default="", max_length=32)
    """Before the digits, such as ``sha256=``."""
    over: Path = ""
    """The field that is signed; the whole body where empty."""
    timestamp_header: str = Field(default="", max_length=64)
    """Where set, ``<its value>.<body>`` is signed, and its value (epoch seconds) must be recent."""


class FetchMap(FeedSettings):
    """Where the truth is polled."""

    url: str = Field(max_length=2000, pattern=r"^https?://")
    header: str = Field(pattern=r"^[A-Za-z0-9\-]{1,64}$")
    """Carries the key."""


class StatusMap(FeedSettings):
    """How the sender is told what became of its event."""

    url: Path
    """Field of the message that holds the URL to call."""
    at: str = Field(max_length=64)
    word: str = Field(max_length=64)
    """Fields of our answer."""
    words: Mapping[str, str]
    """Our status → theirs; one that is not named is not told."""


class FieldMap(FeedSettings):
    """Where each thing is found."""

    items: Path = ""
    id: tuple[Path, ...] = Field(min_length=1, max_length=4)
    subject: Path | None = None
    """Whose event it is: a meter, a site, an asset."""
    start: Path
    end: Path
    end_may_be_open: bool = False
    cancelled: MatchMap | None = None
    test: MatchMap | None = None
    revision: Path | None = None
    """A number that rises; counted by us, by content, where there is none."""
    priority: Path | None = None
    target: TargetMap
    auth: AuthMap
    fetch: FetchMap | None = None
    status: StatusMap | None = None


@dataclass(frozen=True, slots=True)
class Mapped:
    """One event of a message; ``request`` None = it is taken back."""

    source_id: str
    revision: int | None
    request: EventRequest | None
    status_url: str | None = None


@dataclass(frozen=True, slots=True)
class _Item:
    """A mapping with those that hold it, outermost first."""

    values: Mapping[str, object]
    outer: tuple[Mapping[str, object], ...] = ()


def shipped_map(name: str) -> FieldMap:
    """One of the maps that come with the package.

    Raises:
        ConfigError: there is none by that name (``map-unknown``).
    """
    folder = files("gridaware.feeds") / "maps"
    known = sorted(each.name.removesuffix(".yaml") for each in folder.iterdir())
    if name not in known:
        raise ConfigError("map-unknown", f"there is no map {name!r}; known: {', '.join(known)}")
    return read_map(yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8")))


def read_map(values: object) -> FieldMap:
    """A map from decoded YAML or JSON.

    Raises:
        ConfigError: it is wrong (``map-invalid``).
    """
    try:
        # Lists of YAML are tuples here; nothing else is converted.
        return FieldMap.model_validate(values, strict=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(printable(str(step)) for step in first["loc"])
        raise ConfigError("map-invalid", f"{place}: {first['msg']}") from None


def read_items(
    body: Mapping[str, object] | list[object],
    fields: FieldMap,
    *,
    subject: str | None,
    null_target: TargetSpec | None,
) -> Iterator[Mapped | GridawareError]:
    """Every event of a message that is ours, each read alone.

    Args:
        body: the decoded message.
        fields: where things are.
        subject: whose events are ours; None = the message may name one subject alone.
        null_target: what a target of null means.

    Yields:
        An event, or why one could not be read.

    Raises:
        InvalidInput: there are no items where they should be, or too many (``map-items``), or
            several subjects (``map-subject-ambiguous``).
    """
    items = list(islice(_items(body, fields.items), ITEMS_AT_MOST + 1))
    if len(items) > ITEMS_AT_MOST:
        raise InvalidInput("map-items", f"the message holds more than {ITEMS_AT_MOST} events")
    named = [_subject(item, fields.subject) for item in items]
    subjects = {name for name in named if isinstance(name, str)}
    if subject is None and len(subjects) > 1:
        raise InvalidInput(
            "map-subject-ambiguous", f"the message is about {len(subjects)} subjects"
        )
    for item, name in zip(items, named, strict=True):
        if isinstance(item, GridawareError):
            yield item
        elif isinstance(name, GridawareError):
            yield name
        elif name is None or subject in {None, name}:
            yield _read(item, fields, null_target)


def _subject(item: "_Item | GridawareError", path: str | None) -> "str | GridawareError | None":
    """Whose an event is; None where the map knows no subjects."""
    if path is None or isinstance(item, GridawareError):
        return None
    try:
        return _text(item, path)
    except GridawareError as error:
        return error


def _read(item: _Item, fields: FieldMap, null_target: TargetSpec | None) -> Mapped | GridawareError:
    try:
        return _event(item, fields, null_target)
    except GridawareError as error:
        return error


def _event(item: _Item, fields: FieldMap, null_target: TargetSpec | None) -> Mapped:
    name = source_id(*(_text(item, path) for path in fields.id))
    revision = None if fields.revision is None else _number(item, fields.revision)
    if revision is not None and not revision.is_integer():
        raise InvalidInput("revision-type", f"the revision {revision:g} is no whole number")
    if revision is not None and not 0 <= revision <= REVISION_AT_MOST:
        raise InvalidInput("revision-range", "the revision must be 0 to 2^31")
    numbered = None if revision is None else int(revision)
    if _matches(item, fields.cancelled):
        return Mapped(name, numbered, None)
    priority = None if fields.priority is None else _priority(item, fields.priority)
    request = EventRequest(
        start=instant(_found(item, fields.start), "start"),
        end=_end(item, fields),
        target=_target(item, fields.target, null_target),
        kind=EventKind.TEST if _matches(item, fields.test) else EventKind.LIVE,
        priority=priority,
    )
    url = None if fields.status is None else _found(item, fields.status.url)
    if not isinstance(url, str) or len(url) > URL_AT_MOST:
        url = None  # nobody is told
    return Mapped(name, numbered, request, url)


def _end(item: _Item, fields: FieldMap) -> datetime | None:
    value = _found(item, fields.end)
    if value is None and fields.end_may_be_open:
        return None
    return instant(value, "end")


def _target(item: _Item, target: TargetMap, null_target: TargetSpec | None) -> TargetSpec:
    value = _found(item, target.path)
    if value is None and target.may_be_null:
        if null_target is None:
            raise InvalidInput("map-null-target", "it asks for as much as the site can give")
        return null_target
    number = _as_number(value, target.path)
    if target.unit == "percent":
        words = {"reduce": "reduce_percent", "limit": "limit_percent_of_baseline"}
        if target.means == "output":
            raise InvalidInput("target-type", "an output in percent means nothing to a load")
        return target_from_mapping({words[target.means]: number})
    watts = number * _WATTS[target.unit] / 1e3
    if target.means == "output":
        return target_from_mapping({"limit_kw": -watts if watts else 0.0})
    return target_from_mapping({f"{target.means}_kw": watts})


def _priority(item: _Item, path: str) -> int | None:
    value = _found(item, path)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**31:
        raise InvalidInput("priority-type", "the priority is no whole number from 0")
    return value


def _matches(item: _Item, match: MatchMap | None) -> bool:
    if match is None:
        return False
    value = _found(item, match.path)
    if value is None:
        return False
    values = value if match.path.endswith("[]") and isinstance(value, list) else [value]
    # "true" is not true, nor is 1 to this: what says no such thing as the map's is not read as no.
    if not {type(v) for v in values} <= {type(yes) for yes in match.values}:
        raise InvalidInput("flag-type", f"{match.path} is of another type than in the map")
    return any(v == yes and type(v) is type(yes) for v in values for yes in match.values)


def _items(body: object, path: str) -> Iterator[_Item | GridawareError]:
    """The events of a message, as many as are asked for; one that is none is told alone."""
    waiting: deque[tuple[object, tuple[str, ...], tuple[Mapping[str, object], ...]]] = deque(
        [(body, tuple(path.split(".")) if path else (), ())]
    )
    while waiting:
        value, steps, outer = waiting.popleft()
        if not isinstance(value, Mapping):
            none = InvalidInput("map-items", f"there are no events at {path or 'the top'!r}")
            if not outer:
                raise none
            yield none
            continue
        if not steps:
            yield _Item(value, outer)
            continue
        name, is_list = steps[0].removesuffix("[]"), steps[0].endswith("[]")
        inner = value.get(name) if name else value
        each = inner if is_list else [inner]
        if not isinstance(each, list) or len(each) > ITEMS_AT_MOST:
            none = InvalidInput("map-items", f"there are no events at {path!r}")
            if not outer:
                raise none
            yield none
            continue
        holders = (*outer, value)
        # What holds the next level goes first: no more waits than one list of each level holds.
        waiting.extendleft((one, steps[1:], holders) for one in reversed(each))


def _found(item: _Item, path: str) -> object:
    """The value at ``path``, or None."""
    up = len(path) - len(path.lstrip("^"))
    if up > len(item.outer):
        return None
    value: object = item.values if not up else item.outer[-up]
    for step in path.lstrip("^").split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(step.removesuffix("[]"))
    return value


def _text(item: _Item, path: str) -> str:
    value = _found(item, path)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InvalidInput("event-key-missing", f"the event has no {path}", key=path)
    return str(value)


def _number(item: _Item, path: str) -> float:
    return _as_number(_found(item, path), path)


def _as_number(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e12:
        raise InvalidInput("target-type", f"{path} is not a number", key=path)
    return float(value)
