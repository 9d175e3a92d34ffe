"""Restore slots: when each node raises its limits, so that all of them together keep the ramp.

The ramp is kept in every second, not on the average. An agent raises its limits once a second of
its slot, and slots are whole seconds: so nodes whose slots lie together rise together, each by an
equal part a second, and however their seconds lie to one another, no second holds two steps of one
node. Slots that follow one another are apart by more than agents differ in when they begin. Slots
are sized by the watts of *limit* that are given back, not by draw: however hungry the jobs are, the
site cannot rise faster. So a thousand agents keep the ramp without a word between them.
"""

from collections.abc import Iterator, Mapping
from math import ceil

from gridaware.domain.lease import RestoreSlot

__all__ = ["restore_slots"]

RAMP_USED = 0.95
"""Share of the ramp that slots use: the watts of a limit are not quite those at the meter."""
TOGETHER_SECONDS = 10.0
"""Nodes that rise together take at least this long, where there are enough of them: whole seconds,
and the one between two slots, then cost a tenth or two. They are not one slot for all, or the nodes
of a large site would set limits, by little, during the whole of its way back."""
APART_SECONDS = 1.0
"""From one slot's end to the next one's begin: agents begin within a second of one another."""
_ROUNDING = 1e-9


def restore_slots(
    raised_watts: Mapping[str, float], up_watts_per_minute: float | None, slope: float = 1.0
) -> dict[str, RestoreSlot]:
    """A slot for each node, by node id.

    Args:
        raised_watts: by node, how many watts of GPU limit it will give back.
        up_watts_per_minute: the site's ramp at the meter; None = no limit, all at once.
        slope: meter watts per GPU watt (:class:`gridaware.domain.target.Overhead`).
    """
    if up_watts_per_minute is None:
        return {node_id: RestoreSlot() for node_id in raised_watts}
    watts_per_second = RAMP_USED * max(up_watts_per_minute, 1e-6) / 60.0
    needs = {
        node_id: max(watts, 0.0) * slope / watts_per_second
        for node_id, watts in sorted(raised_watts.items())
    }
    slots: dict[str, RestoreSlot] = {}
    delay = 0.0
    for together, seconds in _groups(needs):
        duration = float(ceil(seconds - _ROUNDING))
        slots |= dict.fromkeys(together, RestoreSlot(delay, duration))
        delay += duration + APART_SECONDS
    return slots


def _groups(needs_seconds: Mapping[str, float]) -> Iterator[tuple[list[str], float]]:
    """Nodes that rise together, in their order, and how long the ramp needs for all of them."""
    together: list[str] = []
    seconds = 0.0
    for node_id, need in needs_seconds.items():
        together.append(node_id)
        seconds += need
        if seconds >= TOGETHER_SECONDS:
            yield together, seconds
            together, seconds = [], 0.0
    if together:
        yield together, seconds
