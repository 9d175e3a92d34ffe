"""Why a plan does to a job what it does: codes and sentences of :mod:`gridaware.planning`.

Merged into :data:`gridaware.domain.reasons.REASONS`, which says how templates are filled.
"""

from collections.abc import Mapping

__all__ = ["REASONS"]

REASONS: Mapping[str, str] = {
    # spared
    "SpareNothingAsked": "nothing is asked of the site, so its GPUs stay at the limits that were "
    "found",
    "SpareNotNeeded": "is left alone: others that rank before it give all that is asked",
    "SpareFirm": "is firm and is left alone while others meet what is asked",
    "SpareBudgetSpent": "is left alone: its tier lets it lose {budget_seconds} more of full work, "
    "too little for the {horizon_seconds} to come",
    "SpareNothingToGive": "is left alone: it draws {draw_watts}, and no cap that its GPUs accept "
    "would lower that",
    "SpareNotRunning": "holds no GPUs",
    "SpareNotFollowing": "its GPUs do not follow their cap: it is counted at the {draw_watts} that "
    "it draws",
    # escalated: GPUs that do not follow
    "CapDeeper": "{gpus} of its GPUs draw {excess_watts} more than their caps of {cap_watts} "
    "allow: these are capped deeper",
    "LockClocks": "{gpus} of its GPUs draw {excess_watts} more than their caps of {cap_watts} "
    "allow: the clocks of these are locked",
    "PauseNotFollowing": "is asked to save and leave: {gpus} of its GPUs draw {excess_watts} more "
    "than their caps allow, and the site draws {above_watts} more than it may",
    "StopNotFollowing": "is stopped, as its owner agreed, and queued again: {gpus} of its GPUs "
    "draw {excess_watts} more than their caps allow, and the site draws {above_watts} more than it "
    "may",
    # limits back
    "RestoreFree": "nothing is asked of the site any more: each GPU returns to {found_watts}",
    "RestoreNotNeeded": "others give all that is asked: each GPU returns to {found_watts}",
    # caps
    "CapShared": "each GPU is capped at {cap_watts}: it then draws {expected_watts} instead of "
    "{draw_watts} and keeps {expected_throughput} of its pace, its share of what is missing",
    "CapAtFloor": "each GPU is capped at {cap_watts}, as deep as its tier allows: it keeps "
    "{expected_throughput} of its pace for {horizon_seconds}",
    "CapBelowFloor": "each GPU is capped at {cap_watts}, below what its tier promises: keeping "
    "{floor_throughput} of its pace would not meet what the site must do",
    "CapFirm": "is firm, yet each GPU is capped at {cap_watts}: nothing else is left to meet what "
    "the site must do; it keeps {expected_throughput} of its pace",
    "CapMeanwhile": "each GPU is capped at {cap_watts} only until the jobs that are asked to pause "
    "have left",
    "CapRising": "each GPU is capped at {cap_watts} while the site comes back step by step",
    # pauses
    "PauseAffordable": "is asked to save and leave, which frees the {draw_watts} that it draws: "
    "deeper caps would cost more work or not be enough, and its tier allows it",
    "PauseBelowFloor": "is asked to save and leave although its tier allows only {budget_seconds} "
    "of lost work: nothing milder meets what the site must do",
    "PauseUnderWay": "was asked to save and leave; each GPU is held at {cap_watts} until it has",
    "KeepPausedNoRoom": "stays paused: the site has no room for it under what is asked",
    "KeepPausedRecent": "stays paused: it was paused only {since_change_seconds} ago",
    # resumes
    "ResumeFree": "comes back, since nothing is asked of the site any more",
    "ResumeFits": "comes back with each GPU capped at {cap_watts}: its {expected_watts} fit under "
    "what is asked",
    # queue
    "WaitsForPower": "waits: nothing is started while the site gives up power",
    "WaitsForGpus": "waits: it needs {gpus} GPUs at once, and {free_gpus} are free",
    "WaitsForNode": "waits: it needs {gpus} GPUs on one node, and the freest has {node_gpus}",
    "WaitsForCluster": "waits: Ray has {ray_gpus} GPUs free of the {gpus} that it needs",
    "WaitsForHead": "waits behind a job that was there first and does not fit yet",
    "NeverFits": "can never start: it needs {gpus} GPUs, and there are {total_gpus}",
    "NeverFitsNode": "can never start: it needs {gpus} GPUs on one node, and the largest has "
    "{node_gpus}",
}
"""Code to template. A plan's numbers stand in the order in which the template names them."""
