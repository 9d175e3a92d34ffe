"""Our registration with a VTN, kept over restarts, and what tells that the server lost it."""

import hashlib
import json
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from gridaware.clock import Clock
from gridaware.domain.errors import GridawareError, Refused, Unavailable
from gridaware.domain.eventjson import printable
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.openadr2.client import REGISTRATION, Ask, checked
from gridaware.feeds.openadr2.envelope import Message
from gridaware.feeds.openadr2.settings import OpenAdr2Settings
from gridaware.feeds.openadr3.times import read_duration

__all__ = ["Registered", "Registration"]

UNWANTED_SECONDS = 300.0
"""Until a server that has put us out is asked to take us again."""
POLL_SECONDS_AT_MOST = 3600.0
ID_AT_MOST = 200
_KEY = "registration"


@dataclass(frozen=True, slots=True)
class Registered:
    """What a server registered us as."""

    vtn_url: str
    ven_id: str
    registration_id: str
    vtn_id: str
    poll_seconds: float
    """The least time between two polls, as the server wants it."""
    times: int = 0
    """Counts registrations after the first: a server that was restarted may give the same ids."""

    @property
    def witness(self) -> str:
        """A name of this registration: what is listed under it is what this server knows of us."""
        said = json.dumps(
            [self.vtn_url, self.ven_id, self.registration_id, self.vtn_id, self.times]
        )
        return hashlib.sha256(said.encode()).hexdigest()[:16]


class Registration:
    """Keeps us registered. One thread at a time; ``current`` is replaced, not changed.

    Args:
        settings: of the feed.
        ven_name: ours.
        url: of the server.
        memory: of the feed.
        clock: of waits.
        alarm: hears when the server lost us.
    """

    def __init__(
        self,
        settings: OpenAdr2Settings,
        ven_name: str,
        url: str,
        memory: FeedMemory,
        clock: Clock,
        alarm: Callable[[GridawareError], None],
    ) -> None:
        self._settings = settings
        self._ven_name = ven_name
        self._url = url
        self._memory = memory
        self._clock = clock
        self._alarm = alarm
        self._not_before_seconds = float("-inf")
        self._last: Registered | None = _kept(memory, url, settings)
        self.current: Registered | None = self._last
        """None while the server does not know us."""

    def ensure(self, ask: Ask) -> Registered:
        """Register where that is not done.

        Raises:
            Unavailable: the server did not answer.
            Refused: it does not take us (``openadr2-not-registered``).
        """
        if self.current is not None:
            return self.current
        if self._clock.monotonic_seconds() < self._not_before_seconds:
            raise Refused("openadr2-put-out", "the server has ended our registration")
        last = self._last
        answer = checked(
            ask(
                REGISTRATION,
                "oadrCreatePartyRegistration",
                request_id=str(uuid.uuid4()),
                registration_id=None if last is None else last.registration_id,
                ven_id=self._settings.ven_id if last is None else last.ven_id,
                profile_name="2.0b",
                transport_name="simpleHttp",
                transport_address="",
                report_only=False,
                xml_signature=self._settings.signing_key_file is not None,
                ven_name=self._ven_name,
                http_pull_model=True,
            ),
            "the registration",
            unknown=(463,),
        )
        made = self._read(answer)
        if last is not None:
            made = replace(made, times=last.times + 1)
            told = "we had to register anew: events that the server does not list again are held"
            self._alarm(Unavailable("openadr2-server-restarted", told))
        self._last = self.current = made
        try:
            self._memory.put(_KEY, asdict(made))
        except GridawareError as error:
            self._alarm(error)
        return made

    def lost(self) -> None:
        """The server asks us to register anew, or does not know us: the next poll does that."""
        self.current = None

    def ended(self) -> None:
        """The server has ended our registration, and is left alone for a while."""
        self.current = None
        self._not_before_seconds = self._clock.monotonic_seconds() + UNWANTED_SECONDS
        told = "the server has ended our registration; what it asked is held"
        self._alarm(Refused("openadr2-put-out", told))

    def _read(self, answer: Message) -> Registered:
        content = answer.content
        ven_id, registration_id = content.said("venID"), content.said("registrationID")
        vtn_id = content.said("vtnID") or ""
        if answer.kind != "oadrCreatedPartyRegistration" or not ven_id or not registration_id:
            told = f"{printable(answer.kind)} {answer.told} names no VEN and registration".strip()
            raise Refused("openadr2-not-registered", told)
        if max(len(ven_id), len(registration_id), len(vtn_id)) > ID_AT_MOST:
            raise Refused("openadr2-not-registered", "its ids are longer than 200 characters")
        wanted = self._settings.vtn_id
        if wanted is not None and vtn_id != wanted:
            told = f"the server is {printable(vtn_id)}, not {printable(wanted)}"
            raise Refused("openadr2-other-vtn", told)
        return Registered(self._url, ven_id, registration_id, vtn_id, _poll_seconds(answer))


def _poll_seconds(answer: Message) -> float:
    said = answer.content.said("oadrRequestedOadrPollFreq", "duration")
    if said is None:
        return 0.0
    try:
        length = read_duration(said, "the poll frequency")
    except GridawareError:
        return 0.0
    endless = length.endless or length.months
    return POLL_SECONDS_AT_MOST if endless else min(length.seconds, POLL_SECONDS_AT_MOST)


def _kept(memory: FeedMemory, url: str, settings: OpenAdr2Settings) -> Registered | None:
    kept: Any = memory.get(_KEY)
    try:
        found = Registered(**kept) if kept else None
    except TypeError:
        return None
    if found is None or found.vtn_url != url:
        return None
    same = settings.ven_id in {None, found.ven_id} and settings.vtn_id in {None, found.vtn_id}
    return found if same else None
