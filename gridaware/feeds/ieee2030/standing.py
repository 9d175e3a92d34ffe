"""The controls that stand, and the signals that follow from one walk to the next.

What a control asks and asked before is compared: a change is the next revision, what the server
takes back is taken back, and what is no longer listed or can no longer be read holds as it was.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from gridaware.domain.advisory import Advisory, AdvisoryQuality
from gridaware.domain.errors import GridawareError, InvalidInput
from gridaware.domain.eventjson import printable
from gridaware.domain.signal import SECONDS_ABSURD, EventRequest, Signal
from gridaware.feeds.ids import source_id
from gridaware.feeds.ieee2030.modes import OFF, Mode, Rules
from gridaware.feeds.ieee2030.parsing import instant_of
from gridaware.feeds.ieee2030.reading import (
    Control,
    Default,
    Status,
    read_control,
    read_default,
    reply_of,
)
from gridaware.feeds.ieee2030.responses import Answered, Responses
from gridaware.feeds.ieee2030.servertime import ServerTime
from gridaware.feeds.ieee2030.walk import ProgramTree, Tree
from gridaware.feeds.ieee2030.windows import (
    DEFAULT_PRIORITY,
    Program,
    Window,
    default_target,
    pieces_of,
    window_of,
)
from gridaware.feeds.ieee2030.xml import Element, text_of
from gridaware.feeds.kind import Disposition, FeedContext
from gridaware.feeds.refusals import Refusals
from gridaware.feeds.revisions import Ask, Heard, event_name

__all__ = ["Standing"]

ENDED = (Status.CANCELLED, Status.SUPERSEDED)
HELD_AT_MOST = 2000
_CAPITAL = re.compile("([A-Z])")


@dataclass(frozen=True, slots=True)
class _Asked:
    """One thing that is asked."""

    event: str
    request: EventRequest
    raw: str


class Standing:
    """The controls of one server. One thread at a time; what is public is replaced, not changed."""

    def __init__(
        self,
        context: FeedContext,
        rules: Rules,
        heard: Heard,
        time: ServerTime,
        responses: Responses,
    ) -> None:
        self._context = context
        self._rules = rules
        self._heard = heard
        self._time = time
        self._responses = responses
        self._programs: dict[str, Program] = {}
        self._unclear: set[str] = set()
        """Names of what is listed and cannot be read, or not wholly."""
        self._refusals = Refusals(context.refuse)
        self.listed: frozenset[str] = frozenset()
        """Names of the controls of the last walk, readable or not."""
        self.names: Mapping[str, str] = {key: ask.event for key, ask in heard.asks().items()}
        """Source id of a signal → name of its control."""

    @property
    def seen_under(self) -> dict[str, str | None]:
        """Everything that stands, and the witness under which it was listed last."""
        return self._heard.seen_under

    def read(self, tree: Tree, now: datetime) -> None:
        """Take in a whole walk; what cannot be read is refused alone, and once."""
        before = self._programs
        self._unclear = set()
        listed: set[str] = set()
        programs = {}
        for fault, element in tree.faults:
            self._refuse(fault, element)
        for each in tree.programs:
            program = self._program(each, listed, now)
            programs[each.mrid] = program
        self.listed = frozenset(listed)
        self._programs = self._with_unlisted(before, programs)

    def conclude(
        self, gone: Sequence[str], witness: str, now: datetime, seconds: float
    ) -> list[Signal]:
        """The signals of what stands and of what was taken back.

        Args:
            gone: what is cancelled by no longer being listed.
            witness: under which the walk was made.
            now: UTC, when it was.
            seconds: the same, monotonic.
        """
        heard, feed_id = self._heard, self._context.feed_id
        for name in gone:
            self._drop(name)
        asked = self._asks(now)
        names = {key: ask.event for key, ask in heard.asks().items()}
        signals = []
        for key, each in asked.items():
            names[key] = each.event
            revision = heard.ask(key, each.event, each.request)
            signals.append(Signal(feed_id, key, revision, now, seconds, each.request, each.raw))
        for key, ask in heard.asks().items():
            over = ask.end is not None and ask.end <= now
            if key in asked or over or (not ask.taken_back and self._holds(ask, gone)):
                continue
            heard.take_back(key)  # which is its next revision
            revision = ask.revision + (not ask.taken_back)
            signals.append(Signal(feed_id, key, revision, now, seconds, None))
        for name in gone:
            heard.forget_event(name)
        self.names = names
        heard.seen((n for n in self.listed if n in heard.seen_under), witness)
        try:
            heard.keep(now, self.listed)
        except GridawareError as error:  # what is asked now is worth more than what is remembered
            self._context.refuse(error, "")
        return signals

    # Reading ----------------------------------------------------------------------------------

    def _program(self, tree: ProgramTree, listed: set[str], now: datetime) -> Program:
        controls = {}
        for element in tree.controls:
            control = self._control(element, listed)
            if control is not None:
                name = event_name(control.mrid, str(control.created))
                listed.add(name)
                self._heard.meet(name, now)
                controls[name] = control
                self._note(name, control, now)
        default_name = source_id("default", tree.mrid)
        default = self._default(tree.default, default_name)
        if tree.default is not None:
            listed.add(default_name)
            self._heard.meet(default_name, now)
        return Program(tree.mrid, tree.primacy, controls, default, default_name)

    def _control(self, element: Element, listed: set[str]) -> Control | None:
        try:
            control = read_control(element, self._rules)
        except InvalidInput as error:
            self._refuse(error, element)
            self._hold_unreadable(element, listed)
            return None
        name = event_name(control.mrid, str(control.created))
        if control.status not in ENDED:  # what was taken back need not be understood
            self._note_faults(name, control.modes, element)
        return control

    def _default(self, element: Element | None, name: str) -> Default | None:
        if element is None:
            return None
        try:
            default = read_default(element, self._rules)
        except InvalidInput as error:
            self._refuse(error, element)
            self._unclear.add(name)
            return None
        self._note_faults(name, default.modes, element)
        return default

    def _note_faults(self, name: str, modes: Sequence[Mode], element: Element) -> None:
        for mode in modes:
            meaning = mode.meaning
            if meaning.disposition is Disposition.REFUSED:
                self._refuse(InvalidInput(meaning.code, meaning.reason), element)
                self._unclear.add(name)

    def _hold_unreadable(self, element: Element, listed: set[str]) -> None:
        """A control that is listed and cannot be read holds what it asked before."""
        try:
            mrid, reply_to, required = reply_of(element)
        except InvalidInput:
            return
        names = [n for n in self._heard.seen_under if n.startswith(f"{mrid}.")]
        listed.update(names)
        self._unclear.update(names)
        if not names:
            self._responses.meet(mrid, mrid, reply_to, required)
            self._responses.due(mrid, Answered.INVALID, self._time.now(self._context.clock.wall()))

    def _with_unlisted(
        self, before: Mapping[str, Program], programs: dict[str, Program]
    ) -> dict[str, Program]:
        """The same, with what is no longer listed and may still stand."""
        standing = self._heard.seen_under
        for mrid, old in before.items():
            now = programs.get(mrid) or replace(old, controls={}, default=None)
            missing = {
                name: control
                for name, control in old.controls.items()
                if name not in now.controls and name in standing
            }
            default = now.default
            if default is None and old.default_name in standing:
                default = old.default
            if missing or default is not now.default or mrid in programs:
                kept = dict(list({**missing, **now.controls}.items())[-HELD_AT_MOST:])
                programs[mrid] = replace(now, controls=kept, default=default)
        return programs

    def _drop(self, name: str) -> None:
        for mrid, program in self._programs.items():
            controls = {n: c for n, c in program.controls.items() if n != name}
            default = None if program.default_name == name else program.default
            self._programs[mrid] = replace(program, controls=controls, default=default)

    # Asking -----------------------------------------------------------------------------------

    def _asks(self, now: datetime) -> dict[str, _Asked]:
        asked: dict[str, _Asked] = {}
        for program in sorted(self._programs.values(), key=lambda each: each.primacy):
            for key, each in self._events(program, now):
                asked.setdefault(key, each)
            found = self._standing_limit(program, now)
            if found is not None:
                asked.setdefault(*found)
        return asked

    def _events(self, program: Program, now: datetime) -> Iterator[tuple[str, _Asked]]:
        server_now = self._time.now(now)
        windows = {}
        for name, control in program.controls.items():
            window = self._window(name, control, server_now)
            if window is not None:
                windows[name] = window
        for piece in pieces_of(program, windows, partial(self._cut_at, server_now)):
            control = program.controls[piece.control]
            try:
                start, end = (
                    self._time.ours(instant_of(round(t, 3)))
                    for t in (piece.window.start, piece.window.end)
                )
                for_ever = (end - start).total_seconds() > SECONDS_ABSURD
                request = EventRequest(
                    start, None if for_ever else end, piece.target, priority=piece.priority
                )
            except InvalidInput as error:
                self._refusals.refuse(error, control.raw)
                self._unclear.add(piece.control)
                continue
            if end > now:
                parts = (OFF,) if piece.bears_on == OFF else ()
                key = self._heard.free(source_id(piece.control, *parts), now)
                yield key, _Asked(piece.control, request, control.raw)

    def _window(self, name: str, control: Control, server_now: float) -> Window | None:
        cancelled_at = float("inf")
        if control.is_cancelled:
            said = control.status_at
            at = server_now if said is None or said > server_now else float(said)
            cancelled_at = self._heard.note(name, "cancelled", at)
        return window_of(control, lambda purpose: self._drawn(name, purpose), cancelled_at)

    def _drawn(self, name: str, purpose: str) -> float:
        return (self._heard.draw(name, purpose) + 1) / 2

    def _cut_at(self, server_now: float, name: str, bears_on: str, newer: float) -> float | None:
        """Where a newer control ends an older one; what happened once is not undone."""
        key = f"cut-{bears_on}"
        if newer <= server_now:
            newer = min(newer, self._heard.note(name, key, newer))
            self._responses.fate(name, Answered.SUPERSEDED, server_now)
        noted = self._heard.noted(name, key)
        cut = newer if noted is None else min(newer, noted)
        return None if cut == float("inf") else cut

    def _standing_limit(self, program: Program, now: datetime) -> tuple[str, _Asked] | None:
        """What a program asks while none of its events does: an open end, under a name of its own.

        Once taken back it begins anew, as another event.
        """
        default, name = program.default, program.default_name
        target = None if default is None else default_target(default, self._rules.neutral_watts)
        if default is None or target is None:
            if name in self.listed and name not in self._unclear:
                self._heard.forget_event(name)
            return None
        request = EventRequest(
            start=self._heard.meet(name, now),
            end=None,
            target=target,
            priority=DEFAULT_PRIORITY + program.primacy,
            immediate=True,
        )
        return self._heard.free(name, now), _Asked(name, request, default.raw)

    def _holds(self, ask: Ask, gone: Sequence[str]) -> bool:
        """Whether what is no longer asked stands for all that, because it is unclear why."""
        if ask.event in gone:
            return False
        if ask.event in self._unclear:
            return True
        known = any(
            ask.event in program.controls
            or (ask.event == program.default_name and program.default is not None)
            for program in self._programs.values()
        )
        return not (known or ask.event in self.listed)

    # Saying -----------------------------------------------------------------------------------

    def _note(self, name: str, control: Control, now: datetime) -> None:
        """Answer that it came, and say what became of it, as far as the server wants to hear."""
        server_now = self._time.now(now)
        self._responses.meet(name, control.mrid, control.reply_to, control.response_required)
        if control.start + control.seconds + abs(control.randomize_seconds) <= server_now:
            self._responses.expired(name, server_now)
            return
        self._responses.due(name, Answered.RECEIVED, server_now)
        if control.is_cancelled:
            self._responses.fate(name, Answered.CANCELLED, server_now)
        elif control.status == Status.SUPERSEDED:
            self._responses.fate(name, Answered.SUPERSEDED, server_now)
        else:
            self._advise(control, now)

    def _advise(self, control: Control, now: datetime) -> None:
        """Hand over the modes that only inform."""
        for mode in control.modes:
            quantity = _CAPITAL.sub(r"_\1", mode.name).lower()
            if mode.meaning.disposition is not Disposition.ADVISORY or mode.value is None:
                continue
            try:
                start, end = (
                    self._time.ours(instant_of(t))
                    for t in (control.start, control.start + control.seconds)
                )
                advisory = Advisory(
                    feed_id=self._context.feed_id,
                    source_id=control.mrid,
                    quantity=quantity,
                    value=float(mode.value),
                    unit=mode.unit,
                    text=printable(control.description, 192),
                    start=start,
                    end=end,
                    quality=AdvisoryQuality.PUBLISHED,
                    received_at=now,
                )
            except InvalidInput as error:
                self._refusals.refuse(error, control.raw)
                return
            self._context.advise(advisory)

    def _refuse(self, error: GridawareError, element: Element) -> None:
        self._refusals.refuse(error, text_of(element))
