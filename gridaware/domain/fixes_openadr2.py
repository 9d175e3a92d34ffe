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

_SERVER = {
    "openadr2-url": "Use an https URL; plain http is allowed to this machine alone.",
    "openadr2-ca-file": "Check the path, and that the file is a certificate in PEM.",
    "openadr2-http": "Look at the server's log, and whether `vtn_url` ends where the names of "
    "services follow.",
    "openadr2-refused": "Look up the response code, and ask whoever runs the server.",
    "openadr2-not-registered": "Have the operator of the server register the `ven_name`, and the "
    "certificate where it wants one.",
    "openadr2-put-out": "Ask the operator why; we register again five minutes later.",
    "openadr2-server-restarted": "Compare the events that stand with the operator's, and cancel by "
    "hand what is over.",
    "openadr2-lists-nothing": "Compare the events that stand with the operator's, and cancel by "
    "hand what is over.",
    "openadr2-other-vtn": "Check the URL; name the server in `vtn_id` if it has changed.",
    "openadr2-other-ven": "Have the operator check which VEN this registration belongs to.",
    "openadr2-unexpected": "Ask the operator what it is for; nothing was done.",
    "openadr2-clock-offset": "Compare both clocks with UTC: events begin and end by ours.",
    "openadr2-report": "Ask for the reports that were offered: power, energy and status.",
    "openadr2-message": "Report it with the log: a message could not be written.",
}

_SIGNATURES = {
    "openadr2-signing-key": "Give PEM files of an RSA or elliptic-curve key without a password, "
    "and of its certificate.",
    "openadr2-fingerprint": "Set `vtn_fingerprint` to what the operator gives outside of OpenADR, "
    "such as AB:CD:... of 10 or 32 bytes.",
    "openadr2-fingerprint-other": "Ask the operator whether the certificate was renewed, outside "
    "of OpenADR; until then nothing of it is taken.",
    "openadr2-unsigned": "Have the server sign, or leave `vtn_fingerprint` and `verify_signatures` "
    "out.",
    "openadr2-signature": "Look for whatever changes messages between the server and us.",
    "openadr2-replayed": "Compare both clocks with UTC.",
}

FIXES: Mapping[str, str] = {**_XML, **_EVENTS, **_SERVER, **_SIGNATURES}
"""Code → what to do. :mod:`gridaware.domain.fixes` merges it with the others."""
