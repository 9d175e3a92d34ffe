"""The way back: how far a restore slot has come, and when its next step is due."""

from math import ceil, floor

from gridaware.domain.lease import RestoreSlot

__all__ = ["next_step", "over", "progress"]

_STEP_SECONDS = 1.0
"""Limits rise about this often."""
_ROUNDING = 1e-9
"""A step that is due must not be missed by the last bit of a float."""


def progress(slot: RestoreSlot, since_end_seconds: float) -> float:
    """Share of the way from the held to the found limit, 0 to 1; a staircase below the line."""
    since_start = since_end_seconds - slot.delay_seconds
    if since_start < -_ROUNDING:
        return 0.0
    if slot.duration_seconds <= 0:
        return 1.0
    done = floor(since_start / _step(slot) + _ROUNDING)
    return min(1.0, max(0, done) / _steps(slot))


def next_step(slot: RestoreSlot, since_end_seconds: float) -> float:
    """Seconds after the lease's end at which limits rise next."""
    since_start = since_end_seconds - slot.delay_seconds
    if since_start < -_ROUNDING:
        return slot.delay_seconds
    step = _step(slot)
    return slot.delay_seconds + step * (floor(since_start / step + _ROUNDING) + 1)


def over(slot: RestoreSlot, since_end_seconds: float) -> bool:
    """Whether the whole slot has gone by."""
    return since_end_seconds >= slot.delay_seconds + slot.duration_seconds


def _steps(slot: RestoreSlot) -> int:
    return max(1, ceil(slot.duration_seconds / _STEP_SECONDS))


def _step(slot: RestoreSlot) -> float:
    return slot.duration_seconds / _steps(slot) or _STEP_SECONDS
