"""The tables that show a response: its four clocks, GPU by GPU, and the rungs that were taken."""

from operator import attrgetter

from gridaware.service.report_columns import (
    Column,
    Table,
    count,
    millis,
    time,
    watts,
    words,
)
from gridaware.settlement.event_report import EventReport

__all__ = ["escalation_table", "gpu_table", "response_table"]


def response_table(report: EventReport) -> Table:
    """One row for each clock, over all GPUs that got a new limit."""
    response = report.response
    return Table(
        "event-response",
        1,
        "The four clocks",
        "From the receipt of the signal, over all GPUs that it gave a new limit. Decided: the "
        "frames were on their way. Accepted: the driver enforced the limit. Confirmed: the GPU's "
        "own power was within it, and stayed. p99 by nearest rank.",
        (
            words("clock", "Clock"),
            count("gpus", "GPUs"),
            count("gpus_reached", "Reached", "reached"),
            millis("p50_milliseconds", "p50", "p50_ms"),
            millis("p99_milliseconds", "p99", "p99_ms"),
            millis("max_milliseconds", "Slowest", "max_ms"),
        ),
        () if response is None else response.clocks,
    )


def gpu_table(report: EventReport) -> Table:
    """One row for each GPU, the slowest first."""
    response = report.response
    left_out = 0 if response is None else response.rows_left_out
    shown = "Slowest first."
    if left_out:
        shown += f" {left_out} faster GPUs are left out here; the spread above counts them."
    return Table(
        "event-gpus",
        1,
        "GPU by GPU",
        f"{shown} Placed by agent: counted on the agent's own clock, back from the arrival of its "
        "acknowledgement; by arrival: the arrival itself.",
        (
            words("node_id", "Node"),
            words("gpu_id", "GPU"),
            watts("limit_watts", "Limit"),
            millis("decided_milliseconds", "", "decided_ms"),
            millis("accepted_milliseconds", "Accepted", "accepted_ms"),
            millis("confirmed_milliseconds", "Confirmed", "confirmed_ms"),
            words("placed_by", "Placed by"),
        ),
        () if response is None else response.rows,
    )


def escalation_table(report: EventReport) -> Table:
    """One row for each rung that was taken for GPUs that did not follow."""
    return Table(
        "event-escalations",
        1,
        "GPUs that did not follow",
        "Their power stayed above what their limits allow. What was done, mildest first: a deeper "
        "cap, a clock lock, a pause with a verified checkpoint, a stop where the owner agreed.",
        (
            time("at_utc", "At (UTC)", "at"),
            words("job_id", "Job"),
            words("rung", "Done"),
            words("cause", "Cause"),
            count("gpus", "GPUs", "gpu_count"),
            watts("excess_watts", "Above their limits"),
            watts("above_watts", "Site above target"),
            Column("gpu_ids", lambda row: " ".join(attrgetter("gpu_ids")(row)), right=False),
        ),
        report.escalations,
    )
