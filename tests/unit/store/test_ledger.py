"""The ledger: order, durability, and a chain that anybody can check with SHA-256 alone."""

import asyncio
import hashlib
import json
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum

import pytest

from gridaware.domain.errors import Bug, ConfigError, InvalidInput, Unavailable
from gridaware.store.chain import BrokenChain
from gridaware.store.controller import ControllerStore


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Thing:
    watts: float
    colour: Colour
    at: datetime


def _rows(path: str) -> list[tuple]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT seq, at, kind, body, prev_hash, hash FROM ledger ORDER BY seq"
        ).fetchall()
    connection.close()
    return rows


def _check_by_hand(path: str, site: str) -> int:
    """The chain, computed from the definition with hashlib and sqlite3 alone."""
    previous = hashlib.sha256(f"gridaware-ledger-1:{site}".encode()).hexdigest()
    for count, (seq, at, kind, body, prev_hash, digest) in enumerate(_rows(path), start=1):
        assert (seq, prev_hash) == (count, previous)
        lines = "\n".join([previous, str(seq), at, kind, body])
        previous = hashlib.sha256(lines.encode()).hexdigest()
        assert digest == previous
    return len(_rows(path))


def _forge(path: str, *statements: str) -> None:
    """Change the file behind the store's back, as an intruder with write access would."""
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER ledger_no_update")
    connection.execute("DROP TRIGGER ledger_no_delete")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.fixture
def five_entries(store, store_path, noon):
    for number in range(1, 6):
        store.ledger.append("decision", {"number": number}, noon + timedelta(seconds=number))
    store.ledger.flush()
    return store_path


def test_every_hash_equals_one_computed_from_the_definition(store, five_entries):
    assert _check_by_hand(five_entries, "dc-1") == 5
    assert store.ledger.verify() == 5


def test_bodies_are_canonical_json_of_what_was_given(store, store_path, noon):
    body = {"z": 1, "a": Thing(12.5, Colour.RED, noon), "nan": float("nan")}
    store.ledger.append("decision", body, noon.astimezone(timezone(timedelta(hours=9))))
    store.ledger.flush()
    [(_, at, _, text, _, _)] = _rows(store_path)
    assert at == "2026-11-30T12:00:00.000000Z"
    assert text == (
        '{"a":{"at":"2026-11-30T12:00:00Z","colour":"red","watts":12.5},"nan":null,"z":1}'
    )


def test_a_body_changed_after_the_append_does_not_change_the_entry(store, store_path, noon):
    body = {"watts": [1]}
    store.ledger.append("decision", body, noon)
    body["watts"].append(2)
    store.ledger.flush()
    assert json.loads(_rows(store_path)[0][3]) == {"watts": [1]}


@pytest.mark.parametrize(
    ("body", "kind"), [({"a": "\ud800"}, InvalidInput), ({"a": object()}, Bug)]
)
def test_a_body_without_a_json_form_is_refused_and_takes_no_number(store, noon, body, kind):
    with pytest.raises(kind):
        store.ledger.append("decision", body, noon)
    assert store.ledger.append("decision", {}, noon) == 1


def test_an_instant_without_a_zone_is_refused(store):
    with pytest.raises(InvalidInput) as caught:
        store.ledger.append("decision", {}, datetime(2026, 1, 1))  # noqa: DTZ001
    assert caught.value.code == "time-naive"
    assert store.ledger.last_seq == 0


@pytest.mark.parametrize("change", ["UPDATE ledger SET kind = 'x'", "DELETE FROM ledger"])
def test_the_database_itself_refuses_to_change_the_ledger(five_entries, change):
    connection = sqlite3.connect(five_entries)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(change)
    connection.close()


@pytest.mark.parametrize(
    ("forgery", "code", "seq"),
    [
        ("UPDATE ledger SET body = '{\"number\":9}' WHERE seq = 3", "ledger-altered", 3),
        ("UPDATE ledger SET at = '2026-11-30T12:00:09.000000Z' WHERE seq = 4", "ledger-altered", 4),
        ("UPDATE ledger SET kind = 'signal' WHERE seq = 1", "ledger-altered", 1),
        ("DELETE FROM ledger WHERE seq = 2", "ledger-gap", 2),
        ("DELETE FROM ledger WHERE seq = 1", "ledger-gap", 1),
        ("UPDATE ledger SET hash = prev_hash WHERE seq = 5", "ledger-altered", 5),
        (
            "INSERT INTO ledger SELECT 0, at, kind, body, prev_hash, hash FROM ledger LIMIT 1",
            "ledger-gap",
            1,
        ),
    ],
)
def test_a_forged_ledger_names_its_first_bad_entry(store, five_entries, forgery, code, seq):
    _forge(five_entries, forgery)
    with pytest.raises(BrokenChain) as caught:
        store.ledger.verify()
    assert (caught.value.code, caught.value.facts["seq"]) == (code, seq)


def test_an_entry_sealed_anew_breaks_the_link_of_the_next(store, five_entries):
    _, at, kind, _, previous, _ = _rows(five_entries)[2]
    body = '{"number":9}'
    digest = hashlib.sha256(f"{previous}\n3\n{at}\n{kind}\n{body}".encode()).hexdigest()
    _forge(five_entries, f"UPDATE ledger SET body = '{body}', hash = '{digest}' WHERE seq = 3")
    with pytest.raises(BrokenChain) as caught:
        store.ledger.verify()
    assert (caught.value.code, caught.value.facts["seq"]) == ("ledger-unlinked", 4)


def test_entries_of_many_threads_form_one_chain_without_gaps(store, store_path, noon):
    def work(name: int) -> None:
        for number in range(200):
            store.ledger.append("decision", {"name": name, "number": number}, noon)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.ledger.flush()
    assert _check_by_hand(store_path, "dc-1") == 800
    for name in range(4):
        bodies = [json.loads(row[3]) for row in _rows(store_path)]
        assert [b["number"] for b in bodies if b["name"] == name] == list(range(200))


def test_a_signal_is_on_disk_once_durable_returns(store, store_path, noon):
    async def receive() -> list[int]:
        counts = []
        for _ in range(5):
            seq = store.ledger.append("signal", {}, noon)
            await store.ledger.durable(seq)
            counts.append(len(_rows(store_path)))
            await store.ledger.durable(seq)
        return counts

    assert asyncio.run(receive()) == [1, 2, 3, 4, 5]


def test_reading_selects_by_sequence_and_kind(store, noon):
    for number in range(10):
        store.ledger.append("even" if number % 2 == 0 else "odd", {"n": number}, noon)
    store.ledger.flush()
    found = store.ledger.read(from_seq=4, kinds=["odd"], limit=2)
    assert [(e.seq, e.kind, e.body) for e in found] == [
        (4, "odd", '{"n":3}'),
        (6, "odd", '{"n":5}'),
    ]


def test_a_full_disk_delays_entries_and_loses_none(store, store_path, noon):
    store.ledger.append("decision", {"number": 0}, noon)
    store.ledger.flush()
    with store._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    store.ledger.append("decision", {"number": 1, "text": "x" * 100_000}, noon)
    with pytest.raises(Unavailable) as caught:
        store.ledger.flush()
    assert caught.value.code == "store-full"
    assert store.ledger.failure is caught.value
    with pytest.raises(Unavailable):
        store.ledger.append("signal", {"number": -1}, noon, must=True)
    assert store.ledger.append("decision", {"number": 2}, noon) == 3, "it waits in its place"
    with pytest.raises(Unavailable):
        asyncio.run(store.ledger.durable(2))
    assert [row[0] for row in _rows(store_path)] == [1]

    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    store.ledger.flush()
    assert store.ledger.failure is None
    assert store.ledger.append("signal", {"number": 3}, noon, must=True) == 4
    store.ledger.flush()
    assert [json.loads(row[3])["number"] for row in _rows(store_path)] == [0, 1, 2, 3]
    assert _check_by_hand(store_path, "dc-1") == 4


def test_closing_on_a_full_disk_says_what_is_lost(store_path, noon):
    store = ControllerStore(store_path, site_id="dc-1", started_at=noon)
    with store._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    store.ledger.append("decision", {"text": "x" * 100_000}, noon)
    with pytest.raises(Unavailable) as caught:
        store.close()
    assert caught.value.code == "store-full"
    ControllerStore(store_path, site_id="dc-1", started_at=noon).close()  # the lock is free


def test_closing_commits_and_the_chain_goes_on_at_the_next_start(store_path, noon):
    for start in range(3):
        store = ControllerStore(store_path, site_id="dc-1", started_at=noon)
        assert store.ledger.last_seq == start
        store.ledger.append("decision", {"start": start}, noon)
        store.close()
        with pytest.raises(Unavailable) as caught:
            store.ledger.append("decision", {}, noon)
        assert caught.value.code == "store-closed"
    assert _check_by_hand(store_path, "dc-1") == 3


def test_the_ledger_of_another_site_is_refused(store_path, noon):
    store = ControllerStore(store_path, site_id="dc-1", started_at=noon)
    store.ledger.append("decision", {}, noon)
    store.close()
    with pytest.raises(ConfigError) as caught:
        ControllerStore(store_path, site_id="dc-2", started_at=noon)
    assert caught.value.code == "store-wrong-site"


_WRITER_TO_BE_KILLED = """
import sys
from datetime import UTC, datetime
from gridaware.store.controller import ControllerStore
store = ControllerStore(sys.argv[1], site_id="dc-1", started_at=datetime(2026, 1, 1, tzinfo=UTC))
while True:
    for _ in range(7):
        seq = store.ledger.append("decision", {"pad": "x" * 500}, datetime(2026, 1, 1, tzinfo=UTC))
    store.ledger.flush()
    print(seq, flush=True)
    store.ledger.append("decision", {"never": "waited for"}, datetime(2026, 1, 1, tzinfo=UTC))
"""


def test_kill_9_in_the_middle_leaves_a_valid_prefix_with_all_that_was_durable(store_path):
    child = subprocess.Popen(
        [sys.executable, "-c", _WRITER_TO_BE_KILLED, store_path], stdout=subprocess.PIPE, text=True
    )
    durable = 0
    for line in child.stdout:
        durable = int(line)
        if durable > 300:
            child.send_signal(signal.SIGKILL)
            break
    durable = max([durable, *map(int, child.stdout.read().split("\n")[:-1])])
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL
    store = ControllerStore(store_path, site_id="dc-1", started_at=datetime(2026, 1, 2, tzinfo=UTC))
    assert store.epoch == 2
    assert store.ledger.verify() == store.ledger.last_seq >= durable > 300
    store.close()
    assert _check_by_hand(store_path, "dc-1") >= durable
