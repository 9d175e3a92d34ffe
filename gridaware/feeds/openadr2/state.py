"""The events of one server: what was listed, what that changes, and the signals that follow. Pure.

An event is taken by its modification number: a lower one is stale, the same one says nothing new,
a higher one is a revision. What is cancelled stays so however often it is listed, and hides no
other event. An event that is missing from a list is for the caller to judge (``missing``): only a
whole list under the registration under which it was seen cancels it.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from gridaware.domain.advisory import Advisory
from gridaware.domain.errors import GridawareError, InvalidInput
from gridaware.domain.eventjson import BODY_BYTES_AT_MOST
from gridaware.domain.signal import EventKind, EventRequest, Signal
from gridaware.feeds.ids import source_id
from gridaware.feeds.kind import Disposition
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.openadr2.advisories import advisories_of
from gridaware.feeds.openadr2.reading import EventReading, event_id_of_node, read_event
from gridaware.feeds.openadr2.reading_settings import Rules
from gridaware.feeds.openadr2.xmltree import Node
from gridaware.feeds.refusals import Refusals
from gridaware.feeds.revisions import Ask, Heard

__all__ = ["EventBook", "Listed"]

KEPT_AT_MOST = 2000
_CLEAR = ("event-over", "event-for-others")
OK, OUT_OF_SEQUENCE, INVALID_DATA, NOT_SUPPORTED, TARGET_MISMATCH = 200, 450, 454, 460, 462
"""Application error codes of the profile."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One event of a list, as its server wants it answered."""

    event_id: str
    modification: int
    wants_answer: bool
    code: int
    """200, or why nothing is done about it."""
    sources: frozenset[str]
    """The signals that it became; without any, nobody decides whether we take part."""
    anew: bool = False
    """It was not heard of before, or was over: whatever was decided then holds no longer."""


class EventBook:
    """The events that stand. One thread at a time; what is public is replaced, not changed.

    Args:
        feed_id: whose signals are made.
        rules: of the feed's settings.
        memory: of the feed.
        vtn_url: what another server once said is no matter of this one's.
        refuse: hears once of each thing that is refused, with its raw text.
        advise: hears what only informs.
    """

    def __init__(
        self,
        feed_id: str,
        rules: Rules,
        memory: FeedMemory,
        vtn_url: str,
        refuse: Callable[[GridawareError, str], None],
        advise: Callable[[Advisory], None],
    ) -> None:
        self._feed_id = feed_id
        self._rules = rules
        self._memory = memory
        self._refuse_to = refuse
        self._advise = advise
        self._heard = Heard(memory, vtn_url)
        self._kept: dict[str, _Kept] = _kept_in(memory, vtn_url)
        self._vtn_url = vtn_url
        self._readings: dict[str, EventReading] = {}
        self._raws: dict[str, str] = {}
        self._refusals = Refusals(refuse)
        self._listed: frozenset[str] = frozenset()
        self._nameless = False
        self.sources: Mapping[str, str] = {}
        """Source id of a signal that stands → id of its event."""

    def read(
        self, events: Sequence[Node], now: datetime, witness: str, ven_id: str
    ) -> list[Listed]:
        """Take a list of ``oadrEvent`` elements; what cannot be read is refused alone, and once.

        Args:
            events: all of a message.
            now: UTC.
            witness: the registration under which they were listed.
            ven_id: ours.
        """
        answers = []
        names = set()
        self._nameless = False
        for event in events:
            event_id = event_id_of_node(event)
            raw = event.raw.decode("utf-8", "backslashreplace")
            if event_id is None:
                self._nameless = True
                self._refusals.refuse(InvalidInput("openadr2-event-id", "an event has no id"), raw)
                continue
            name = source_id(event_id)
            names.add(name)
            self._heard.meet(name, now)
            answers.append(self._take(name, event, raw, now, witness, ven_id))
        self._listed = frozenset(names)
        self._heard.seen(names, witness)
        return answers

    def missing(self, witness: str) -> list[str]:
        """The events that were seen under this registration, and not in the last list.

        There are none where something in that list had no id: it may be any of them.
        """
        if self._nameless:
            return []
        return [
            name
            for name, under in self._heard.seen_under.items()
            if name not in self._listed and under == witness
        ]

    def stands(self, names: Iterable[str], now: datetime) -> bool:
        """Whether any of these events asks for something that is not over."""
        wanted = set(names)
        return any(
            ask.event in wanted and not ask.taken_back and (ask.end is None or ask.end > now)
            for ask in self._heard.asks().values()
        )

    @property
    def standing(self) -> tuple[str, ...]:
        """Names of the events that were not forgotten."""
        return tuple(self._heard.seen_under)

    def conclude(self, gone: Iterable[str], now: datetime, seconds: float) -> list[Signal]:
        """The signals of what stands and of what was taken back.

        Args:
            gone: events that are cancelled by no longer being listed.
            now: UTC.
            seconds: the same, monotonic.
        """
        heard, cancelled = self._heard, set(gone)
        for name in cancelled:
            self._readings.pop(name, None)
        events = {key: ask.event for key, ask in heard.asks().items()}
        asks = self._asks(now)
        signals = []
        for key, (name, request) in asks.items():
            events[key] = name
            revision = heard.ask(key, name, request)
            raw = self._raws.get(name, "")
            signals.append(Signal(self._feed_id, key, revision, now, seconds, request, raw))
        for key, ask in heard.asks().items():
            over = ask.end is not None and ask.end <= now
            if key in asks or over:
                continue
            if not ask.taken_back and self._holds(key, ask, cancelled):
                continue
            heard.take_back(key)  # which is its next revision
            revision = ask.revision + (not ask.taken_back)
            # What is cancelled by not being listed any more was not said in so many words.
            raw = "" if ask.event in cancelled else self._raws.get(ask.event, "")
            signals.append(Signal(self._feed_id, key, revision, now, seconds, None, raw))
        for name in cancelled:
            heard.forget_event(name)
            self._kept.pop(name, None)
            self._raws.pop(name, None)
        self._keep(now)
        ids = {name: reading.event_id for name, reading in self._readings.items()}
        self.sources = {key: ids.get(name, name) for key, name in events.items()}
        return signals

    # ------------------------------------------------------------------------------------------

    def _take(
        self, name: str, event: Node, raw: str, now: datetime, witness: str, ven_id: str
    ) -> Listed:
        try:
            reading = read_event(
                event,
                self._rules,
                now=now,
                ven_id=ven_id,
                draw=partial(self._heard.draw, name),
            )
        except InvalidInput as error:
            self._refusals.refuse(error, raw)
            return _unreadable(event, INVALID_DATA)
        known, essence = self._kept.get(name), _essence(reading)
        if known is not None and known.witness == witness:
            fault = known.fault(reading, essence)
            if fault is not None:
                self._refusals.refuse(fault, raw)
                return self._listed_as(reading, OUT_OF_SEQUENCE)
        self._kept[name] = _Kept(reading.modification, essence, reading.cancelled, witness)
        if known is None or known.witness != witness or known.modification != reading.modification:
            self._tell(name, reading, raw, now)
        self._readings[name], self._raws[name] = reading, raw[:BODY_BYTES_AT_MOST]
        anew = known is None or known.over
        return replace(self._listed_as(reading, _code(reading)), anew=anew)

    def _listed_as(self, reading: EventReading, code: int) -> Listed:
        return Listed(
            reading.event_id,
            reading.modification,
            reading.answer,
            code,
            frozenset(
                source_id(reading.event_id, part.name)
                for part in reading.parts
                if part.meaning.disposition is Disposition.ACT
            ),
        )

    def _asks(self, now: datetime) -> dict[str, tuple[str, EventRequest]]:
        asks = {}
        for name, reading in self._readings.items():
            kind = EventKind.TEST if reading.test else EventKind.LIVE
            for part in reading.parts:
                target = part.meaning.target
                if part.meaning.disposition is not Disposition.ACT or target is None:
                    continue
                if part.end is None or part.end > now:
                    asks[source_id(reading.event_id, part.name)] = (
                        name,
                        EventRequest(part.start, part.end, target, kind, reading.priority),
                    )
        return asks

    def _holds(self, key: str, ask: Ask, cancelled: set[str]) -> bool:
        """Whether what is no longer asked holds for all that, because it is unclear why."""
        if ask.event in cancelled:
            return False
        reading = self._readings.get(ask.event)
        if reading is None:
            return True  # not listed, or not readable
        if reading.cancelled:
            return False
        if any(fault.where.startswith("signal") for fault in reading.faults):
            return True
        unclear = (
            part.name
            for part in reading.parts
            if part.meaning.disposition is Disposition.REFUSED and part.meaning.code not in _CLEAR
        )
        return any(key == source_id(reading.event_id, name) for name in unclear)

    def _tell(self, name: str, reading: EventReading, raw: str, now: datetime) -> None:
        for fault in reading.faults:
            self._refusals.refuse(InvalidInput(fault.code, f"{fault.where}: {fault.reason}"), raw)
        for part in reading.parts:
            meaning = part.meaning
            refused = meaning.disposition is Disposition.REFUSED
            if refused and meaning.code != "event-over":
                self._refusals.refuse(InvalidInput(meaning.code, meaning.reason), raw)
        for advisory in advisories_of(reading, self._feed_id, name, now):
            self._advise(advisory)

    def _keep(self, now: datetime) -> None:
        there = self._heard.seen_under
        for name in [n for n in self._readings if n not in there]:
            del self._readings[name]
        while len(self._kept) > KEPT_AT_MOST:
            del self._kept[next(iter(self._kept))]
        kept = {name: each.as_json() for name, each in self._kept.items()}
        try:
            self._heard.keep(now, self._listed)
            self._memory.put("numbers", {"vtn": self._vtn_url, "events": kept})
        except GridawareError as error:  # what is asked now is worth more than what is remembered
            self._refuse_to(error, "")


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was taken of an event."""

    modification: int
    essence: str
    over: bool
    """It was cancelled, or said to be completed."""
    witness: str

    def fault(self, reading: EventReading, essence: str) -> InvalidInput | None:
        """Why a reading of the same event, under the same registration, is not taken."""
        if reading.modification < self.modification:
            return InvalidInput(
                "openadr2-stale",
                f"modification {reading.modification} came after {self.modification}",
            )
        if reading.modification > self.modification or reading.cancelled:
            return None
        if self.over or essence != self.essence:
            return InvalidInput(
                "openadr2-same-number",
                f"its content changed, and its modification number is still {self.modification}",
            )
        return None

    def as_json(self) -> list[Any]:
        return [self.modification, self.essence, self.over, self.witness]


def _kept_in(memory: FeedMemory, vtn_url: str) -> dict[str, _Kept]:
    kept = memory.get("numbers")
    if not isinstance(kept, dict) or kept.get("vtn") != vtn_url:
        return {}
    return {name: _Kept(*each) for name, each in kept.get("events", {}).items()}


def _essence(reading: EventReading) -> str:
    """What of an event may only change with its number."""
    said = [
        reading.priority,
        reading.test,
        reading.ours,
        [(p.name, p.kind, p.start, p.end, p.unit, p.meaning.value) for p in reading.parts],
    ]
    return hashlib.sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()[:20]


def _code(reading: EventReading) -> int:
    if not reading.ours:
        return TARGET_MISMATCH
    meanings = [part.meaning for part in reading.parts]
    if any(meaning.disposition is Disposition.ACT for meaning in meanings):
        return OK
    refused = [m for m in meanings if m.disposition is Disposition.REFUSED and m.code not in _CLEAR]
    return NOT_SUPPORTED if refused or reading.faults else OK


def _unreadable(event: Node, code: int) -> Listed:
    said = event.said("eiEvent", "eventDescriptor", "modificationNumber") or "0"
    number = int(said) if said.isascii() and said.isdigit() and len(said) <= 10 else 0
    wants = (event.said("oadrResponseRequired") or "always").lower() != "never"
    return Listed(event_id_of_node(event) or "", number, wants, code, frozenset())
