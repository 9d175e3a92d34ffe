"""The reading end of the store: short transactions that never hold up the writer.

Bodies are handed on as the JSON bytes that are stored; nobody parses them on the way.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, RowMapping, case, func, select

from gridaware.domain.errors import InvalidInput, NotFound
from gridaware.domain.reading import Quality
from gridaware.store.chain import LedgerEntry, read_entries
from gridaware.store.database import open_engine, require_schema, translated
from gridaware.store.schema import controller, document, energy, series
from gridaware.store.times import epoch_milliseconds, instant_of

__all__ = ["Change", "EnergySum", "Page", "PowerBucket", "StoreReader"]

_QUALITIES = (Quality.GOOD, Quality.HELD, Quality.SUSPECT, Quality.MISSING)
MOST_PER_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Page:
    """One page of documents, newest first; ``next_cursor`` None on the last."""

    bodies: tuple[bytes, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """A document as it is now; ``body`` None where it was removed."""

    version: int
    kind: str
    document_id: str
    state: str
    body: bytes | None


@dataclass(frozen=True, slots=True)
class PowerBucket:
    """Power over one step: least, mean and greatest of its points, watts.

    Watts are None where no point had any. ``quality`` is the worst of the points.
    """

    at: datetime
    min_watts: float | None
    mean_watts: float | None
    max_watts: float | None
    points: int
    quality: str


@dataclass(frozen=True, slots=True)
class EnergySum:
    """Energy of one subject on one line over one or more periods."""

    line: str
    """``meter``, ``gpu``, or a line of the attribution (``job``, ``held_idle``, …)."""
    subject: str
    team: str
    tier: str
    method: str
    flags: str
    """Separated by spaces."""
    gpus: int
    """The most it had."""
    joules: float
    band_joules: float
    seconds: float
    covered_seconds: float
    start: datetime
    end: datetime


class StoreReader:
    """Read access for the web process, reports and exports; safe from any thread."""

    def __init__(self, location: str) -> None:
        """Open the store at ``location`` (SQLite path or URL).

        Raises:
            ConfigError: it is damaged, or made by a newer gridaware.
            Unavailable: there is none yet, or it does not answer.
        """
        self._engine = open_engine(location, writing=False)
        require_schema(self._engine)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def list(
        self,
        kind: str,
        *,
        states: Collection[str] = (),
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Documents of one kind, newest first, in these states (none given = all).

        The next page starts after the last document of this one, whatever was added meanwhile.

        Raises:
            InvalidInput: the cursor is none of ours, or the limit is out of range.
        """
        if not 1 <= limit <= MOST_PER_PAGE:
            raise InvalidInput("limit-range", f"the limit must be 1 to {MOST_PER_PAGE}")
        before = None if cursor is None else _cursor(cursor)
        with self._reading("list documents") as connection:
            return _page(connection, kind, states, before, limit)

    def version(self, kind: str, after: int = 0) -> tuple[int, int]:
        """The newest version of all documents, and of those of a kind; only what is later counts.

        Both are ``after`` where nothing has changed since that version: then nothing is searched.
        """
        columns = document.c
        of_kind = func.max(case((columns.kind == kind, columns.version), else_=after))
        query = select(func.max(columns.version), of_kind).where(columns.version > after)
        with self._reading("read the version") as connection:
            newest, newest_of_kind = connection.execute(query).one()
        return newest or after, newest_of_kind or after

    def state(self, kinds: Collection[str], limit: int) -> tuple[int, dict[str, Page]]:
        """The newest documents of each kind and the version they belong to, at one instant."""
        with self._reading("read the state") as connection:
            version = connection.execute(select(func.max(document.c.version))).scalar() or 0
            return version, {kind: _page(connection, kind, (), None, limit) for kind in kinds}

    def get(self, kind: str, document_id: str) -> bytes:
        """One document's body.

        Raises:
            NotFound: there is none (``<kind>-unknown``).
        """
        query = select(document.c.body).where(document.c.kind == kind, document.c.id == document_id)
        with self._reading("read a document") as connection:
            body = connection.execute(query).scalar()
        if body is None:
            raise NotFound(
                f"{kind}-unknown", f"there is no {kind} {document_id[:160]!r}", id=document_id[:160]
            )
        return bytes(body)

    def changes(
        self, after: int, *, kinds: Collection[str] = (), limit: int = MOST_PER_PAGE
    ) -> tuple[Change, ...]:
        """Documents that changed after a version, in the order of their last change."""
        columns = document.c
        query = (
            select(columns.version, columns.kind, columns.id, columns.state, columns.body)
            .where(columns.version > after)
            .order_by(columns.version)
            .limit(limit)
        )
        if kinds:
            query = query.where(columns.kind.in_(tuple(kinds)))
        with self._reading("read changes") as connection:
            return tuple(Change(*row) for row in connection.execute(query))

    def power(
        self, name: str, start: datetime, end: datetime, step_seconds: float
    ) -> tuple[PowerBucket, ...]:
        """One series in ``[start, end)`` by steps, aligned to multiples of the step since 1970.

        Steps without a point are left out.
        """
        step = max(int(step_seconds * 1000), 1)
        columns = series.c
        bucket: ColumnElement[int] = columns.at - columns.at % step
        rank = case({q.value: i for i, q in enumerate(_QUALITIES)}, value=columns.quality, else_=2)
        query = (
            select(
                bucket,
                func.min(columns.watts),
                func.avg(columns.watts),
                func.max(columns.watts),
                func.count(),
                func.max(rank),
            )
            .where(
                columns.series == name,
                columns.at >= epoch_milliseconds(start),
                columns.at < epoch_milliseconds(end),
            )
            .group_by(bucket)
            .order_by(bucket)
        )
        with self._reading("read a series") as connection:
            rows = connection.execute(query).all()
        return tuple(
            PowerBucket(instant_of(at), least, mean, greatest, points, _QUALITIES[worst].value)
            for at, least, mean, greatest, points, worst in rows
        )

    def latest_power(self, name: str) -> tuple[datetime, float | None, str] | None:
        """The newest point of a series: when, watts, quality; None where it has none."""
        columns = series.c
        query = (
            select(columns.at, columns.watts, columns.quality)
            .where(columns.series == name)
            .order_by(columns.at.desc())
            .limit(1)
        )
        with self._reading("read a series") as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else (instant_of(row.at), row.watts, row.quality)

    def energy(self, start: datetime, end: datetime) -> tuple[EnergySum, ...]:
        """Energy of the periods that lie within ``[start, end]``, summed by what tells them apart.

        One subject has several sums where its method or its flags changed.
        """
        columns = energy.c
        keys = (
            columns.line,
            columns.subject,
            columns.team,
            columns.tier,
            columns.method,
            columns.flags,
        )
        query = (
            select(
                *keys,
                func.max(columns.gpus).label("gpus"),
                func.sum(columns.joules).label("joules"),
                func.sum(columns.band_joules).label("band_joules"),
                func.sum(columns.seconds).label("seconds"),
                func.sum(columns.covered_seconds).label("covered_seconds"),
                func.min(columns.start_at).label("start"),
                func.max(columns.end_at).label("end"),
            )
            .where(
                columns.start_at >= epoch_milliseconds(start),
                columns.end_at <= epoch_milliseconds(end),
            )
            .group_by(*keys)
            .order_by(*keys)
        )
        with self._reading("read the energy") as connection:
            rows = connection.execute(query).all()
        return tuple(_energy_sum(row._mapping) for row in rows)

    def ledger(
        self, from_seq: int = 1, kinds: Collection[str] = (), limit: int = 100
    ) -> tuple[LedgerEntry, ...]:
        """Entries of the ledger from ``from_seq`` on, of these kinds (none given = all)."""
        with self._reading("read the ledger") as connection:
            return tuple(read_entries(connection, from_seq=from_seq, kinds=kinds, limit=limit))

    def controller_heartbeat(self) -> tuple[int, datetime] | None:
        """Epoch and last sign of life of the newest controller; None before the first."""
        query = (
            select(controller.c.epoch, controller.c.heartbeat_at)
            .order_by(controller.c.epoch.desc())
            .limit(1)
        )
        with self._reading("read the controller's heartbeat") as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else (row.epoch, datetime.fromisoformat(row.heartbeat_at))

    @contextmanager
    def _reading(self, action: str) -> Iterator[Connection]:
        with translated(action), self._engine.connect() as connection:
            yield connection


def _page(
    connection: Connection, kind: str, states: Collection[str], before: int | None, limit: int
) -> Page:
    columns = document.c
    query = select(columns.body, columns.created).where(
        columns.kind == kind, columns.body.is_not(None)
    )
    if states:
        query = query.where(columns.state.in_(tuple(states)))
    if before is not None:
        query = query.where(columns.created < before)
    rows = connection.execute(query.order_by(columns.created.desc()).limit(limit + 1)).all()
    more = len(rows) > limit
    rows = rows[:limit]
    return Page(tuple(row.body for row in rows), str(rows[-1].created) if more else None)


def _cursor(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidInput("cursor-malformed", "the cursor is not one of ours")
    return int(text)


def _energy_sum(row: RowMapping) -> EnergySum:
    bounds = {"start": instant_of(row["start"]), "end": instant_of(row["end"])}
    return EnergySum(**{**row, **bounds})
