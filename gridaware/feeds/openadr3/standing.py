"""The events that stand, and the signals that follow from one reading to the next.

What an event asks and asked before is compared: a change is the next revision, what is gone from a
readable event is taken back, and what cannot be read any more holds as it was.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

from gridaware.domain.errors import GridawareError, InvalidInput
from gridaware.domain.signal import Signal
from gridaware.feeds.ids import source_id
from gridaware.feeds.kind import Disposition, FeedContext
from gridaware.feeds.openadr3.advisories import advisories_of
from gridaware.feeds.openadr3.asks import asks_of
from gridaware.feeds.openadr3.listing import Programs
from gridaware.feeds.openadr3.reading import EventReading, read_event, undrawn
from gridaware.feeds.openadr3.reading_settings import Rules
from gridaware.feeds.refusals import Refusals
from gridaware.feeds.revisions import Ask, Heard, event_name

__all__ = ["Standing"]

RAWS_AT_MOST = 2000
_CLEAR = ("event-over", "event-for-others")


class Standing:
    """The events of one server. One thread at a time; what is public is replaced, not changed."""

    def __init__(
        self, context: FeedContext, rules: Rules, heard: Heard, programs: Programs
    ) -> None:
        self._context = context
        self._rules = rules
        self._heard = heard
        self._programs = programs
        self._raws: dict[str, Mapping[str, object]] = {}
        self._refusals = Refusals(context.refuse)
        self.listed: frozenset[str] = frozenset()
        """Names of the events of the last list, readable or not."""
        self.readings: Mapping[str, EventReading] = {}
        """Those that can be read, and those that are no longer listed and still stand."""
        self.events_by_source: Mapping[str, str] = {}
        """Source id of a signal → name of its event."""

    @property
    def seen_under(self) -> dict[str, str | None]:
        """Every event that stands, and the witness under which it was listed last."""
        return self._heard.seen_under

    @property
    def unlisted(self) -> bool:
        """Whether an event that stands is missing from the last list."""
        return any(name not in self.listed for name in self._heard.seen_under)

    def read(self, listing: Sequence[object], now: datetime) -> None:
        """Read a whole list; what cannot be read is refused alone, and once."""
        readings: dict[str, EventReading] = {}
        listed: set[str] = set()
        for raw in listing:
            name = _name(raw)
            if name is not None:
                listed.add(name)
            reading = self._read(name, raw, now)
            if reading is not None and name is not None:
                readings[name] = reading
                self._raws[name] = reading.raw
                self._tell(name, reading, now)
        for name in self._heard.seen_under:
            if name not in listed and name in self._raws:
                held = self._read(name, self._raws[name], now)
                if held is not None:
                    readings[name] = held
        while len(self._raws) > RAWS_AT_MOST:
            del self._raws[next(iter(self._raws))]
        self.readings, self.listed = readings, frozenset(listed)

    def conclude(
        self, gone: Sequence[str], witness: str | None, now: datetime, seconds: float
    ) -> list[Signal]:
        """The signals of what stands and of what was taken back.

        Args:
            gone: events that are cancelled by no longer being listed.
            witness: under which the last list was read.
            now: UTC, when it was.
            seconds: the same, monotonic.
        """
        heard = self._heard
        cancelled = set(gone)
        readings = {n: r for n, r in self.readings.items() if n not in cancelled}
        asks = {heard.free(key, now): each for key, each in asks_of(readings, now).items()}
        events = {key: ask.event for key, ask in heard.asks().items()}
        signals = []
        for key, asked in asks.items():
            events[key] = asked.event
            revision = heard.ask(key, asked.event, asked.request)
            raw = readings[asked.event].raw_text()
            signals.append(
                Signal(self._context.feed_id, key, revision, now, seconds, asked.request, raw)
            )
        for key, ask in heard.asks().items():
            over = ask.end is not None and ask.end <= now
            if key in asks or over:
                continue
            if not ask.taken_back and self._stands(key, ask, readings, cancelled, now):
                continue
            heard.take_back(key)  # which is its next revision
            revision = ask.revision + (not ask.taken_back)
            signals.append(Signal(self._context.feed_id, key, revision, now, seconds, None))
        for name in cancelled:
            heard.forget_event(name)
            self._raws.pop(name, None)
        heard.seen((n for n in self.listed if n in heard.seen_under), witness)
        try:
            heard.keep(now, self.listed)
        except GridawareError as error:  # what is asked now is worth more than what is remembered
            self._context.refuse(error, "")
        self.readings, self.events_by_source = readings, events
        return signals

    # ------------------------------------------------------------------------------------------

    def _read(self, name: str | None, raw: object, now: datetime) -> EventReading | None:
        heard_at, draw = now, undrawn
        if name is not None:
            heard_at = self._heard.meet(name, now)
            draw = partial(self._heard.draw, name)
        program = raw.get("programID") if isinstance(raw, Mapping) else None
        try:
            return read_event(
                raw,
                self._rules,
                now=now,
                heard_at=heard_at,
                program_units=self._programs.units(program),
                draw=draw,
            )
        except InvalidInput as error:
            self._refuse(error, raw)
            return None

    def _tell(self, name: str, reading: EventReading, now: datetime) -> None:
        for fault in reading.faults:
            error = InvalidInput(fault.code, f"{fault.where}: {fault.reason}")
            self._refuse(error, reading.raw)
        for part in reading.parts:
            meaning = part.meaning
            if meaning.disposition is Disposition.REFUSED and meaning.code not in _CLEAR:
                self._refuse(InvalidInput(meaning.code, meaning.reason), reading.raw)
        for advisory in advisories_of(reading, self._context.feed_id, name, now):
            self._context.advise(advisory)

    def _refuse(self, error: GridawareError, raw: object) -> None:
        try:
            text = json.dumps(raw, default=str)
        except (ValueError, RecursionError):
            text = ""
        self._refusals.refuse(error, text)

    def _stands(
        self,
        key: str,
        ask: Ask,
        readings: Mapping[str, EventReading],
        cancelled: set[str],
        now: datetime,
    ) -> bool:
        """Whether what is no longer asked holds for all that, because it is unclear why."""
        if ask.event in cancelled:
            return False
        reading = readings.get(ask.event)
        if reading is None:
            return True  # not listed, or not readable
        if any(fault.where.startswith("interval") for fault in reading.faults):
            return True
        unclear = (
            part.name
            for part in reading.parts
            if part.meaning.disposition is Disposition.REFUSED and part.meaning.code not in _CLEAR
        )
        return any(key == self._heard.free(source_id(ask.event, name), now) for name in unclear)


def _name(raw: object) -> str | None:
    if not isinstance(raw, Mapping):
        return None
    event_id, created = raw.get("id"), raw.get("createdDateTime")
    if isinstance(event_id, int) and not isinstance(event_id, bool):
        event_id = str(event_id)
    if not isinstance(event_id, str) or not 0 < len(event_id) <= 128:
        return None
    return event_name(event_id, created[:128] if isinstance(created, str) else "")
