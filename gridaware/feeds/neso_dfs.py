"""``neso_dfs``: requirements of GB's Demand Flexibility Service, from NESO's data portal (CKAN).

A requirement invites bids, and is no dispatch: by default it informs. Where the settings say so a
requirement acts, or better an accepted bid of the site's own unit, from the table of bids.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from pydantic import Field, field_validator

from gridaware.domain.advisory import Advisory, AdvisoryQuality
from gridaware.domain.errors import InvalidInput
from gridaware.domain.eventjson import target_from_mapping
from gridaware.domain.signal import EventKind, EventRequest, Signal
from gridaware.feeds.conditions import Asking
from gridaware.feeds.kind import (
    FEED_KINDS,
    Disposition,
    Feed,
    FeedContext,
    Parsed,
    ParsedRow,
    PolledSettings,
    RefusedPart,
)
from gridaware.feeds.neso_windows import Window, read_rows, read_window
from gridaware.feeds.page_values import json_page, public_url
from gridaware.feeds.pages import Rate, Read, page_of
from gridaware.feeds.revisions import Heard
from gridaware.feeds.vanish import Missing, cancelled_by

__all__ = ["NesoDfs", "NesoDfsSettings"]

BASE_URL = "https://api.neso.energy/api/3/action"
REQUIREMENTS = "3635fd80-49d7-4d02-964d-cc8c08d50302"
"""The table of requirements from April 2026 on."""
LEAST_SECONDS = 30.0
"""NESO's rule: two datastore searches a minute, of all tables together; it blocks by address."""
ROWS_AT_MOST = 200


class DfsActs(Asking):
    """What is asked for in a window, and which windows count."""

    unit_id: str | None = Field(default=None, min_length=1, max_length=60)
    """Only accepted bids of this DFS unit; `resource_id` is then the table of bids."""
    participant: str | None = Field(default=None, min_length=1, max_length=120)
    """Only requirements that this registered participant may bid for."""
    zone: int | None = Field(default=None, ge=1, le=99)
    """Only requirements that want something of this zone."""
    least_price: float | None = Field(default=None, ge=0, le=100_000)
    """Only requirements that guarantee as much, GBP/MWh."""
    tests: bool = False
    """Test events of the service act too, as tests."""


class NesoDfsSettings(PolledSettings):
    """Settings of the service's windows."""

    poll_seconds: float = Field(default=60.0, ge=40.0, le=3600)
    base_url: str = Field(default=BASE_URL, max_length=500)
    resource_id: str = Field(default=REQUIREMENTS, pattern=r"^[0-9a-f-]{36}$")
    """The CKAN table: it changes with the service's seasons."""
    acts: DfsActs | None = None
    """None = windows only inform."""

    @field_validator("base_url")
    @classmethod
    def _secure(cls, value: str) -> str:
        return public_url(value).rstrip("/")


@FEED_KINDS.register("neso_dfs")
class NesoDfs(Feed[NesoDfsSettings]):
    """Reads the newest rows of one table."""

    settings_model = NesoDfsSettings

    def __init__(self, context: FeedContext, settings: NesoDfsSettings) -> None:
        super().__init__(context, settings)
        self._lock = threading.Lock()
        """A person's `feed test` may poll at the same moment."""
        self._missing = Missing()
        self._refused: set[str] = set()
        self._page = page_of(context.clock, _url(settings), Rate(settings.base_url, LEAST_SECONDS))

    def poll(self) -> Sequence[Signal]:
        """The windows that act and are not over.

        Raises:
            Unavailable: the table could not be read: nothing is concluded.
        """
        with self._lock:
            found, read = self._page.read(lambda read: (read_rows(json_page(read.body)), read))
            windows = self._windows(found)
            now = self.context.clock.wall()
            for window, _ in windows.values():
                if window.end > now:
                    for advisory in window_told(window, self.context.feed_id, now):
                        self.context.advise(advisory)
            # A row that cannot be read may be any; an empty table is being written anew.
            complete = bool(found) and not self._refused
            return self._signals(windows, read, complete=complete, now=now)

    @classmethod
    def parse(cls, body: bytes, now: datetime, settings: NesoDfsSettings | None) -> Parsed:
        """An answer of the data portal, from a file.

        Raises:
            InvalidInput: it is none.
        """
        acts = (settings or NesoDfsSettings()).acts
        told, refused = [], []
        for number, row in enumerate(read_rows(json_page(body))):
            try:
                told.append(_row(read_window(row), acts, now))
            except InvalidInput as error:
                refused.append(RefusedPart(f"record {number}", error.code, error.message))
        return Parsed(tuple(told), tuple(refused))

    # ------------------------------------------------------------------------------------------

    def _windows(self, found: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Window, str]]:
        """By name; the table has the newest row first. A row that cannot be read is told once."""
        windows: dict[str, tuple[Window, str]] = {}
        refused = set()
        for row in found:
            raw = json.dumps(row)[:4096]
            try:
                window = read_window(row)
            except InvalidInput as error:
                refused.add(raw)
                if raw not in self._refused:
                    self.context.refuse(error, raw)
                continue
            windows.setdefault(window.name, (window, raw))
        self._refused = refused
        return windows

    def _signals(
        self,
        windows: Mapping[str, tuple[Window, str]],
        read: Read,
        *,
        complete: bool,
        now: datetime,
    ) -> list[Signal]:
        """What stands, and what was taken back: by its row, or because its row is gone."""
        acts, heard = self.settings.acts, Heard(self.context.memory, _url(self.settings))
        asked: dict[str, EventRequest] = {}
        for name, (window, _) in windows.items():
            if acts is not None and window.end > now and not refusal(window, acts):
                asked[name] = _request(window, acts)
                heard.meet(name, now)
                heard.ask(name, name, asked[name])
        witness = self.settings.resource_id if complete else None
        heard.seen([name for name in windows if name in heard.seen_under], witness)
        gone = set(
            cancelled_by(self._missing, heard.seen_under, windows, witness, read.received_seconds)
        )
        gone |= {name for name in heard.asks() if name in windows and name not in asked}
        for name in gone:
            if name in heard.asks():
                heard.take_back(name)
            heard.forget_event(name)
        heard.keep(now, windows)
        signals = []
        for name, ask in heard.asks().items():
            over = ask.end is not None and ask.end <= now
            if over or not (ask.taken_back or name in asked):
                continue
            request = None if ask.taken_back else asked[name]
            raw = windows[name][1] if name in windows else "the row is gone"
            signals.append(
                Signal(
                    self.context.feed_id,
                    name,
                    ask.revision,
                    read.received_at,
                    read.received_seconds,
                    request,
                    raw,
                )
            )
        return signals


def refusal(window: Window, acts: DfsActs) -> str:
    """Why a window does not act; empty = it does."""
    if window.upwards:
        return "more demand is wanted, not less"
    if window.service not in {"live", "test"} or (window.service == "test" and not acts.tests):
        return f"its type is {window.service or 'unknown'}"
    if acts.unit_id is not None:
        if window.unit != acts.unit_id or window.status != "accepted":
            return f"no accepted bid of {acts.unit_id}"
    elif window.unit or window.status:
        return "a bid, and no unit_id is set"
    if window.megawatts is not None and window.megawatts <= 0:
        return "nothing is wanted"
    if acts.participant is not None and acts.participant.lower() not in window.participants:
        return f"{acts.participant} may not bid"
    if acts.zone is not None and not (window.zone_megawatts or {}).get(acts.zone):
        return f"nothing is wanted of zone {acts.zone}"
    price = window.price_gbp_per_mwh
    if acts.least_price is not None and (price is None or price < acts.least_price):
        return f"less than {acts.least_price:g} GBP/MWh is guaranteed"
    return ""


def window_told(window: Window, feed_id: str, now: datetime) -> list[Advisory]:
    """What a window informs of."""
    wanted = "more demand" if window.upwards else "less demand"
    text = f"{window.service or 'unknown type'}, {wanted}"
    if window.unit:
        text = f"bid of {window.unit}: {window.status or 'unknown'}; {text}"
    values: list[tuple[str, float, str]] = []
    if window.megawatts is not None:
        quantity = "flexibility_bid_watts" if window.unit else "flexibility_requirement_watts"
        values.append((quantity, window.megawatts * 1e6, "W"))
    if window.price_gbp_per_mwh is not None:
        values.append(("price_per_mwh", window.price_gbp_per_mwh, "GBP/MWh"))
    return [
        Advisory(
            feed_id,
            window.name,
            quantity,
            value,
            unit,
            text,
            window.start,
            window.end,
            AdvisoryQuality.PUBLISHED,
            now,
        )
        for quantity, value, unit in values
    ]


def _request(window: Window, acts: DfsActs) -> EventRequest:
    kind = EventKind.TEST if window.service == "test" else EventKind(acts.kind)
    target = target_from_mapping(acts.target)
    return EventRequest(window.start, window.end, target, kind, acts.priority)


def _row(window: Window, acts: DfsActs | None, now: datetime) -> ParsedRow:
    reason = "a requirement invites bids" if acts is None else refusal(window, acts)
    disposition = Disposition.ADVISORY if reason else Disposition.ACT
    if disposition is Disposition.ACT and window.end <= now:
        disposition, reason = Disposition.REFUSED, "over before it was heard"
    target = None if acts is None or reason else target_from_mapping(acts.target)
    value = None if window.megawatts is None else window.megawatts * 1e6
    quantity = "flexibility_bid_watts" if window.unit else "flexibility_requirement_watts"
    return ParsedRow(
        window.name,
        window.start,
        window.end,
        quantity,
        value,
        disposition,
        reason or f"{window.service}, asked for",
        target,
    )


def _url(settings: NesoDfsSettings) -> str:
    query = f"resource_id={settings.resource_id}&limit={ROWS_AT_MOST}&sort=_id%20desc"
    if settings.acts is not None and settings.acts.unit_id is not None:
        query += f"&filters={quote(json.dumps({'DFS Unit ID': settings.acts.unit_id}), safe='')}"
    return f"{settings.base_url}/datastore_search?{query}"
