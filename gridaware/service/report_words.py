"""A report in words: its verdict, its summary, and what each warning means."""

from dataclasses import dataclass

from gridaware.domain.reasons import sentence
from gridaware.service.quantities import duration, energy, instant, percent, power
from gridaware.settlement.event_report import EventReport

__all__ = ["LINE_NAMES", "METHOD_NAMES", "Verdict", "event_summary", "verdict", "warning_text"]

LINE_NAMES = {
    "job": "Jobs",
    "held_idle": "Held idle",
    "unallocated": "Unallocated",
    "unmanaged": "Unmanaged processes",
    "overhead": "Overhead",
    "unexplained": "Unexplained",
}

METHOD_NAMES = {"meter_before_after": "meter before, meter after"}

_WARNINGS = {
    "window-shorter-than-deadline": "The event ended before the programme's deadline for full "
    "response, so nothing was owed and no interval is scored.",
    "meter-incomplete": "The meter has gaps; intervals without readings count as not delivered.",
    "gpus-incomplete": "Some GPUs have gaps in their readings; their energy may be on the "
    "unexplained line.",
    "reference-not-measured": "The reference window has too few readings to count as measured.",
    "reference-drifted": "Power after the event differs from the reference by more than a tenth: "
    "the load itself moved.",
    "baseline-not-programmes": "The programme settles by a baseline that is not computed here: the "
    "figures rest on another, and its own statement may differ.",
    "clamped-to-authority": "The request went beyond its feed's authority and was clamped.",
    "unresolved-watts": "Part of what was owed could not be shed.",
    "gpus-not-following": "Some GPUs drew more than their limits allowed; what was done about it "
    "is listed below.",
    "overhead-assumed": "The overhead between GPUs and meter is assumed, not measured.",
    "meter-is-device-sum": "There is no site meter: power is the sum of the devices through the "
    "overhead model.",
    "meter-part-device-sum": "For part of the time no meter could be believed: the sum of the "
    "devices stood in, through the overhead model.",
    "meter-changed": "More than one meter was read; the readings behind the figures say which, and "
    "when.",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The one thing to know."""

    tone: str
    """``good``, ``short`` or ``open``."""
    text: str


def warning_text(code: str) -> str:
    """The sentence of a warning code."""
    return _WARNINGS.get(code, code)


def verdict(report: EventReport) -> Verdict:
    """Whether what was owed was delivered."""
    delivered = report.delivery
    ratio = delivered.performance_ratio
    if ratio is None or delivered.mean_watts is None:
        return Verdict("open", "Not scored")
    if delivered.intervals_missed == 0:
        return Verdict("good", "Delivered in full")
    scored = sum(row.scored for row in delivered.intervals)
    return Verdict("short", f"Short in {delivered.intervals_missed} of {scored} intervals")


def event_summary(report: EventReport) -> str:
    """The event in two or three sentences."""
    delivered, reference = report.delivery, report.reference.watts
    owed = max(reference - report.limit_watts, 0.0)
    length = (report.window_end - report.window_start).total_seconds()
    asked = (
        f"From {instant(report.window_start)} the grid asked the site to draw at most "
        f"{power(report.limit_watts, reference)} for {duration(length)}, "
        f"{power(owed, reference)} below its reference of {power(reference)}."
    )
    if delivered.mean_watts is None or delivered.performance_ratio is None:
        return f"{asked} No interval was scored." + _voluntary(report)
    held = (
        f" It held {power(delivered.mean_watts, reference)} on average and delivered "
        f"{energy(delivered.delivered_kwh * 3.6e6)} of {energy(delivered.owed_kwh * 3.6e6)} owed, "
        f"{percent(delivered.performance_ratio)}."
    )
    if delivered.performance_ratio > report.paid_band[1]:
        held += f" What lies beyond {percent(report.paid_band[1], 0)} is not paid."
    paused = sum(pause.verified_at is not None for pause in report.pauses)
    lost = sum(job.proven_seconds_lost for job in report.jobs)
    cost = f" It cost {duration(lost)} of work in {len(report.jobs)} jobs"
    if paused:
        cost += f"; {paused} paused at a verified checkpoint"
    return f"{asked}{held}{cost}." + _voluntary(report)


def _voluntary(report: EventReport) -> str:
    return f" Voluntary: {sentence(report.voluntary)}." if report.voluntary else ""
