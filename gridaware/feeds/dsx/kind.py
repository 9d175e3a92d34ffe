"""The connection of a DSX Flex feed: hears load targets, publishes statuses."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from gridaware.control.ports import FeedTelemetry
from gridaware.domain.errors import GridawareError, InvalidInput, Refused
from gridaware.domain.eventjson import json_object
from gridaware.domain.signal import Signal
from gridaware.feeds.dsx.book import Book
from gridaware.feeds.dsx.carrying import carry_out
from gridaware.feeds.dsx.informing import advisory_of
from gridaware.feeds.dsx.jws import VerifyKey, verify
from gridaware.feeds.dsx.messages import (
    LOAD_TARGET,
    CloudEvent,
    check_source,
    check_time,
    read_event,
    read_targets,
)
from gridaware.feeds.dsx.parsing import parse_message
from gridaware.feeds.dsx.pieces import Step
from gridaware.feeds.dsx.settings import DsxSettings, verify_keys
from gridaware.feeds.dsx.statuses import Statuses
from gridaware.feeds.kind import FEED_KINDS, Feed, FeedContext, Parsed
from gridaware.feeds.mqtt import MqttLink, MqttMessage, check_mqtt_url
from gridaware.feeds.openadr3.auth import Credentials, Tokens
from gridaware.feeds.openadr3.settings import check_url
from gridaware.feeds.secrets import read_secret_text

__all__ = ["Dsx"]

Emit = Callable[[Signal], object]
TOKEN_USER = "oauthtoken"  # noqa: S105 - the schema's name of the user, no secret


@FEED_KINDS.register("dsx")
class Dsx(Feed[DsxSettings]):
    """Hears the load targets of one sender (ISV)."""

    settings_model = DsxSettings

    def __init__(self, context: FeedContext, settings: DsxSettings) -> None:
        super().__init__(context, settings)
        self._keys = verify_keys(settings.keys)
        self._peer_keys = verify_keys(settings.peer_keys)
        self._link = _link(context, settings)
        self._statuses = Statuses(settings, settings.signer(), self._say)
        self._book = Book.kept(context.memory)
        self._again: MqttMessage | None = None
        """It could not be made durable; not every broker says it a second time."""

    def listen(self, emit: Emit, heard: Callable[[], None]) -> None:
        """Serve the connection until it is lost or closed.

        Raises:
            Unavailable: the broker is gone, or a signal could not be made durable: the message
                comes again.
            Refused: the broker does not want us.
        """
        if self._again is not None:
            self._take(self._again, emit)
        topics = [self.settings.target_topic, *self.settings.informing_sources]
        self._link.serve(topics, lambda said: self._take(said, emit), heard)

    def close(self) -> None:
        """Let :meth:`listen` return."""
        self._link.close()

    def standing(self) -> Sequence[Signal]:
        """The pieces of the schedule that are not over."""
        at, seconds = self.context.clock.wall(), self.context.clock.monotonic_seconds()
        return tuple(
            Signal(self.context.feed_id, piece.name, piece.revision, at, seconds, piece.request())
            for piece in self._book.pieces.values()
            if piece.end is None or piece.end > at
        )

    def report(self, telemetry: FeedTelemetry) -> None:
        """Publish the power state, where that is due.

        Raises:
            Unavailable: the broker is away; told once an outage.
        """
        self._statuses.report(self._book, telemetry)

    @classmethod
    def parse(cls, body: bytes, now: datetime, settings: DsxSettings | None) -> Parsed:
        """One message.

        Raises:
            InvalidInput: nothing of it can be read.
            ConfigError: a key of the settings cannot be read.
        """
        return parse_message(body, now, settings)

    def _say(self, topic: str, payload: bytes) -> None:
        self._link.publish(topic, payload)

    def _take(self, said: MqttMessage, emit: Emit) -> None:
        raw = said.payload.decode("utf-8", "backslashreplace")
        self._again = None
        try:
            if said.topic == self.settings.target_topic:
                self._take_targets(said.payload, raw, emit)
            else:
                self._take_information(said)
        except GridawareError as error:
            if error.retryable:
                self._again = said
                raise
            self.context.refuse(error, raw)

    def _take_information(self, said: MqttMessage) -> None:
        event = read_event(said.payload)
        check_source(event, self.settings.informing_sources[said.topic])
        data, _ = self._opened(event, self._peer_keys)
        at = self.context.clock.wall()
        self.context.advise(advisory_of(event.type, data, self.context.feed_id, at))

    def _take_targets(self, payload: bytes, raw: str, emit: Emit) -> None:
        clock, settings = self.context.clock, self.settings
        at, seconds = clock.wall(), clock.monotonic_seconds()
        event = read_event(payload)
        if event.type != LOAD_TARGET:
            raise InvalidInput("dsx-type", f"{event.type} is none that this topic is for")
        check_source(event, settings.source)
        data, fingerprint = self._opened(event, self._keys)
        if self._book.knows(event.event_id, fingerprint):
            return  # a duplicate, or a retained one once more
        age = timedelta(hours=settings.oldest_hours)
        check_time(event, at, age, timedelta(seconds=settings.ahead_seconds))
        targets = read_targets(data)
        self._book.prune(at, age)
        after = self._book.said(event, targets, tuple(settings.feeds), at)
        try:
            say = self._signals(raw, at, seconds, emit)
            carry_out(after, settings.default_watts, at, say)
        except GridawareError:
            # What control has by now is known, so that it can be taken back; the rest comes again.
            self._book.pieces = after.pieces
            self._book.keep(self.context.memory)
            raise
        after.note(event.event_id, fingerprint)
        self._book = after
        self._statuses.confirm(event)
        after.keep(self.context.memory)

    def _opened(
        self, event: CloudEvent, keys: Mapping[str, VerifyKey]
    ) -> tuple[Mapping[str, object], str]:
        """The data of a message, and the fingerprint of its signature."""
        if isinstance(event.data, dict):
            if not self.settings.allow_unsigned:
                raise Refused("dsx-unsigned", "the data is not signed")
            return event.data, ""
        signed = verify(event.data, keys)
        return json_object(signed.payload), signed.fingerprint

    def _signals(
        self, raw: str, at: datetime, seconds: float, emit: Emit
    ) -> Callable[[Step], object]:
        """Says a step to control; the message is kept with the first signal that it makes."""
        first = ""

        def say(step: Step) -> object:
            nonlocal first
            piece = step.piece
            said = raw if not first else json.dumps({"part_of": first})
            first = first or piece.name
            request = None if step.taken_back else piece.request()
            return emit(
                Signal(self.context.feed_id, piece.name, piece.revision, at, seconds, request, said)
            )

        return say


def _link(context: FeedContext, settings: DsxSettings) -> MqttLink:
    """The connection; the broker keeps what is said while we are away, since it is said once."""
    password: Callable[[], str] | None = None
    check_mqtt_url(settings)
    if settings.password is not None:
        secret = read_secret_text(settings.password)
        password = lambda: secret  # noqa: E731
    if settings.token_url is not None:
        assert settings.token_client is not None
        assert settings.token_secret is not None
        insecure = settings.allow_insecure
        who = Credentials(
            settings.token_client,
            read_secret_text(settings.token_secret),
            settings.token_scope,
            check_url(settings.token_url, insecure=insecure),
        )
        tokens = Tokens(
            who.token_url or "",
            who,
            context.clock,
            context.memory,
            ca_file=settings.ca_file,
            insecure=insecure,
        )
        password = lambda: tokens.current() or ""  # noqa: E731
        settings = settings.model_copy(update={"username": settings.username or TOKEN_USER})
    return MqttLink(settings, f"gridaware-{context.feed_id}", password=password, keep_session=True)
