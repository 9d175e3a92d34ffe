"""What an agent says of its boards: once, until it changes."""

from gridaware.domain.fleet import BoardState, LimitRange, Smoothing
from gridaware.node.actions import Device, Inventory
from gridaware.node.boards import BoardNews, slices_of

RANGE = LimitRange(100.0, 400.0, 400.0)


def inventory(*boards: BoardState, can_set: bool = True) -> Inventory:
    devices = tuple(
        Device(f"g{i}", i, "m", RANGE, can_set, 400.0, 400.0, board=board)
        for i, board in enumerate(boards)
    )
    return Inventory("e", "gpu", devices)


def codes(faults) -> list[tuple[str, str]]:
    return [(fault.code, fault.gpu_id) for fault in faults]


def test_each_state_is_told_once_and_again_once_it_has_changed():
    news, off, on = BoardNews(), BoardState(persistence=False), BoardState(persistence=True)
    assert codes(news.faults(inventory(off, on))) == [("persistence-off", "g0")]
    assert news.faults(inventory(off, on)) == []
    assert codes(news.faults(inventory(off, off))) == [("persistence-off", "g1")]
    (over,) = news.faults(inventory(on, off))
    assert (over.code, over.gpu_id, over.over) == ("persistence-off", "g0", True)
    assert news.faults(inventory(on, off)) == []
    assert codes(news.faults(inventory(off, off))) == [("persistence-off", "g0")]


def test_a_part_of_the_driver_that_is_there_again_is_told_to_be_over_once():
    news = BoardNews()
    slow = ("driver-slow", "amd: did not open in time")
    missing = Inventory("e", "gpu", (), (slow, ("driver-slow", "other: did not open in time")))
    assert codes(news.faults(missing)) == [("driver-slow", None)] * 2
    (still,) = news.faults(Inventory("e", "gpu", (), (slow,)))
    assert (still.message, still.over) == (slow[1], False), "one part is missing still"
    (over,) = news.faults(Inventory("e", "gpu", ()))
    assert (over.code, over.gpu_id, over.over) == ("driver-slow", None, True)
    assert news.faults(Inventory("e", "gpu", ())) == []


def test_a_driver_that_went_away_is_over_with_the_next_child_that_finds_its_boards():
    news = BoardNews()
    assert not news.gone("driver-not-loaded", "the driver is not loaded").over
    news.gone("driver-child-died", "the driver child died")
    told = news.faults(inventory(BoardState()))
    assert [(f.code, f.over) for f in told] == [
        ("driver-child-died", True),
        ("driver-not-loaded", True),
    ]
    assert news.faults(inventory(BoardState())) == []


def test_persistence_of_boards_that_are_only_read_is_nobodys_worry():
    boards = (BoardState(persistence=False), BoardState(persistence=None))
    told = BoardNews().faults(inventory(*boards, can_set=False))
    assert codes(told) == [("device-no-permission", None)]
    assert "GPUs 0, 1" in told[0].message
    assert "CAP_SYS_ADMIN" in told[0].message
    assert codes(BoardNews().faults(inventory(*boards))) == [("persistence-off", "g0")]


def test_profiles_and_smoothing_are_told_with_their_numbers():
    board = BoardState(profiles=("MAX_Q",), smoothing=Smoothing(500.0, 2.0, 200.0, 100.0))
    faults = BoardNews().faults(inventory(board))
    assert codes(faults) == [("power-profile-requested", "g0"), ("power-smoothing-on", "g0")]
    assert "MAX_Q" in faults[0].message
    assert "500 W for 2 s" in faults[1].message
    assert "200 W/s" in faults[1].message


def test_slices_name_their_boards():
    boards = (BoardState(slices=("MIG-a", "MIG-b")), BoardState())
    assert slices_of(inventory(*boards)) == {"MIG-a": "g0", "MIG-b": "g0"}
