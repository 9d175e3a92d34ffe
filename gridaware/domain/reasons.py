"""Reason codes and their sentences: why a job or an event is in the state it is in.

A code is stable, PascalCase, and travels with its numbers; its sentence is made here when somebody
reads it, so CLI, API and pages say the same. A template names its numbers, and the end of each
name says the unit it is shown in (:mod:`gridaware.domain.units`).
"""

import re
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

from gridaware.domain.reasons_planning import REASONS as PLANNING
from gridaware.domain.units import DASH, show

__all__ = ["REASONS", "names_of", "sentence"]

_JOBS = {
    "Submitted": "waits for {gpus} free GPUs",
    "Started": "attempt {attempt} was submitted to Ray",
    "FirstProgress": "the first step after the start was seen",
    "Capped": "each GPU is capped at {cap_watts} so that the site keeps its target",
    "Uncapped": "its GPUs are back at the limits that were found",
    "NoProgress": "no step for {idle_seconds}",
    "ProgressAgain": "steps are coming again",
    "PauseRequested": "was asked to save its state and leave the GPUs",
    "CheckpointVerified": "saved step {step}; the checkpoint was verified, and its processes and "
    "watts are gone",
    "PauseRefused": "did not save a checkpoint that could be verified in time, so it runs on",
    "Resumed": "attempt {attempt} continues from step {step}",
    "HeldByUser": "a person holds it back from starting",
    "ReleasedByUser": "a person let it go to the queue again",
    "StoppedByUser": "a person stopped it",
    "StoppedForGrid": "was stopped, as its owner agreed, since nothing milder met what the site "
    "must do; it is queued again",
    "Succeeded": "its entrypoint ended with exit status 0",
    "Failed": "its entrypoint ended with exit status {exit_code}, and no retry is left",
    "ClusterLost": "Ray was started again and has lost it; it is queued again",
    "RetryAfterFailure": "its entrypoint ended with exit status {exit_code}; "
    "it is queued again after {failures} failures",
    "CannotStart": "the cluster can never run it as it was submitted",
}

_EVENTS = {
    "Announced": "was received, and nothing is promised yet",
    "Accepted": "is within its feed's authority, and the site will serve it",
    "WindowStarted": "its window began; power is coming down",
    "TargetReached": "power is at or below the target of {limit_watts}",
    "WindowEnded": "its window is over; power comes back within the site's ramp",
    "WindowMissed": "its window was over before it could start",
    "LimitsRestored": "every limit that was found before it is in force again",
    "Settled": "what was delivered has been computed",
    "Cancelled": "the sender cancelled it",
    "OptedOut": "the site opted out of it",
    "CannotServe": "the site cannot serve it",
    "Rescheduled": "was revised to a later window, and power is back until then",
    "Revised": "the sender changed it; revision {revision} holds now",
    "VoluntaryProgramme": "nothing is owed under its programme, so it is served only as far as the "
    "tiers of jobs allow",
    "OutsideObligation": "it lies outside its programme's obligation hours, so nothing is owed and "
    "it is served only as far as the tiers of jobs allow",
}

REASONS: Mapping[str, str] = {**_JOBS, **_EVENTS, **PLANNING}
"""Every reason code with the template of its sentence."""

_WORD = re.compile(r"[A-Z][a-z0-9]*|[A-Z]+(?![a-z])")


def names_of(code: str) -> tuple[str, ...]:
    """The numbers that the sentence of ``code`` names, in the order in which it names them."""
    template = REASONS.get(code, "")
    return tuple(name for _, name, _, _ in Formatter().parse(template) if name)


def sentence(code: str, numbers: Mapping[str, float] | Sequence[Any] = ()) -> str:
    """Why, in one sentence without a full stop.

    Args:
        code: the reason code; an unknown one is shown as its words.
        numbers: by name; or in the order in which the template names them, bare or as
            ``(name, value)`` pairs. One that is missing shows as a dash.
    """
    template = REASONS.get(code)
    if template is None:
        return " ".join(_WORD.findall(code)).lower() or "no reason was recorded"
    return _fill(template, _by_name(code, numbers))


def _by_name(code: str, numbers: Mapping[str, float] | Sequence[Any]) -> Mapping[str, float]:
    if isinstance(numbers, Mapping):
        return numbers
    if all(isinstance(number, tuple | list) and len(number) == 2 for number in numbers):
        return dict(numbers)
    unique = dict.fromkeys(names_of(code))
    return dict(zip(unique, numbers, strict=False))


def _fill(template: str, numbers: Mapping[str, float]) -> str:
    """A number without a format of its own is shown in the unit that its name ends with."""
    parts = []
    for literal, name, form, _ in Formatter().parse(template):
        parts.append(literal)
        if name:
            value = numbers.get(name)
            if value is None:
                parts.append(DASH)
            else:
                parts.append(format(value, form) if form else show(name, value))
    return "".join(parts)
