"""The journal: whole or not at all, and never silently wrong."""

from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256

import msgspec
import pytest

from gridaware.domain.errors import InvalidInput, Unavailable
from gridaware.domain.lease import Lease, RestoreSlot
from gridaware.node.actions import GpuRecord, JournalRecord
from gridaware.node.journal import Journal, load

RECORD = JournalRecord(
    "boot",
    "epoch",
    3,
    17,
    "d17",
    Lease("l", (("GPU-a", 200.0),), 60.0, RestoreSlot(1.0, 2.0)),
    1234.5,
    datetime(2026, 3, 1, tzinfo=UTC),
    None,
    False,
    (("GPU-a", 300.0),),
    (GpuRecord("GPU-a", 350.0, (350.0, 200.0), None),),
)


@pytest.mark.parametrize("durable", [True, False])
def test_what_was_written_is_read_back(tmp_path, durable):
    journal = Journal(tmp_path)
    assert load(journal) is None
    journal.save(RECORD, durable=durable)
    journal.sync()
    assert load(Journal(tmp_path)) == RECORD


def test_a_write_that_was_cut_short_leaves_the_earlier_record(tmp_path):
    journal = Journal(tmp_path)
    journal.save(RECORD, durable=True)
    (tmp_path / "journal.next").write_bytes(journal.path.read_bytes()[:50])
    assert load(Journal(tmp_path)) == RECORD


def test_records_are_written_over_one_another_without_another_file(tmp_path):
    journal = Journal(tmp_path)
    journal.save(RECORD, durable=True)
    inode = journal.path.stat().st_ino
    for sequence in range(18, 25):
        journal.save(replace(RECORD, sequence=sequence), durable=False)
        assert load(Journal(tmp_path)) == replace(RECORD, sequence=sequence)
    assert journal.path.stat().st_ino == inode
    long = replace(RECORD, decision_id="d" * 40_000)
    journal.save(long, durable=False)
    assert load(Journal(tmp_path)) == long


def test_a_process_that_is_killed_between_record_and_header_leaves_the_earlier_record(tmp_path):
    journal = Journal(tmp_path)
    journal.save(RECORD, durable=False)
    before = journal.path.read_bytes()
    journal.save(replace(RECORD, sequence=18), durable=False)
    after = journal.path.read_bytes()
    journal.path.write_bytes(before[:4096] + after[4096:])
    assert load(Journal(tmp_path)) == RECORD


def test_a_journal_that_somebody_removed_is_made_anew(tmp_path):
    journal = Journal(tmp_path)
    journal.save(RECORD, durable=False)
    journal.path.unlink()
    journal.save(replace(RECORD, sequence=18), durable=False)
    assert load(Journal(tmp_path)) == replace(RECORD, sequence=18)


def test_a_journal_of_the_version_before_is_read(tmp_path):
    body = msgspec.json.encode(RECORD)
    whole = b"GWJRNL01" + sha256(body).digest() + body
    (tmp_path / "journal").write_bytes(whole)
    assert load(Journal(tmp_path)) == RECORD
    (tmp_path / "journal").write_bytes(whole[:-1])
    with pytest.raises(InvalidInput):
        load(Journal(tmp_path))


def test_any_flipped_byte_is_noticed_and_the_file_is_kept_for_a_person(tmp_path):
    journal = Journal(tmp_path)
    journal.save(RECORD, durable=False)
    whole = journal.path.read_bytes()
    record = whole.index(b'{"boot_id"')
    written = [*range(88), *range(record, whole.index(b"\0", record))]  # header, record
    for place in written[::3]:
        spoilt = bytearray(whole)
        spoilt[place] ^= 0x20
        journal.path.write_bytes(spoilt)
        with pytest.raises(InvalidInput) as refused:
            load(journal)
        assert refused.value.code in {"journal-corrupt", "journal-version"}
    assert journal.set_aside().name == "journal.bad-0"
    journal.save(RECORD, durable=False)
    assert journal.set_aside().name == "journal.bad-1"
    assert load(journal) is None


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "journal-corrupt"),
        (b"GWJRNL99" + b"x" * 99, "journal-version"),
        (b"{}", "journal-corrupt"),
    ],
)
def test_an_empty_foreign_or_later_journal_is_refused(tmp_path, content, code):
    journal = Journal(tmp_path)
    journal.path.write_bytes(content)
    with pytest.raises(InvalidInput) as refused:
        load(journal)
    assert refused.value.code == code


def test_a_disk_that_refuses_is_said_so(tmp_path):
    journal = Journal(tmp_path / "gone")
    with pytest.raises(Unavailable) as refused:
        journal.save(RECORD, durable=True)
    assert refused.value.code == "journal-write"
