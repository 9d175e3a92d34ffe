"""What to do about the errors of the controller: commands, events, data and policies."""

from collections.abc import Mapping

__all__ = ["FIXES"]

_COMMANDS = {
    "command-unknown": "Run the same version of gridaware at both ends.",
    "command-malformed": "Run the same version of gridaware at both ends.",
    "command-field": "Send the field as text.",
    "no-answer": "Look into the controller's log, and report it.",
    "value-malformed": "Run the version of gridaware that wrote it.",
    "stimulus-unknown": "Run the version of gridaware that wrote the ledger.",
    "instruction-unknown": "Run the version of gridaware that wrote the ledger.",
}

_EVENTS = {
    "event-closed": "Leave it: its window is over or it was ended before.",
    "event-over": "Send a window that ends in the future.",
    "events-too-many": "Cancel events that are not needed.",
    "revision-reused": "Send a higher revision for a changed request.",
    "feed-id-reserved": "Choose another id.",
    "feed-field-type": "Send the field in the type that /api/v1/openapi.json shows.",
    "release-unconfirmed": "Add --confirm fleet --reason TEXT: it opts out of the events that act.",
    "beyond-authority": "Raise the feed's authority, or opt out of the event.",
    "event-not-settleable": "Wait until the event has ended.",
    "baseline-no-readings": "Let the meter run before an event, at least for its reference window.",
    "window-empty": "Ask for an end after the start.",
    "*-unknown": "Name one that its list shows.",
}

_DATA = {
    "data-missing": "Install gridaware from its wheel, or as editable from a complete checkout.",
    "curves-missing": "Put at least one file into configs/curves.",
    "curve-file": "Correct the file named; its neighbours show the form.",
    "curve-number": "Write a number.",
    "gpu-model-unknown": "Add a file for this model to configs/curves.",
    "gpu-class-limits": "Order the limits: least, default, greatest.",
    "gpu-class-power": "Set idle power below the least limit, in watts.",
    "gpu-class-law": "Keep the law's numbers in the range that the message names.",
    "workload-class-law": "Keep the class's shares between 0 and 1.",
    "policy-unknown": "Name one of `gridaware policy list`, or add a file to policies/.",
    "policy-param-unknown": "Use the names that policies/default.yaml shows.",
    "policy-param-range": "Set the number to 0 or more.",
    "frequency-rule": "Start from a named rule, such as ercot-ffr.",
    "series-shape": "Give as many values as times.",
    "series-not-finite": "Leave a missing value out instead of writing NaN.",
    "series-order": "Sort the series by time.",
    "catalogue-entry": "Correct the dates of the versions in the file of configs/programmes.",
    "catalogue-term": "Correct the value in the file of configs/programmes.",
    "obligation-hours": "Write a window as in `Jun-Sep Mon-Fri 13:00-19:00`, or `all hours`.",
    "programme-cap": "Write a cap as in `60 hours per year`, or `12 hours per season Apr-May`.",
    "init-files": "Choose a folder that can be written.",
    "init-host-missing": "Add --host NAME: how that machine reaches the controller.",
}

FIXES: Mapping[str, str] = {**_COMMANDS, **_EVENTS, **_DATA}
"""Code, or ending of codes, to advice."""
