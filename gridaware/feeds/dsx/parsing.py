"""Reads a message from a file, for a person: what would become of each of its targets."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from gridaware.domain.errors import InvalidInput, Refused
from gridaware.domain.eventjson import json_object
from gridaware.domain.signal import Quantity, TargetSpec
from gridaware.feeds.dsx.informing import advisory_of
from gridaware.feeds.dsx.jws import read_payload, verify
from gridaware.feeds.dsx.messages import (
    LOAD_TARGET,
    POWER_STATE,
    CloudEvent,
    Target,
    check_source,
    check_time,
    read_event,
    read_targets,
)
from gridaware.feeds.dsx.settings import DsxSettings, verify_keys
from gridaware.feeds.kind import Disposition, Parsed, ParsedRow, RefusedPart

__all__ = ["parse_message"]


def parse_message(body: bytes, now: datetime, settings: DsxSettings | None) -> Parsed:
    """Say what would become of one message; without settings no signature can be checked.

    Raises:
        InvalidInput: nothing of it can be read.
        ConfigError: a key of the settings cannot be read.
    """
    event = read_event(body)
    try:
        rows = _rows(event, now, settings)
    except (InvalidInput, Refused) as error:
        return Parsed((), (RefusedPart(event.event_id, error.code, error.message),))
    return Parsed(rows)


def _rows(event: CloudEvent, now: datetime, settings: DsxSettings | None) -> tuple[ParsedRow, ...]:
    sets = event.type == LOAD_TARGET
    data = _opened(event, settings, sets=sets)
    if sets:
        if settings is not None:
            check_source(event, settings.source)
            age, ahead = settings.oldest_hours, settings.ahead_seconds
            check_time(event, now, timedelta(hours=age), timedelta(seconds=ahead))
        checked = settings is not None and not settings.allow_unsigned
        return tuple(
            _target_row(event, index, target, now, settings, checked=checked)
            for index, target in enumerate(read_targets(data))
        )
    if event.type == POWER_STATE:
        start, end, value, said = event.time, None, None, "a status of a power agent"
    else:
        advisory = advisory_of(event.type, data, "file", now)
        start, end, value, said = advisory.start, advisory.end, advisory.value, advisory.text
    disposition = Disposition.ADVISORY
    return (ParsedRow(event.event_id, start, end, event.type, value, disposition, said),)


def _opened(event: CloudEvent, settings: DsxSettings | None, *, sets: bool) -> Mapping[str, object]:
    if isinstance(event.data, dict):
        if settings is not None and not settings.allow_unsigned:
            raise Refused("dsx-unsigned", "the data is not signed")
        return event.data
    if settings is None:
        return json_object(read_payload(event.data))
    keys = settings.keys if sets else settings.peer_keys
    return json_object(verify(event.data, verify_keys(keys)).payload)


def _target_row(
    event: CloudEvent,
    index: int,
    target: Target,
    now: datetime,
    settings: DsxSettings | None,
    *,
    checked: bool,
) -> ParsedRow:
    said_at = min(event.time, now)
    start = said_at if target.start is None else max(target.start, said_at)
    tags = ", ".join(target.tags) or "every power feed"
    ours = settings is None or not target.tags or bool({*target.tags} & {*settings.feeds})
    asked: TargetSpec | None = None
    disposition = Disposition.ACT
    if target.end is not None and target.end <= max(start, now):
        start = target.start or said_at
        disposition, reason = Disposition.REFUSED, "over before it was heard"
    elif not ours:
        disposition, reason = Disposition.ADVISORY, f"for others: {tags}"
    elif target.watts is None:
        reason = f"back to the default of {tags}"
    else:
        reason = f"asked for {tags}"
        if settings is None or len(settings.feeds) == 1:  # else it is one of several limits
            asked = TargetSpec(Quantity.LIMIT_WATTS, target.watts)
    if not checked and disposition is Disposition.ACT:
        reason += "; the signature was not checked"
    return ParsedRow(
        f"{event.event_id}.{index}",
        start,
        target.end,
        "load_constraint",
        target.watts,
        disposition,
        reason,
        asked,
    )
