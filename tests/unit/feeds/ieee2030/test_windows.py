"""What stands when: random times, supersession within a program, primacy between programs."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gridaware.domain.signal import Quantity, TargetSpec
from gridaware.feeds.ieee2030.modes import Meaning, Mode
from gridaware.feeds.ieee2030.reading import Control, Status
from gridaware.feeds.ieee2030.windows import Piece, Program, Window, pieces_of, window_of
from gridaware.feeds.kind import Disposition

FOR_EVER = float("inf")


def mode(watts: float | None, name: str = "opModImpLimW") -> Mode:
    target = None if watts is None else TargetSpec(Quantity.LIMIT_WATTS, watts)
    return Mode(name, watts, "W", Meaning(Disposition.ACT, "asked for", target))


def control(
    start: int, end: int, created: int, *modes: Mode, status: int = Status.SCHEDULED
) -> Control:
    return Control(
        mrid="A1",
        description="",
        start=start,
        seconds=end - start,
        created=created,
        status=status,
        status_at=None,
        randomize_start=0,
        randomize_seconds=0,
        for_us=True,
        modes=modes,
        reply_to="",
        response_required=0,
        raw="",
    )


def drawn(value: float) -> Callable[[str], float]:
    return lambda _: value


def pieces(*controls: Control, primacy: int = 7) -> list[Piece]:
    named = {f"c{number}": each for number, each in enumerate(controls)}
    program = Program("P1", primacy, named, None, "default")
    windows = {}
    for name, each in named.items():
        window = window_of(each, drawn(0.0), FOR_EVER)
        if window is not None:
            windows[name] = window
    return pieces_of(program, windows, lambda _n, _b, newer: None if newer == FOR_EVER else newer)


def test_random_times_move_the_start_by_their_sign_and_stretch_the_duration() -> None:
    base = control(1000, 1600, 1, mode(1.0))
    spread = replace(base, randomize_start=-60, randomize_seconds=120)
    assert window_of(spread, drawn(0.0), FOR_EVER) == Window(1000, 1600)
    assert window_of(spread, drawn(0.5), FOR_EVER) == Window(970, 1630)  # 600 + 60 s from 970 on
    assert window_of(spread, drawn(1.0), FOR_EVER) == Window(940, 1660)
    shrunk = replace(base, seconds=60, randomize_seconds=-3600)
    assert window_of(shrunk, drawn(1.0), FOR_EVER) == Window(1000, 1001)


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.SUPERSEDED])
def test_what_was_cancelled_or_superseded_does_not_act(status: int) -> None:
    gone = control(1000, 1600, 1, mode(1.0), status=status)
    assert window_of(gone, drawn(0.5), 1100.0) is None


def test_a_random_cancellation_ends_within_the_larger_of_both_spreads() -> None:
    gone = replace(
        control(1000, 1600, 1, mode(1.0), status=Status.CANCELLED_RANDOMLY),
        randomize_start=-40,
        randomize_seconds=200,
    )
    assert gone.cancel_spread_seconds == 200
    only_cancel = {"start": 0.0, "duration": 0.0, "cancel": 0.5}
    assert window_of(gone, only_cancel.__getitem__, 1100.0) == Window(1000, 1200)
    assert window_of(gone, only_cancel.__getitem__, 1590.0) == Window(1000, 1600)
    assert window_of(gone, only_cancel.__getitem__, 900.0) is None  # before it began


def test_the_newer_creation_ends_the_older_for_good() -> None:
    older, newer = control(1000, 2000, 1, mode(5.0)), control(1400, 1500, 2, mode(9.0))
    assert [(p.control, p.window, p.target.value) for p in pieces(older, newer)] == [
        ("c0", Window(1000, 1400), 5.0),
        ("c1", Window(1400, 1500), 9.0),
    ]
    assert [p.control for p in pieces(newer, older)] == ["c0", "c1"]  # whatever their order


def test_one_that_begins_within_a_newer_one_never_acts() -> None:
    older, newer = control(1000, 2000, 1, mode(5.0)), control(900, 1500, 2, mode(9.0))
    assert [p.control for p in pieces(older, newer)] == ["c1"]


def test_those_that_do_not_overlap_or_are_of_one_creation_leave_each_other_alone() -> None:
    assert len(pieces(control(0, 100, 1, mode(5.0)), control(100, 200, 2, mode(9.0)))) == 2
    same = pieces(control(0, 100, 1, mode(5.0)), control(50, 200, 1, mode(9.0)))
    assert [p.window for p in same] == [Window(0, 100), Window(50, 200)]  # the stricter holds


def test_a_newer_one_that_was_cancelled_supersedes_nothing() -> None:
    older = control(1000, 2000, 1, mode(5.0))
    newer = control(1400, 1500, 2, mode(9.0), status=Status.CANCELLED)
    assert [p.window for p in pieces(older, newer)] == [Window(1000, 2000)]


def test_supersession_is_of_what_both_bear_on() -> None:
    limit = control(1000, 2000, 1, mode(5.0))
    off = control(1200, 1400, 2, mode(0.0, "opModEnergize"))
    on = control(1300, 1500, 3, mode(None, "opModEnergize"))
    got = pieces(limit, off, on)
    assert [(p.control, p.window, p.priority) for p in got] == [
        ("c0", Window(1000, 2000), 7),
        ("c1", Window(1200, 1300), 0),  # before all others, until it is energized again
    ]


def test_primacy_is_the_priority() -> None:
    assert [p.priority for p in pieces(control(0, 9, 1, mode(5.0)), primacy=2)] == [2]


def test_a_control_for_other_devices_neither_acts_nor_supersedes() -> None:
    ours = control(0, 100, 1, mode(5.0))
    theirs = replace(control(10, 100, 2, mode(1.0)), for_us=False)
    assert [p.window for p in pieces(ours, theirs)] == [Window(0, 100)]
