"""Restore slots: when each node raises its limits, so that all of them together keep the ramp.

Slots follow one another, and each is long enough for its node's own raise. They are sized by the
watts of *limit* that are given back, not by draw: however hungry the jobs are, the site cannot
rise faster. So a thousand agents keep the ramp without a word between them.
"""

from collections.abc import Mapping

from gridaware.domain.lease import RestoreSlot

__all__ = ["restore_slots"]

RAMP_USED = 0.95
"""Share of the ramp that slots use: agents start counting within a second of one another."""


def restore_slots(
    raised_watts: Mapping[str, float], up_watts_per_minute: float | None, slope: float = 1.0
) -> dict[str, RestoreSlot]:
    """A slot for each node, one after another by node id.

    Args:
        raised_watts: by node, how many watts of GPU limit it will give back.
        up_watts_per_minute: the site's ramp at the meter; None = no limit, all at once.
        slope: meter watts per GPU watt (:class:`gridaware.domain.target.Overhead`).
    """
    if up_watts_per_minute is None:
        return {node_id: RestoreSlot() for node_id in raised_watts}
    slots = {}
    delay = 0.0
    for node_id in sorted(raised_watts):
        meter_watts = max(raised_watts[node_id], 0.0) * slope
        duration = 60.0 * meter_watts / (RAMP_USED * max(up_watts_per_minute, 1e-6))
        slots[node_id] = RestoreSlot(delay_seconds=delay, duration_seconds=duration)
        delay += duration
    return slots
