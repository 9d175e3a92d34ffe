"""A node behind a relay: what people read of it says so, and a node cannot say it of itself."""

from datetime import UTC, datetime

from gridaware.control.machine import Machine
from gridaware.control.stimuli import Started
from gridaware.domain.moment import Moment
from gridaware.domain.wire import Hello
from gridaware.planning.model import CurveBook
from gridaware.wiring.curves import load_curves
from gridaware.wiring.projections import project

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def hello(relay_id: str) -> Hello:
    return Hello(1, "n1", "1", "boot", "drv", (), ("limits",), 0, None, None, relay_id=relay_id)


def shown(book: CurveBook, *relays: str) -> list[str | None]:
    """What is shown of the relay after each Hello."""
    machine = Machine(book)
    machine.handle(Started(1), Moment(0.0, NOON))
    seen = []
    for second, relay_id in enumerate(relays):
        machine.handle(hello(relay_id), Moment(float(second), NOON))
        projection = project(machine.state, "node", "n1", NOON)
        assert projection is not None
        seen.append(projection[1]["relay_id"])
    return seen


def test_a_node_is_shown_with_the_relay_that_it_came_through_last() -> None:
    assert shown(load_curves(), "relay-1", "", "relay-2") == ["relay-1", None, "relay-2"]
