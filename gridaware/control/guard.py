"""The last word before limits leave: what the order of duties allows, and nothing else.

**device range > hard limit > grid obligation > firm jobs' floor.** Planning weighs the last three;
here stands the first, with the rules that no plan may break: a limit is never above the one that
was found, never outside what the device accepts, and a GPU that cannot be set is left out rather
than believed.
"""

from collections.abc import Mapping

from gridaware.domain.fleet import Gpu

__all__ = ["guarded", "same_limits"]

RAISE_WATTS, LOWER_WATTS = 2.0, 0.3
"""A limit moves only by at least this: less is noise. Lowering counts sooner, since many GPUs that
each stay a little too high exceed a target together; staying too low only costs a little work."""


def guarded(caps_watts: Mapping[str, float], gpus: Mapping[str, Gpu]) -> dict[str, float]:
    """The limits to hold, by GPU; those at (or above) their found limit need none.

    Args:
        caps_watts: what a plan wants, by GPU id.
        gpus: every GPU that is known.
    """
    limits = {}
    for gpu_id, cap in sorted(caps_watts.items()):
        gpu = gpus.get(gpu_id)
        if gpu is None or not gpu.can_set:
            continue
        limit = round(min(gpu.limits.clamp(cap), gpu.found_limit_watts), 1)
        if limit < gpu.found_limit_watts - 0.5:
            limits[gpu_id] = limit
    return limits


def same_limits(held: Mapping[str, float], limits: Mapping[str, float]) -> bool:
    """Whether what a node holds is, within the dead band, what it shall hold."""
    if held.keys() != limits.keys():
        return False
    return all(
        -LOWER_WATTS < watts - held[gpu_id] < RAISE_WATTS for gpu_id, watts in limits.items()
    )
