"""``mapped``: an aggregator's webhook, read by a field map: Leap, Voltus, Axle, or one of yours.

A push is authentic by what the map says of its sender: a signature, a secret header, or nothing at
all; a push of the last kind only wakes a poll of the aggregator's own list. Where messages carry no
revision number, a changed content is the next revision; what was heard is remembered over restarts.
"""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from gridaware.control.ports import FeedReport
from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput, Refused, Unavailable
from gridaware.domain.eventjson import (
    BODY_BYTES_AT_MOST,
    event_to_json,
    json_object,
    target_from_mapping,
)
from gridaware.domain.signal import Signal, TargetSpec
from gridaware.feeds.fieldmap import FieldMap, Mapped, read_items, read_map, shipped_map
from gridaware.feeds.http import exchange
from gridaware.feeds.kind import (
    FEED_KINDS,
    Feed,
    FeedContext,
    Hooked,
    Parsed,
    ParsedRow,
    PolledSettings,
    Push,
    RefusedPart,
    row_of,
)
from gridaware.feeds.rate import Bucket
from gridaware.feeds.secrets import REFERENCE_PATTERN, read_secret, read_secret_text
from gridaware.feeds.tell import check_status_url, check_told

__all__ = ["MappedFeed", "MappedSettings"]

REMEMBERED_AT_MOST = 2000
REMEMBERED_BYTES_AT_MOST = 512 * 1024
POLL_BYTES_AT_MOST = 4 << 20
RECENT_SECONDS = 300.0
SecretReference = Annotated[str, Field(pattern=REFERENCE_PATTERN, max_length=500)]


class MappedSettings(PolledSettings):
    """Settings of a mapped webhook."""

    poll_seconds: float = Field(default=60.0, ge=5, le=3600)
    """Where the map names a list to poll."""
    map: str | Mapping[str, Any] = "leap"
    """``leap``, ``voltus``, ``axle``, or a map of yours (see docs/feeds/mapped.md)."""
    secrets: tuple[SecretReference, ...] = Field(default=(), max_length=4)
    """What pushes are signed with, or their secret header's value; two while one is replaced."""
    api_key: SecretReference | None = None
    """Of the aggregator's own interface: to poll, and to tell."""
    subject: str | None = Field(default=None, max_length=200)
    """Whose events are ours: the meter, site or asset id by which the aggregator knows the site."""
    null_target: Mapping[str, float] | None = None
    """What an event that asks for as much as you can means, such as ``{reduce_percent: 40}``."""
    fetch_url: str | None = Field(default=None, max_length=2000)
    """In place of the map's own, such as a sandbox."""
    status_prefix: str | None = Field(default=None, max_length=2000)
    """Statuses are told only to URLs that begin with this; unset = nobody is told."""
    rate_per_second: float = Field(default=10.0, gt=0, le=1000)


@FEED_KINDS.register("mapped")
class MappedFeed(Feed[MappedSettings]):
    """Hears an aggregator's pushes, polls its list where it has one, and tells it where it asks."""

    settings_model = MappedSettings

    def __init__(self, context: FeedContext, settings: MappedSettings) -> None:
        super().__init__(context, settings)
        self._map = _map_of(settings)
        self._secrets = [read_secret(reference) for reference in settings.secrets]
        if self._map.auth.scheme != "none" and not self._secrets:
            raise ConfigError("signature-no-secret", "the map's sender needs a secret")
        self._key = None if settings.api_key is None else read_secret_text(settings.api_key)
        if self._map.fetch is not None and self._key is None:
            raise ConfigError("map-key-missing", "the map's list is polled with an api_key")
        if settings.status_prefix is not None:
            check_status_url(settings.status_prefix)
        self._null = _null_target(settings)
        self._lock = threading.Lock()
        """Held from reading what was heard to keeping it: pushes and polls come on two threads."""
        rate = settings.rate_per_second
        self._rate = Bucket(context.clock, rate, max(5 * rate, 1))

    def hook(self, push: Push) -> Hooked:
        """Verify and read one push; one that cannot be authentic only wakes a poll.

        Raises:
            Refused: it is not authentic, or too many come (``signature-…``, ``rate-exceeded``).
            InvalidInput: nothing of it can be read.
        """
        if push.method != "POST":
            raise Refused("method-not-allowed", "that method is not served here")
        if self._map.auth.scheme == "none":
            self._take()
            return Hooked(wake=True, body=b"{}")
        body = json_object(push.body)
        self._check(push, body)
        self._take()
        return Hooked(tuple(self._signals(body, push)), body=b"{}")

    def unhook(self, push: Push) -> None:
        """Nothing was kept that would refuse it again."""
        del push

    def poll(self) -> Sequence[Signal]:
        """The aggregator's own list, where the map names one.

        Raises:
            Unavailable: it did not answer as it should.
        """
        fetch = self._map.fetch
        if fetch is None or self._key is None:
            return ()
        clock = self.context.clock
        received_at, received_seconds = clock.wall(), clock.monotonic_seconds()
        answer = exchange(
            "GET",
            self.settings.fetch_url or fetch.url,
            headers={fetch.header: self._key, "Accept": "application/json"},
            answer_bytes_at_most=POLL_BYTES_AT_MOST,
        )
        if answer.status != 200:
            raise Unavailable("peer-refused", f"the list was answered {answer.status}")
        push = Push({}, answer.body, received_at, received_seconds)
        try:
            return tuple(self._signals(json.loads(answer.body), push))
        except (ValueError, RecursionError, InvalidInput) as error:
            raise Unavailable("peer-garbled", f"the list cannot be read: {error}") from None

    def can_tell(self) -> bool:
        """Whether the map says how, and the settings to whom."""
        return self._map.status is not None and self.settings.status_prefix is not None

    def tell(self, report: FeedReport) -> None:
        """Call the URL that came with the event.

        Raises:
            Refused: the URL is not one of the aggregator's, or it does not want the status.
            Unavailable: it could not be reached.
        """
        status, prefix = self._map.status, self.settings.status_prefix
        known = self._heard().get(report.event.source_id)
        word = None if status is None else status.words.get(report.status)
        if status is None or prefix is None or known is None or word is None or not known[2]:
            return
        if not str(known[2]).startswith(prefix):
            raise Refused("tell-elsewhere", "the event's call-back is not one of the aggregator's")
        at = report.at.isoformat().replace("+00:00", "Z")
        key = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        answer = exchange(
            "POST",
            known[2],
            headers={"Content-Type": "application/json", **key},
            body=json.dumps({status.at: at, status.word: word}).encode(),
            answer_bytes_at_most=64 * 1024,
        )
        check_told(answer)

    @classmethod
    def parse(cls, body: bytes, now: datetime, settings: MappedSettings | None) -> Parsed:
        """A message of the aggregator; signatures are left to the listener.

        Raises:
            InvalidInput: nothing of it can be read.
        """
        given = settings or MappedSettings()
        fields = _map_of(given)
        rows: list[ParsedRow] = []
        refused: list[RefusedPart] = []
        items = read_items(
            json_object(body), fields, subject=given.subject, null_target=_null_target(given)
        )
        for number, each in enumerate(items):
            if isinstance(each, GridawareError):
                refused.append(RefusedPart(f"event {number}", each.code, each.message))
                continue
            revision = each.revision or 0
            signal = Signal("file", each.source_id, revision, now, 0.0, each.request)
            rows.append(row_of(signal, now))
        return Parsed(tuple(rows), tuple(refused))

    # ------------------------------------------------------------------------------------------

    def _take(self) -> None:
        # Behind the signature where there is one: a stranger's flood must not shut out the sender.
        if not self._rate.take():
            raise Refused("rate-exceeded", "too many messages a second came")

    def _check(self, push: Push, body: Any) -> None:
        auth = self._map.auth
        given = push.headers.get(auth.header.lower(), "").encode("utf-8", "replace")
        if not given:
            raise Refused("signature-missing", f"there is no header {auth.header}")
        if auth.scheme != "hmac":
            word = b"Bearer " if auth.scheme == "bearer" else b""
            wanted = [word + secret for secret in self._secrets]
        else:
            wanted = [self._digits(secret, push, body) for secret in self._secrets]
        same = [hmac.compare_digest(given, each) for each in wanted]  # each in its full time
        if not any(same):
            raise Refused("signature-bad", "the message is not signed with a secret of the feed")

    def _digits(self, secret: bytes, push: Push, body: Any) -> bytes:
        auth, signed = self._map.auth, push.body
        if auth.over:
            value = body.get(auth.over) if isinstance(body, Mapping) else None
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise Refused("signature-bad", f"there is no {auth.over} that could be signed")
            signed = str(value).encode("utf-8", "surrogatepass")
        if auth.timestamp_header:
            stamp = push.headers.get(auth.timestamp_header.lower(), "")
            if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
                raise Refused("timestamp-missing", f"there is no {auth.timestamp_header}")
            if abs(push.received_at.timestamp() - int(stamp)) > RECENT_SECONDS:
                raise Refused("timestamp-stale", "the message was signed too long ago or ahead")
            signed = stamp.encode() + b"." + signed
        digits = hmac.new(secret, signed, hashlib.sha256).hexdigest()
        return auth.prefix.encode() + digits.encode()

    def _signals(self, body: Any, push: Push) -> list[Signal]:
        with self._lock:
            return self._read(body, push)

    def _read(self, body: Any, push: Push) -> list[Signal]:
        raw = push.body.decode("utf-8", "replace")[: BODY_BYTES_AT_MOST // 4]
        heard, signals = self._heard(), list[Signal]()
        items = read_items(body, self._map, subject=self.settings.subject, null_target=self._null)
        for each in items:
            if isinstance(each, GridawareError):
                self.context.refuse(each, raw)
                continue
            revision = _next_revision(each, heard, push)
            signals.append(
                Signal(
                    self.context.feed_id,
                    each.source_id,
                    revision,
                    push.received_at,
                    push.received_seconds,
                    each.request,
                    raw,
                )
            )
        self.context.memory.put("heard", _newest(heard))
        return signals

    def _heard(self) -> dict[str, list[Any]]:
        """Source id → [revision, digest of what it asks, URL to tell]."""
        kept = self.context.memory.get("heard")
        return kept if isinstance(kept, dict) else {}


def _next_revision(each: Mapped, heard: dict[str, list[Any]], push: Push) -> int:
    shown = Signal("x", each.source_id, 0, push.received_at, 0.0, each.request)
    digest = base64.b64encode(
        hashlib.sha256(json.dumps(event_to_json(shown), sort_keys=True).encode()).digest()[:12]
    ).decode()
    before = heard.get(each.source_id)
    if each.revision is not None:
        revision = each.revision
    elif before is None:
        revision = 0
    else:
        revision = before[0] + (before[1] != digest)
    heard.pop(each.source_id, None)  # the oldest is the one that was said longest ago
    heard[each.source_id] = [revision, digest, each.status_url or (before and before[2])]
    return revision


def _newest(heard: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """As many of the newest as are remembered."""
    kept, size = list[str](), 0
    for name in reversed(heard):
        size += len(json.dumps([name, heard[name]]))
        if len(kept) >= REMEMBERED_AT_MOST or size > REMEMBERED_BYTES_AT_MOST:
            break
        kept.append(name)
    return {name: heard[name] for name in reversed(kept)}


def _map_of(settings: MappedSettings) -> FieldMap:
    if isinstance(settings.map, str):
        return shipped_map(settings.map)
    return read_map(settings.map)


def _null_target(settings: MappedSettings) -> TargetSpec | None:
    return None if settings.null_target is None else target_from_mapping(settings.null_target)
