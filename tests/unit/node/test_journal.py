"""The journal: whole or not at all, and never silently wrong."""

from datetime import UTC, datetime

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


def test_any_flipped_byte_is_noticed_and_the_file_is_kept_for_a_person(tmp_path):
    journal = Journal(tmp_path)
    journal.save(RECORD, durable=False)
    whole = journal.path.read_bytes()
    for place in range(0, len(whole), 7):
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
