"""``mqtt``: a topic that holds the limit in force, for whoever has a broker and no protocol.

::

    {"sequence": 7, "limit_kw": 84, "valid_until": "2026-11-30T15:00:00Z"}
    {"sequence": 8, "release": true}

The words of a target are those of every event request (``limit_kw``, ``reduce_percent``, …);
``start`` may lie ahead. The newest sequence rules. A message that is retained is as good as it is
valid: one whose ``valid_until`` has passed asks for nothing. When the sender's last will is said,
nothing is released: the limit holds until it is no longer valid, and the feed's health tells.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import Field

from gridaware.control.ports import FeedReport
from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput, Refused, Unavailable
from gridaware.domain.eventjson import (
    TARGETS,
    instant,
    json_object,
    refuse_unknown_keys,
    target_from_mapping,
)
from gridaware.domain.signal import EventKind, EventRequest, Signal
from gridaware.feeds.kind import FEED_KINDS, Feed, FeedContext, Parsed, RefusedPart, row_of
from gridaware.feeds.mqtt import MqttLink, MqttMessage, MqttSettings
from gridaware.feeds.secrets import REFERENCE_PATTERN, read_secret_text
from gridaware.feeds.standing_limit import kept_limit
from gridaware.feeds.tell import status_body

__all__ = ["Limit", "PlainMqtt", "PlainMqttSettings", "read_limit"]

KEYS = ("sequence", "valid_until", "start", "release", "kind", *TARGETS)
SEQUENCE_AT_MOST = 2**63
_OFFLINE = b"offline"


class PlainMqttSettings(MqttSettings):
    """Settings of a plain MQTT feed."""

    topic: str = Field(min_length=1, max_length=500, pattern=r"^[^#+\x00]+$")
    """Where the limit is said; no wildcards."""
    password: str | None = Field(default=None, pattern=REFERENCE_PATTERN, max_length=500)
    presence_topic: str | None = Field(default=None, max_length=500, pattern=r"^[^#+\x00]+$")
    """Where the sender says that it is there, and its last will says ``offline``."""
    status_topic: str | None = Field(default=None, max_length=500, pattern=r"^[^#+\x00]+$")
    """Where we say what became of it; our own last will there is ``offline``."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One message, read."""

    sequence: int
    request: EventRequest | None
    """None = it is released."""


def read_limit(body: bytes, received_at: datetime) -> Limit:
    """One message.

    Raises:
        InvalidInput: a code of :mod:`gridaware.domain.eventjson`, ``mqtt-sequence``,
            ``mqtt-valid-until``, or ``mqtt-release``.
        Refused: it is no longer valid (``mqtt-stale``).
    """
    values = json_object(body)
    refuse_unknown_keys(values, KEYS, "event")
    sequence = values.get("sequence")
    if (
        isinstance(sequence, bool)
        or not isinstance(sequence, int)
        or not 0 <= sequence < SEQUENCE_AT_MOST
    ):
        raise InvalidInput("mqtt-sequence", "the sequence is no whole number from 0")
    release = values.get("release", False)
    if release is True:
        if set(values) != {"sequence", "release"}:
            raise InvalidInput("mqtt-release", "a release says its sequence and nothing else")
        return Limit(sequence, None)
    if release is not False:
        raise InvalidInput("flag-type", "release is neither true nor false")
    if "valid_until" not in values:
        raise InvalidInput("mqtt-valid-until", "the limit does not say until when it is valid")
    until = instant(values["valid_until"], "valid_until")
    if until <= received_at:
        raise Refused("mqtt-stale", "the limit was no longer valid when it came")
    start = instant(values["start"], "start") if "start" in values else received_at
    try:
        kind = EventKind(str(values.get("kind", "live")))
    except ValueError:
        raise InvalidInput("kind-unknown", "the kind is none of live, test and drill") from None
    return Limit(
        sequence,
        EventRequest(
            start=start,
            end=until,
            target=target_from_mapping({k: v for k, v in values.items() if k in TARGETS}),
            kind=kind,
            immediate="start" not in values,
        ),
    )


@FEED_KINDS.register("mqtt")
class PlainMqtt(Feed[PlainMqttSettings]):
    """Listens to one topic of a broker."""

    settings_model = PlainMqttSettings

    def __init__(self, context: FeedContext, settings: PlainMqttSettings) -> None:
        super().__init__(context, settings)
        said = (settings.topic, settings.presence_topic, settings.status_topic)
        named = [topic for topic in said if topic is not None]
        if len(set(named)) != len(named):
            # A limit would be taken for a sign of life, or our status for a limit.
            raise ConfigError("mqtt-topics", "two things are said on one topic")
        password = None if settings.password is None else read_secret_text(settings.password)
        will = None if settings.status_topic is None else (settings.status_topic, _OFFLINE)
        self._link = MqttLink(
            settings,
            f"gridaware-{context.feed_id}",
            password=None if password is None else lambda: password,
            will=will,
        )
        self._standing: tuple[Signal, ...] = ()
        self._sender_gone = False

    def listen(self, emit: Callable[[Signal], object], heard: Callable[[], None]) -> None:
        """Serve the connection until it is lost or closed.

        Raises:
            Unavailable: the broker is gone.
            Refused: the broker does not want us.
        """
        topics = [self.settings.topic]
        if self.settings.presence_topic is not None:
            topics.append(self.settings.presence_topic)

        def message(said: MqttMessage) -> None:
            if said.topic == self.settings.presence_topic:
                self._note_presence(said.payload.strip() != _OFFLINE)
            else:
                self._take(said, emit)

        def alive() -> None:
            if not self._sender_gone:  # the broker alone is no sender: the feed's lag grows
                heard()

        self._link.serve(topics, message, alive)

    def close(self) -> None:
        """Let :meth:`listen` return."""
        self._link.close()

    def standing(self) -> Sequence[Signal]:
        """The limit that stands, as it was heard."""
        return self._standing

    def can_tell(self) -> bool:
        """Whether there is a status topic."""
        return self.settings.status_topic is not None

    def tell(self, report: FeedReport) -> None:
        """Say a status on the status topic.

        Raises:
            Unavailable: there is no connection, or the broker did not take it.
        """
        if self.settings.status_topic is not None:
            self._link.publish(self.settings.status_topic, status_body(report))

    @classmethod
    def parse(cls, body: bytes, now: datetime, settings: PlainMqttSettings | None) -> Parsed:
        """One message.

        Raises:
            InvalidInput: it is none.
        """
        del settings
        try:
            limit = read_limit(body, now)
        except Refused as error:
            return Parsed((), (RefusedPart("limit", error.code, error.message),))
        return Parsed((row_of(Signal("file", "limit", 0, now, 0.0, limit.request), now),))

    def _note_presence(self, here: bool) -> None:
        if self._sender_gone == (not here):
            return
        self._sender_gone = not here
        if not here:
            gone = Unavailable("mqtt-sender-gone", "the sender's last will was said")
            self.context.refuse(gone, "")

    def _take(self, said: MqttMessage, emit: Callable[[Signal], object]) -> None:
        raw = said.payload.decode("utf-8", "backslashreplace")
        try:
            self._carry_out(said.payload, raw, emit)
        except GridawareError as error:
            if error.retryable:
                raise
            self.context.refuse(error, raw)

    def _carry_out(self, payload: bytes, raw: str, emit: Callable[[Signal], object]) -> None:
        clock, memory = self.context.clock, self.context.memory
        at, seconds = clock.wall(), clock.monotonic_seconds()
        limit = read_limit(payload, at)
        before, last = kept_limit(memory, "limit"), memory.get("sequence")
        last = last if isinstance(last, int) else -1
        if limit.sequence < last:
            raise Refused("mqtt-sequence-passed", f"sequence {limit.sequence} came after {last}")
        if limit.sequence == last:
            return  # a duplicate, or the retained one once more
        if limit.request is not None:
            after, request = before.asked(limit.request, at)
        elif before.active:
            after, request = before.released(), None
        else:
            return  # nothing stands
        feed_id = self.context.feed_id
        signal = Signal(feed_id, after.name("limit"), after.revision, at, seconds, request, raw)
        refusal: GridawareError | None = None
        try:
            emit(signal)
        except GridawareError as error:
            if error.retryable:
                raise  # not durable: it is new when it comes again
            refusal = error  # control has recorded it
        after.keep(memory, "limit")
        memory.put("sequence", limit.sequence)
        self._standing = () if request is None or refusal is not None else (signal,)
