"""What a driver child does beside the calls of a GPU: hearing its errors, looking at its board."""

import threading
import time

import pytest

from gridaware.clock import SystemClock
from gridaware.control.ports import Incident
from gridaware.domain.errors import DeviceLost, DeviceNotSupported, DriverGone
from gridaware.domain.fleet import BoardState
from gridaware.node import childworker
from gridaware.node.childwire import Happened, Outdated

BOARD = BoardState(persistence=True)


class Gpu:
    gpu_id, index, model = "g", 0, "m"


class Outlet:
    def __init__(self) -> None:
        self.sent: list[object] = []

    def send(self, message: object) -> None:
        self.sent.append(message)


class Ear:
    """A driver that can only be listened to: what it answers to each wait."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.watched = 0
        self.over = threading.Event()

    def watch(self, gpu_id: str) -> None:
        self.watched += 1

    def incident(self, gpu_id: str, seconds: float) -> Incident | None:
        answer = self.answers.pop(0) if self.answers else DriverGone("driver-not-loaded", "gone")
        if not self.answers:
            self.over.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Board:
    """A driver that can only say in which state its boards are."""

    def __init__(self, *states: BoardState | Exception) -> None:
        self.states = list(states)
        self.over = threading.Event()

    def board_state(self, gpu_id: str) -> BoardState:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if len(self.states) == 1:
            self.over.set()
        if isinstance(state, Exception):
            raise state
        return state


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(childworker, "_BOARD_SECONDS", 0.01)
    monkeypatch.setattr(childworker, "_LISTEN_AGAIN_SECONDS", 0.01)


def beside(driver, told=BOARD):
    outlet = Outlet()
    work = childworker._Beside(driver, Gpu(), SystemClock(), outlet)
    work.told = told
    assert driver.over.wait(10.0)
    time.sleep(0.05)  # what would still come has come
    return outlet.sent


def error(number: int) -> Incident:
    return Incident("g", "gpu-xid", f"Xid {number}")


def test_each_error_is_passed_on_and_the_same_one_not_again_within_a_minute():
    sent = beside(Ear(error(31), None, error(31), error(13), error(31)))
    assert sent == [Happened(error(31)), Happened(error(13))]


def test_an_ear_that_fails_listens_again():
    ear = Ear(DeviceLost("device-lost", "gone"), error(79))
    assert beside(ear) == [Happened(error(79))]
    assert ear.watched == 2


def test_a_driver_that_has_no_events_is_not_asked_for_them_again():
    ear = Ear(DeviceNotSupported("device-not-supported", "no events"))
    assert beside(ear) == []
    assert ear.watched == 1


def test_a_board_whose_state_has_changed_is_told_once():
    sliced = BoardState(persistence=True, slices=("MIG-1",))
    assert beside(Board(BOARD, BOARD, sliced, sliced, sliced, sliced)) == [Outdated("g")]


def test_a_gpu_that_was_lost_for_several_looks_is_looked_at_again():
    lost = DeviceLost("device-lost", "gone")
    sliced = BoardState(persistence=True, slices=("MIG-1",))
    assert beside(Board(lost, lost, lost, sliced, sliced)) == [Outdated("g")]


@pytest.mark.parametrize(
    "states",
    [
        [BOARD, BoardState(persistence=True, slices=("MIG-1",)), BOARD],  # one look may err
        [BOARD, BoardState(), BoardState(), BOARD],  # it does not answer
        [BOARD, BOARD, BOARD],
    ],
)
def test_a_board_that_only_seems_to_change_is_left(states):
    assert beside(Board(*states)) == []
