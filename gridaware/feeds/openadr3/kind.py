"""``openadr3``: a client (VEN) of OpenADR 3.0.1 and 3.1. Polls are the truth; pushes wake them.

A poll reads every event that the server shows us, whole or not at all. What an event asks is sent
on under a name of its own; what it no longer asks is taken back. An event that is no longer listed
is not cancelled by that alone (:mod:`gridaware.feeds.vanish`).
"""

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from gridaware.control.ports import FeedTelemetry
from gridaware.domain.errors import ConfigError, GridawareError, Refused
from gridaware.domain.signal import Signal
from gridaware.feeds.kind import FEED_KINDS, Feed, FeedContext, Hooked, Parsed, Push
from gridaware.feeds.mqtt import MqttLink
from gridaware.feeds.openadr3.auth import Credentials, Tokens
from gridaware.feeds.openadr3.broker import broker_of, topics_of
from gridaware.feeds.openadr3.callback import CallBack, bearer_of, notified
from gridaware.feeds.openadr3.client import Calls, Client
from gridaware.feeds.openadr3.listing import Listing, Programs
from gridaware.feeds.openadr3.parsing import parse_document
from gridaware.feeds.openadr3.presence import Me, Presence
from gridaware.feeds.openadr3.reading_settings import rules_of
from gridaware.feeds.openadr3.reporting import Reporting
from gridaware.feeds.openadr3.settings import OpenAdr3Settings, check_url
from gridaware.feeds.openadr3.standing import Standing
from gridaware.feeds.revisions import Heard
from gridaware.feeds.secrets import read_secret_text
from gridaware.feeds.vanish import Missing, cancelled_by

__all__ = ["OpenAdr3"]

POLL_SECONDS = 12.0
"""For everything that a poll asks."""
LISTEN_SECONDS = 10.0
RAW_AT_MOST = 4096


@FEED_KINDS.register("openadr3")
class OpenAdr3(Feed[OpenAdr3Settings]):
    """One server's client."""

    settings_model = OpenAdr3Settings

    def __init__(self, context: FeedContext, settings: OpenAdr3Settings) -> None:
        super().__init__(context, settings)
        self._rules = rules_of(settings)
        clock, insecure = context.clock, settings.allow_insecure_http
        base = check_url(settings.vtn_url, insecure=insecure)
        if settings.token_url is not None:
            check_url(settings.token_url, insecure=insecure)
        if settings.ca_file is not None and not Path(settings.ca_file).is_file():
            raise ConfigError("openadr3-ca-file", "there is no file of authorities to trust")
        tokens = Tokens(
            base,
            _credentials(settings),
            clock,
            context.memory,
            ca_file=settings.ca_file,
            insecure=insecure,
        )
        self._client = Client(base, tokens, clock, self._alarm, ca_file=settings.ca_file)
        bearer = ""
        if settings.callback_url is not None:
            check_url(settings.callback_url, insecure=insecure)
            bearer = bearer_of(context.memory)
        self._callback = CallBack(bearer, clock) if bearer else None
        self._name = settings.ven_name or f"gridaware-{context.feed_id}"
        me = Me(
            settings.version,
            self._name,
            resource_name=settings.resource_name,
            callback_url=settings.callback_url,
            bearer=bearer,
            targets=settings.targets,
        )
        self._presence = Presence(me, context.memory, self._alarm)
        self._programs = Programs(settings, self._alarm)
        self._missing = Missing()
        self._standing = Standing(context, self._rules, Heard(context.memory, base), self._programs)
        self._reporting = Reporting(settings, self._name, clock, self._alarm)
        self._lock = threading.Lock()
        """Of a poll: a person's test may come between those of the cadence."""
        self._witness: str | None = None
        self._witnessed_seconds = float("-inf")
        self._closing = threading.Event()
        self._stirred = threading.Event()
        """Polled once, or closing."""
        self._link: MqttLink | None = None

    # Polls ------------------------------------------------------------------------------------

    def poll(self) -> Sequence[Signal]:
        """Everything that the server's events ask now.

        Raises:
            Unavailable: it did not answer wholly and in time; nothing is concluded.
        """
        with self._lock:
            clock = self.context.clock
            received_at, received_seconds = clock.wall(), clock.monotonic_seconds()
            calls = self._client.by(POLL_SECONDS)
            listing = Listing(self.settings, self._programs).read(calls)
            self._standing.read(listing, received_at)
            witness = self._witnessed(calls, unlisted=self._standing.unlisted)
            gone = cancelled_by(
                self._missing,
                self._standing.seen_under,
                self._standing.listed,
                witness,
                received_seconds,
            )
            signals = self._standing.conclude(gone, witness, received_at, received_seconds)
            self._reporting.events(self._standing.readings)
            self._stirred.set()
            return signals

    def _witnessed(self, calls: Calls, *, unlisted: bool) -> str | None:
        """Whether the server still knows us, asked after the list: a restart in between shows.

        A wake-up between two polls of the cadence does not ask, unless something is missing.
        """
        now = self.context.clock.monotonic_seconds()
        recent = now - self._witnessed_seconds < self.settings.poll_seconds / 2
        if not self.settings.register_ven or (recent and not unlisted):
            return self._witness
        self._witness = None
        self._witness = self._presence.witness(calls)
        if not self._presence.complete:
            self._presence.ensure(calls, self._programs.first)
        self._witnessed_seconds = now
        return self._witness

    # Hooks ------------------------------------------------------------------------------------

    def hook(self, push: Push) -> Hooked:
        """Echo a challenge; let a notification wake a poll.

        Raises:
            Refused: no webhook was asked for, or the call does not carry our bearer.
            InvalidInput: a challenge without a word.
        """
        if self._callback is None:
            raise Refused("feed-not-pushed", "the feed has no callback_url, so nobody calls it")
        if push.method == "GET":
            return self._callback.challenged(push)
        self._callback.verify(push)
        fault = notified(push.body)
        if fault is not None:  # authentic all the same, so something may have changed
            self.context.refuse(fault, push.body[:RAW_AT_MOST].decode("utf-8", "backslashreplace"))
        return Hooked(wake=True, body=b"{}")

    def unhook(self, push: Push) -> None:
        """Nothing was kept that would refuse it again."""
        del push

    # Listens ----------------------------------------------------------------------------------

    def listen(self, emit: Callable[[Signal], object], heard: Callable[[], None]) -> None:
        """Be woken by the server's broker, where the settings want it.

        Raises:
            Unavailable: there is no broker, or the connection was lost.
        """
        del emit  # a poll brings what it wakes for
        if not self.settings.mqtt:
            self._closing.wait()
            return
        self._stirred.wait(LISTEN_SECONDS)  # topics are asked for by the VEN's id
        calls = self._client.by(LISTEN_SECONDS)
        broker = broker_of(calls, self.settings.client_id or self._name)
        topics = topics_of(calls, self._presence.ven_id)
        self._link = broker.link(
            f"gridaware-{self.context.feed_id}"[:64],
            lambda: self._client.tokens.current() or "",
            ca_file=self.settings.ca_file,
            insecure=self.settings.allow_insecure_http,
        )
        if not self._closing.is_set():
            wake = self.context.wake
            # Whatever was said while there was no connection is not said again: ask for the list.
            self._link.serve(topics, lambda _: wake(), heard, on_connected=wake)

    def close(self) -> None:
        """Let :meth:`listen` return soon."""
        self._closing.set()
        self._stirred.set()
        if self._link is not None:
            self._link.close()

    def standing(self) -> Sequence[Signal]:
        """What stands is what a poll says."""
        return self.poll()

    # Reports ----------------------------------------------------------------------------------

    def report(self, telemetry: FeedTelemetry) -> None:
        """Take one sample of the site, and send the reports that are due.

        Raises:
            Unavailable: one could not be delivered; it is tried again with a later sample.
            Refused: the server does not want it.
        """
        self._reporting.take(telemetry, self._standing.events_by_source)
        self._reporting.send(partial(self._client.by, LISTEN_SECONDS))

    # Parses -----------------------------------------------------------------------------------

    @classmethod
    def parse(cls, body: bytes, now: datetime, settings: OpenAdr3Settings | None) -> Parsed:
        """See :func:`gridaware.feeds.openadr3.parsing.parse_document`."""
        return parse_document(body, now, settings)

    def _alarm(self, error: GridawareError) -> None:
        self.context.refuse(error, "")


def _credentials(settings: OpenAdr3Settings) -> Credentials | None:
    if settings.client_id is None or settings.client_secret is None:
        return None
    secret = read_secret_text(settings.client_secret)
    return Credentials(settings.client_id, secret, settings.scope, settings.token_url)
