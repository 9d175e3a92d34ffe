"""``ieee2030``: follows the DERControls of a utility's server (IEEE 2030.5, CSIP-AUS).

A poll walks the server's whole tree, or concludes nothing. What a control asks is sent on under a
name of its own; what the server takes back is taken back. A control that is no longer listed is not
cancelled by that alone (:mod:`gridaware.feeds.vanish`), and a notification is only a reason to read
again: one that says "subscription cancelled" was seen to carry a control that was.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from gridaware.control.ports import FeedReport, FeedTelemetry
from gridaware.domain.errors import ConfigError, GridawareError, Refused, Unavailable
from gridaware.domain.signal import Signal
from gridaware.feeds.http import identity_from
from gridaware.feeds.ieee2030.client import MEDIA, Calls, Client
from gridaware.feeds.ieee2030.identity import lfdi_of_file
from gridaware.feeds.ieee2030.mirror import Mirror
from gridaware.feeds.ieee2030.parsing import parse_document
from gridaware.feeds.ieee2030.responses import Responses
from gridaware.feeds.ieee2030.servertime import ServerTime
from gridaware.feeds.ieee2030.settings import Ieee2030Settings, check_url, rules_of
from gridaware.feeds.ieee2030.standing import Standing
from gridaware.feeds.ieee2030.subscriptions import Subscriptions
from gridaware.feeds.ieee2030.walk import Tree, Walk
from gridaware.feeds.kind import FEED_KINDS, Feed, FeedContext, Hooked, Parsed, Push
from gridaware.feeds.revisions import Heard
from gridaware.feeds.vanish import Missing, cancelled_by

__all__ = ["Ieee2030"]

POLL_SECONDS = 25.0
"""For everything that a walk asks: shorter than what the runner takes for hung."""
RESPOND_SECONDS = 5.0
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE-ECDSA-AES128-CCM8:@SECLEVEL=0"
"""Its tag of 64 bits is below every other security level of OpenSSL."""


@FEED_KINDS.register("ieee2030")
class Ieee2030(Feed[Ieee2030Settings]):
    """One server's client."""

    settings_model = Ieee2030Settings

    def __init__(self, context: FeedContext, settings: Ieee2030Settings) -> None:
        super().__init__(context, settings)
        url, memory = check_url(settings.server_url), context.memory
        if settings.ca_file is not None and not Path(settings.ca_file).is_file():
            raise ConfigError("ieee2030-ca-file", "there is no file of authorities to trust")
        self.lfdi = lfdi_of_file(settings.certificate_file)
        identity = replace(
            identity_from(settings.certificate_file, settings.key_file),
            ciphers=CIPHERS if settings.ccm8 else None,
            server_digest=settings.server_lfdi,
        )
        self._client = Client(url, context.clock, identity, settings.ca_file)
        self._time = ServerTime(memory, self._alarm)
        self._walk = Walk(self.lfdi, self._time)
        self._responses = Responses(self.lfdi, memory, self._alarm)
        heard = Heard(memory, url)
        self._standing = Standing(context, rules_of(settings), heard, self._time, self._responses)
        self._mirror: Mirror | None = None
        if settings.telemetry_seconds is not None:
            self._mirror = Mirror(settings.telemetry_seconds, self.lfdi, self._time, self._alarm)
        self._mirror_href = ""
        self._subscriptions: Subscriptions | None = None
        if settings.callback_url is not None:
            callback_url = check_url(settings.callback_url)
            self._subscriptions = Subscriptions(callback_url, memory, context.clock, self._alarm)
        self._missing = Missing()
        self._lock = threading.Lock()
        """Of a poll: a person's test may come between those of the cadence."""
        self._signals: Sequence[Signal] = ()
        self._not_before_seconds = float("-inf")
        self._notified = threading.Event()
        self._saying = threading.Event()
        self._lost_programs = False

    # Polls ------------------------------------------------------------------------------------

    def poll(self) -> Sequence[Signal]:
        """Everything that the server's controls ask now.

        A server that wants to be asked less often is; what it said last stands meanwhile.

        Raises:
            Unavailable: it did not answer wholly and in time, or does not list us; nothing is
                concluded.
        """
        with self._lock:
            clock = self.context.clock
            received_at, seconds = clock.wall(), clock.monotonic_seconds()
            if seconds < self._not_before_seconds and not self._notified.is_set():
                return self._signals
            self._notified.clear()
            tree = self._walk.read(self._client.by(POLL_SECONDS))
            self._signals = self._conclude(tree, received_at, seconds)
            self._not_before_seconds = seconds + self._wait_seconds(tree)
            self._mirror_href = tree.mirror_href
            self._say(tree)
            return self._signals

    def _conclude(self, tree: Tree, received_at: datetime, seconds: float) -> list[Signal]:
        standing = self._standing
        standing.read(tree, received_at)
        if not tree.programs and not self._lost_programs:
            told = "the server assigns no DER program to us: what stands is held"
            self._alarm(Unavailable("ieee2030-no-programs", told))
        self._lost_programs = not tree.programs
        gone = cancelled_by(
            self._missing, standing.seen_under, standing.listed, tree.witness, seconds
        )
        return standing.conclude(gone, tree.witness, received_at, seconds)

    def _say(self, tree: Tree) -> None:
        """Answer and subscribe on a thread of its own: nothing waits for who is slow to listen."""
        subscriptions = self._subscriptions
        self._responses.keep()
        if (subscriptions is None and not self._responses.waiting) or self._saying.is_set():
            return

        def say() -> None:
            try:
                self._responses.flush(self._calls)
                if subscriptions is not None:
                    subscriptions.ensure(self._calls, tree.subscriptions_href, tree.watched)
            finally:
                self._saying.clear()

        self._saying.set()
        name = f"feed-{self.context.feed_id}-respond"
        threading.Thread(target=say, name=name, daemon=True).start()

    def _calls(self) -> Calls:
        return self._client.by(RESPOND_SECONDS)

    def _wait_seconds(self, tree: Tree) -> float:
        """How long the server's own poll rate has us wait beyond our cadence."""
        wanted = min(tree.poll_seconds or 0, self.settings.slowest_poll_seconds)
        # A poll of the cadence may come a fifth early.
        return wanted * 0.8 if wanted > self.settings.poll_seconds else 0.0

    # Hooks ------------------------------------------------------------------------------------

    def hook(self, push: Push) -> Hooked:
        """Let a notification wake a poll, whatever it says.

        Raises:
            Refused: none was asked for, or it does not carry our token.
            InvalidInput: it is no notification.
        """
        if self._subscriptions is None:
            raise Refused("feed-not-pushed", "the feed has no callback_url, so nobody calls it")
        self._subscriptions.verify(push)
        self._notified.set()
        return Hooked(wake=True, status=201, content_type=MEDIA)

    def unhook(self, push: Push) -> None:
        """Nothing was kept that would refuse it again."""
        del push

    # Tells ------------------------------------------------------------------------------------

    def can_tell(self) -> bool:
        """Always: each control says itself whether and where it wants to be answered."""
        return True

    def tell(self, report: FeedReport) -> None:
        """Answer the control of an event; what cannot be delivered now is sent again later."""
        name = self._standing.names.get(report.event.source_id)
        if name is not None:
            self._responses.told(name, report.status, self._time.now(report.at))
            self._responses.flush(self._calls)

    # Reports ----------------------------------------------------------------------------------

    def report(self, telemetry: FeedTelemetry) -> None:
        """Take one sample of the site, and mirror the intervals that are over.

        Raises:
            Unavailable: one could not be delivered; it is tried again with a later sample.
        """
        if self._mirror is not None:
            self._mirror.take(telemetry)
            self._mirror.send(self._calls, self._mirror_href)

    # Parses -----------------------------------------------------------------------------------

    @classmethod
    def parse(cls, body: bytes, now: datetime, settings: Ieee2030Settings | None) -> Parsed:
        """See :func:`gridaware.feeds.ieee2030.parsing.parse_document`."""
        return parse_document(body, now, settings)

    def _alarm(self, error: GridawareError) -> None:
        self.context.refuse(error, "")
