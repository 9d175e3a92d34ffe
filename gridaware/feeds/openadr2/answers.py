"""Whether we take part: what the server is answered about each event, and when. Any thread.

An event that became signals is answered with what control decides about them; one that only informs
takes part as long as the site acts at all. Whatever is undecided when the next poll comes is
answered with optOut, and corrected should control decide otherwise later.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.openadr2.state import Listed

__all__ = ["Answers", "Response"]

_KEY = "verdicts"
VERDICTS_AT_MOST = 4000
_IN, _OUT = ("opted-in", "active", "completed"), ("opted-out",)


@dataclass(frozen=True, slots=True)
class Response:
    """One event's answer."""

    event_id: str
    modification: int
    request_id: str
    code: int
    taking_part: bool

    def values(self) -> dict[str, Any]:
        """As an ``eventResponse`` has it."""
        return {
            "response_code": self.code,
            "response_description": "OK" if self.code == 200 else _TOLD.get(self.code, "refused"),
            "request_id": self.request_id,
            "event_id": self.event_id,
            "modification_number": self.modification,
            "opt_type": "optIn" if self.taking_part else "optOut",
        }


_TOLD = {
    450: "out of sequence",
    454: "invalid data",
    460: "signal not supported",
    462: "target mismatch",
}


@dataclass(slots=True)
class _Waiting:
    listed: Listed
    request_id: str
    sent: bool | None = None
    """What was answered; None = nothing yet."""


class Answers:
    """The answers that one server waits for."""

    def __init__(self, memory: FeedMemory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        kept = memory.get(_KEY)
        self._verdicts: dict[str, bool] = kept if isinstance(kept, dict) else {}

    def expect(self, listed: Iterable[Listed], request_id: str) -> None:
        """A list came: each of its events that wants an answer gets one, whether changed or not."""
        with self._lock:
            self._waiting = {}
            for each in listed:
                if each.anew:
                    for source in each.sources:
                        self._verdicts.pop(source, None)
                if each.wants_answer and each.event_id:
                    self._waiting[each.event_id] = _Waiting(each, request_id)

    def told(self, source_id: str, status: str) -> None:
        """Control has decided about a signal.

        Raises:
            GridawareError: it cannot be kept over a restart; it holds for as long as we run.
        """
        if status not in _IN and status not in _OUT:
            return
        with self._lock:
            verdict = status in _IN
            if self._verdicts.get(source_id) is verdict:
                return
            self._verdicts[source_id] = verdict
            while len(self._verdicts) > VERDICTS_AT_MOST:
                del self._verdicts[next(iter(self._verdicts))]
            kept = dict(self._verdicts)
        self._memory.put(_KEY, kept)

    def ready(self, acts: bool | None, *, final: bool) -> list[Response]:
        """What can be answered now.

        Args:
            acts: whether the site acts on what it is asked; None = unknown.
            final: the server may not wait any longer: all that is undecided is out.
        """
        with self._lock:
            found = []
            for each in self._waiting.values():
                part = self._taking_part(each.listed, acts)
                if part is None and final:
                    part = False
                if part is None or each.sent is part:
                    continue
                listed = each.listed
                found.append(
                    Response(
                        listed.event_id, listed.modification, each.request_id, listed.code, part
                    )
                )
            return found

    def sent(self, responses: Iterable[Response]) -> None:
        """The server has them."""
        with self._lock:
            for response in responses:
                each = self._waiting.get(response.event_id)
                if each is not None and each.listed.modification == response.modification:
                    each.sent = response.taking_part

    def _taking_part(self, listed: Listed, acts: bool | None) -> bool | None:
        if listed.code != 200:
            return False
        if not listed.sources:
            return acts
        verdicts = [self._verdicts.get(source) for source in listed.sources]
        if any(verdict is False for verdict in verdicts):
            return False
        return True if all(verdicts) else None
