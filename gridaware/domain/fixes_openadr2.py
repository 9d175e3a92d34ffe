"""What to do about what an OpenADR 2.0b server or event says: one sentence per code."""

from collections.abc import Mapping

__all__ = ["FIXES"]

_XML = {
    "xml-too-large": "Send a message of at most 1 MiB.",
    "xml-malformed": "Send well-formed XML; check that the URL is the server's.",
    "xml-doctype": "Send it without a document type and without entities.",
    "xml-nested": "Send fewer elements, and less deeply nested ones.",
    "openadr2-envelope": "Send one message in an oadrSignedObject in an oadrPayload; check that "
    "the URL is the server's.",
}

_EVENTS = {
    "openadr2-event-id": "Give the event an eventID of 1 to 200 characters.",
    "openadr2-modification": "Number modifications from 0 upwards.",
    "openadr2-stale": "Send the newest modification of the event.",
    "openadr2-same-number": "Raise the modification number with every change of the event.",
    "openadr2-status": "Send one of none, far, near, active, completed, cancelled.",
    "openadr2-period": "Give the event an active period with a start in UTC and a duration.",
    "openadr2-startafter": "Send a startafter of at most a week, in days, hours and seconds.",
    "openadr2-intervals": "Give the signal at least one interval.",
    "openadr2-interval-start": "Give the interval a start, or the one before it a length.",
    "openadr2-units": "Give each unit of power its watts, such as `units: {MW: 1000000}`.",
    "signal-malformed": "Give the signal a signalName and a signalType.",
    "signal-type": "Say in the feed's `meanings` what that signal and type ask for, such as "
    "`{LOAD_CONTROL/x-loadControlLevelOffset: {'1': {reduce_percent: 10}}}`.",
    "signal-unit": "Send powerReal in W with its scale; custom units of power are set in the "
    "feed's `units`.",
    "signal-range": "Send a share of 0.0 to 1.0, or an offset of at most the whole.",
    "signal-capacity": "Set the feed's `capacity_kw` to the site's greatest load.",
    "signal-percent": "Set the feed's `percent_offset_unit` to how this server writes a fifth: "
    "percent (20) or share (0.2).",
}

FIXES: Mapping[str, str] = {**_XML, **_EVENTS}
"""Code → what to do. :mod:`gridaware.domain.fixes` merges it with the others."""
