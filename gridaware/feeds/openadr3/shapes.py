"""The shapes in which events come.

One, a list, a page, a notification; and what the reference server pushes: JSON within a string of
JSON, keys in snake_case.
"""

import json
from collections.abc import Iterator, Mapping

from gridaware.domain.errors import InvalidInput

__all__ = ["camel_cased", "decoded", "events_in"]

DIGITS_AT_MOST = 40
EVENTS_AT_MOST = 10_000
_SNAKE = {"program_id", "interval_period", "object_type", "event_name", "report_descriptors"}


def decoded(body: bytes) -> object:
    """The JSON value of ``body``; a number beyond all measure becomes infinite.

    Raises:
        InvalidInput: ``event-not-utf8``, ``event-not-json`` or ``event-nested``.
    """
    try:
        value = json.loads(body.decode("utf-8-sig"), parse_int=_whole)
        if isinstance(value, str):  # the reference server's webhook
            value = json.loads(value, parse_int=_whole)
    except UnicodeDecodeError as error:
        raise InvalidInput(
            "event-not-utf8", f"the message is not UTF-8 at byte {error.start}"
        ) from None
    except RecursionError:
        raise InvalidInput("event-nested", "the message is nested too deeply") from None
    except ValueError as error:
        raise InvalidInput("event-not-json", f"the message is not JSON: {error}") from None
    return value


def events_in(document: object) -> Iterator[object]:
    """Every event of a document, whether it can be read or not.

    Raises:
        InvalidInput: it holds more than 10 000, or none at all.
    """
    found = document
    if isinstance(document, Mapping):
        if isinstance(document.get("object"), Mapping):
            found = [document["object"]]
        elif isinstance(document.get("events"), list):
            found = document["events"]
        else:
            found = [document]
    if not isinstance(found, list):
        raise InvalidInput("event-not-object", "the message is neither an event nor a list")
    if len(found) > EVENTS_AT_MOST:
        raise InvalidInput("events-many", "the message has more than 10000 events")
    return (camel_cased(each) for each in found)


def camel_cased(event: object) -> object:
    """An event with the specification's keys, where it came with the same in snake_case."""
    if not isinstance(event, Mapping) or not _SNAKE & event.keys():
        return event
    try:
        return _renamed(event)
    except RecursionError:
        return None


def _renamed(value: object) -> object:
    if isinstance(value, Mapping):
        return {_camel(str(key)): _renamed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each) for each in value]
    return value


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join("ID" if word == "id" else word.capitalize() for word in rest)


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= DIGITS_AT_MOST else float(digits)
