"""``openadr2b``: a client (VEN) of OpenADR 2.0b that polls over simple HTTP.

openleadr writes our messages; the state of events is ours, because its client takes stale numbers,
loses new events behind a repeated cancellation, and knows no implied one.
"""

import threading
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from gridaware.control.ports import FeedReport, FeedTelemetry
from gridaware.domain.errors import ConfigError, GridawareError
from gridaware.domain.signal import Signal
from gridaware.feeds.http import ClientIdentity, identity_from
from gridaware.feeds.kind import FEED_KINDS, Feed, FeedContext, Parsed
from gridaware.feeds.openadr2.answers import Answers
from gridaware.feeds.openadr2.client import Client
from gridaware.feeds.openadr2.conversation import Conversation
from gridaware.feeds.openadr2.parsing import parse_message
from gridaware.feeds.openadr2.reading_settings import rules_of
from gridaware.feeds.openadr2.registration import Registration
from gridaware.feeds.openadr2.reporting import Reporting
from gridaware.feeds.openadr2.settings import OpenAdr2Settings, check_url
from gridaware.feeds.openadr2.signature import Signer, Verifier
from gridaware.feeds.openadr2.state import EventBook
from gridaware.feeds.openadr2.wire import Wire, require_library
from gridaware.feeds.server_clock import ServerClock

__all__ = ["OpenAdr2b"]

POLL_SECONDS = 12.0
"""For everything that a poll asks."""
ANSWER_SECONDS = 10.0


@FEED_KINDS.register("openadr2b")
class OpenAdr2b(Feed[OpenAdr2Settings]):
    """One server's client."""

    settings_model = OpenAdr2Settings

    def __init__(self, context: FeedContext, settings: OpenAdr2Settings) -> None:
        super().__init__(context, settings)
        rules = rules_of(settings)
        url = check_url(settings.vtn_url, insecure=settings.allow_insecure_http)
        require_library()
        if settings.ca_file is not None and not Path(settings.ca_file).is_file():
            raise ConfigError("openadr2-ca-file", "there is no file of authorities to trust")
        clock, memory = context.clock, context.memory
        self._client = Client(
            url,
            _wire(context, settings),
            clock,
            ServerClock(clock, self._alarm, "openadr2-clock-offset"),
            settings.ca_file,
            _identity(settings),
        )
        name = settings.ven_name or f"gridaware-{context.feed_id}"
        self._registration = Registration(settings, name, url, memory, clock, self._alarm)
        self._answers = Answers(memory)
        self._reporting = (
            Reporting(settings, settings.resource_id or name, clock, self._alarm)
            if settings.reports
            else None
        )
        self._book = EventBook(context.feed_id, rules, memory, url, context.refuse, context.advise)
        self._conversation = Conversation(
            self._book,
            self._answers,
            self._registration,
            self._reporting,
            clock,
            settings.list_seconds,
            self._alarm,
        )
        self._acts: bool | None = None
        self._lock = threading.Lock()
        """Of a poll: a person's test may come between those of the cadence."""
        self._answering = threading.Lock()

    # Polls ------------------------------------------------------------------------------------

    def poll(self) -> Sequence[Signal]:
        """Everything that the server's events ask now.

        Raises:
            Unavailable: it did not answer wholly and in time; nothing is concluded.
            Refused: it does not want us, or its answer is not to be trusted.
            InvalidInput: its answer cannot be read.
        """
        with self._lock:
            clock = self.context.clock
            received_at, received_seconds = clock.wall(), clock.monotonic_seconds()
            gone = self._conversation.poll(self._client.by(POLL_SECONDS), self._acts)
            return self._book.conclude(gone, received_at, received_seconds)

    # Tells ------------------------------------------------------------------------------------

    def can_tell(self) -> bool:
        """Always: events are answered with optIn or optOut."""
        return True

    def tell(self, report: FeedReport) -> None:
        """Answer the event of a signal, once all of its signals are decided.

        Raises:
            Unavailable: it could not be delivered; the next poll does it first.
            Refused: the server does not want it.
        """
        self._answers.told(report.event.source_id, report.status)
        with self._answering:
            ask = self._client.by(ANSWER_SECONDS)
            self._conversation.answer(ask, self._acts, final=False)

    # Reports ----------------------------------------------------------------------------------

    def report(self, telemetry: FeedTelemetry) -> None:
        """Take one sample of the site, and send the reports that are due.

        Raises:
            Unavailable: one could not be delivered; it is tried again with a later sample.
            Refused: the server does not want it.
        """
        self._acts = telemetry.act
        registered = self._registration.current
        if self._reporting is None or registered is None:
            return
        self._reporting.take(telemetry)
        self._reporting.send(self._client.by(ANSWER_SECONDS), registered)

    # Parses -----------------------------------------------------------------------------------

    @classmethod
    def parse(cls, body: bytes, now: datetime, settings: OpenAdr2Settings | None) -> Parsed:
        """See :func:`gridaware.feeds.openadr2.parsing.parse_message`."""
        ven_id = None if settings is None else settings.ven_id
        return parse_message(body, now, settings, ven_id=ven_id)

    def _alarm(self, error: GridawareError) -> None:
        self.context.refuse(error, "")


def _wire(context: FeedContext, settings: OpenAdr2Settings) -> Wire:
    signer = verifier = None
    certificate, key = settings.signing_certificate_file, settings.signing_key_file
    if certificate is not None and key is not None:
        signer = Signer(certificate, key, context.clock.wall)
    if settings.vtn_fingerprint is not None:
        verifier = Verifier(settings.vtn_fingerprint)
    elif settings.verify_signatures:
        raise ConfigError(
            "openadr2-fingerprint",
            "signatures shall be verified, and vtn_fingerprint does not say whose",
        )
    return Wire(
        sign=None if signer is None else signer.sign,
        verify=None if verifier is None else verifier.verify,
    )


def _identity(settings: OpenAdr2Settings) -> ClientIdentity | None:
    if settings.tls_certificate_file is None or settings.tls_key_file is None:
        return None
    return identity_from(settings.tls_certificate_file, settings.tls_key_file)
