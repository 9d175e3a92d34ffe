"""The word, the lines and the names of GPUs."""

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridaware.domain.errors import InvalidInput
from gridaware.domain.jobword import (
    LINE_BYTES,
    WORD_BYTES,
    Action,
    LeaveAnswer,
    Leaving,
    Progress,
    Refusal,
    Register,
    Registered,
    Rejected,
    SavedLine,
    Word,
    decode_line,
    encode_line,
    read_word,
    resolve_gpus,
    visible_devices,
    word_sequence,
    write_word,
)

WORD = Word(7, Action.PAUSE, 1234.5, "request-1", "the grid is short of power")


def written(*words: Word) -> bytearray:
    memory = bytearray(WORD_BYTES)
    for word in words:
        write_word(memoryview(memory), word)
    return memory


@given(
    sequence=st.integers(0, 2**64 - 1),
    action=st.sampled_from(Action),
    deadline=st.floats(allow_nan=False),
    reason=st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=160),
)
@settings(max_examples=50)
def test_what_the_agent_writes_is_what_the_job_reads(sequence, action, deadline, reason) -> None:
    word = Word(sequence, action, deadline, "r-1", reason)
    memory = memoryview(written(WORD, word))
    assert read_word(memory) == word
    assert word_sequence(memory) == sequence


def test_the_sequence_is_the_second_aligned_number_of_the_page() -> None:
    """The job's fast path reads just these eight bytes."""
    assert struct.unpack_from("<Q", written(WORD), 8) == (7,)
    assert memoryview(written(WORD)).cast("Q")[1] == 7


def test_a_record_newer_than_its_header_is_not_believed() -> None:
    """The writer got as far as the record: the header still has the old sequence."""
    old, new = written(WORD), written(WORD, Word(8, Action.NONE))
    torn = new[:]
    torn[:16] = old[:16]
    assert read_word(memoryview(torn)) is None


def test_a_header_that_was_seen_before_its_record_is_not_believed() -> None:
    """Stores may be seen in another order on some processors."""
    old, new = written(WORD), written(WORD, Word(8, Action.NONE))
    torn = old[:]
    torn[:16] = new[:16]
    assert read_word(memoryview(torn)) is None


@pytest.mark.parametrize("at", [20, 24, 32, 40, 100, 200])
def test_a_half_written_record_is_not_believed(at: int) -> None:
    memory = written(WORD)
    memory[at] ^= 0xFF
    assert read_word(memoryview(memory)) is None


def test_memory_that_is_no_word_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_word(memoryview(bytearray(WORD_BYTES)))
    assert caught.value.code == "word-foreign"


@pytest.mark.parametrize(
    "line",
    [
        Register("job-1", 3, 1, 4, ("0", "GPU-abc"), 30.0, 120),
        Register("job-1", 0),
        Progress(10, 2.5, "eval"),
        Progress(0, 0.0),
        SavedLine("r-1", "/data/step-10", 10),
        Refusal("r-1", "not now"),
        Leaving("r-1"),
        Registered(),
        Rejected("job-mismatch", "another job"),
        LeaveAnswer("r-1", go=False, message="withdrawn"),
    ],
)
def test_every_line_arrives_as_it_was_sent(line) -> None:
    raw = encode_line(line)
    assert raw.endswith(b"\n")
    assert raw.count(b"\n") == 1
    assert decode_line(raw) == line


def test_a_newer_peer_may_say_more() -> None:
    raw = json.dumps({"type": "leaving", "request_id": "r-1", "mood": "fine"}).encode()
    assert decode_line(raw) == Leaving("r-1")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b"7",
        b'{"type": "shutdown"}',
        b'{"type": 5}',
        b'{"type": ["register"]}',
        b'{"type": "leaving"}',
        b"[" * 5000,
        json.dumps({"type": "register", "job_id": "../etc", "attempt": 1}).encode(),
        json.dumps({"type": "register", "job_id": "a", "attempt": True}).encode(),
        json.dumps({"type": "register", "job_id": "a", "attempt": -1}).encode(),
        json.dumps({"type": "register", "job_id": "a", "attempt": 1, "gpus": "0,1"}).encode(),
        json.dumps({"type": "register", "job_id": "a", "attempt": 1, "gpus": ["0"] * 65}).encode(),
        b'{"type": "progress", "step": 1, "steps_per_second": NaN}',
        b'{"type": "progress", "step": 1, "steps_per_second": Infinity}',
        b'{"type": "progress", "step": 1e3, "steps_per_second": 1}',
        json.dumps({"type": "saved", "request_id": "r", "path": "x" * 5000, "step": 1}).encode(),
        b" " * (LINE_BYTES + 1),
    ],
)
def test_a_malformed_line_is_refused_with_a_stable_code(body: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode_line(body)
    assert caught.value.code in {"line-malformed", "job-id-malformed"}


@pytest.mark.parametrize(
    ("variable", "devices"),
    [
        (None, ()),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0", ("0",)),
        ("2, 0,1", ("2", "0", "1")),
        ("0,1,-1,2", ("0", "1")),
        ("0,,2", ("0",)),
        ("GPU-8932f937,GPU-d72c", ("GPU-8932f937", "GPU-d72c")),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(variable, devices) -> None:
    assert visible_devices(variable) == devices


BOARDS = ("GPU-8932f937-d72c-4106", "GPU-8932aaaa-0000-0000", "GPU-1111bbbb-0000-0000")


@pytest.mark.parametrize(
    ("devices", "found"),
    [
        (("0", "2"), (BOARDS[0], BOARDS[2])),
        (("2", "2"), (BOARDS[2],)),
        (("3",), ()),
        (("99999999999999999999",), ()),
        ((BOARDS[1],), (BOARDS[1],)),
        (("GPU-8932F937",), (BOARDS[0],)),
        (("GPU-8932",), ()),  # ambiguous
        (("MIG-GPU-8932f937-d72c-4106/1/0",), (BOARDS[0],)),  # the older form names its board
        (("MIG-8932f937-d72c-4106",), ()),  # the newer one does not share its board's UUID
    ],
)
def test_devices_are_the_boards_that_ray_means(devices, found) -> None:
    """ray#42138 (remapped indices), #43314 (UUIDs), #32778 (MIG)."""
    assert resolve_gpus(devices, BOARDS) == found


SLICES = {"MIG-4e1a0000-1111": BOARDS[1], "MIG-4e1a0000-2222": BOARDS[1], "MIG-77": BOARDS[2]}


@pytest.mark.parametrize(
    ("device", "found"),
    [
        ("MIG-4e1a0000-1111", (BOARDS[1],)),
        ("mig-4E1A0000-2222", (BOARDS[1],)),
        ("MIG-4e1a", (BOARDS[1],)),  # two slices of one board: the board is certain
        ("MIG-", ()),  # of more than one board
        ("MIG-GPU-1111bbbb-0000-0000/7/0", (BOARDS[2],)),
        ("MIG-4e1b", ()),
        ("PU-8932f937-d72c-4106", ()),  # what str.lstrip("MIG-G") would have left
    ],
)
def test_bug_06_codecarbon_lstrip_a_slice_names_its_board_by_prefix_not_by_letters(device, found):
    assert resolve_gpus((device,), BOARDS, SLICES) == found


@pytest.mark.parametrize("device", ["", "NoDevFiles", "-1", "none", "void", "MIG", "1.0", "²"])
def test_bug_07_zeus_109_words_that_mean_no_gpu_name_none(device) -> None:
    assert resolve_gpus((device,), BOARDS[:1], SLICES) == ()


def test_indices_count_within_the_boards_that_ray_was_given() -> None:
    """A node started with CUDA_VISIBLE_DEVICES=2,0 calls board 2 its GPU 0."""
    assert resolve_gpus(("0",), (BOARDS[2], BOARDS[0])) == (BOARDS[2],)


@pytest.mark.parametrize(
    ("variable", "owned"),
    [("2", (BOARDS[2],)), ("2,0", (BOARDS[2], BOARDS[0])), ("", ()), ("-1", ()), ("1,-1,0", None)],
)
def test_bug_05_codecarbon_712_only_the_boards_of_cuda_visible_devices_are_a_jobs(variable, owned):
    """CUDA takes what stands before the first word that names no device."""
    expected = (BOARDS[1],) if owned is None else owned
    assert resolve_gpus(visible_devices(variable) or (), BOARDS) == expected
