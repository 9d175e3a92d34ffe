"""What to do about what an IEEE 2030.5 server says: one sentence per code."""

from collections.abc import Mapping

__all__ = ["FIXES"]

FIXES: Mapping[str, str] = {
    "ieee2030-xml": "Look at what the server sends: plain XML, without a document type.",
    "ieee2030-namespace": "Compare the server's vocabulary with urn:ieee:std:2030.5:ns and "
    "https://csipaus.org/ns (also /v1.x).",
    "ieee2030-control": "Have the server's owner correct that control; others are not affected.",
    "ieee2030-power": "Have the server's owner send a value of 16 bits and its multiplier.",
    "ieee2030-feed-in": "Set `limit_by` to the mode that means this load; it cannot feed in.",
    "ieee2030-certificate": "Give the path of the device's certificate in PEM, readable for the "
    "user who runs control.",
    "ieee2030-ca-file": "Name a file of PEM certificates that control can read, or leave it out.",
    "ieee2030-url": "Use an https URL; plain http is allowed to this machine alone.",
    "ieee2030-elsewhere": "Look at the server's links: only its own host and port are asked.",
    "ieee2030-truncated": "Look at the server: what stands is held until its list is whole.",
    "ieee2030-refused": "Check the URL, and what the server lets our certificate see.",
    "ieee2030-not-listed": "Have the server's owner register our LFDI; what stands is held.",
    "ieee2030-no-programs": "Have the server's owner assign a DER program to our EndDevice; what "
    "stands is held.",
    "ieee2030-no-time": "Have the server serve its Time resource; its clock is taken to be right.",
    "ieee2030-clock-offset": "Compare both clocks with UTC; controls are followed in the server's "
    "time.",
    "ieee2030-clock-absurd": "Have the server's clock set; what stands is held meanwhile.",
    "ieee2030-response-late": "Look at whether the server takes responses; they are kept and sent "
    "again.",
    "ieee2030-response-refused": "Look at why the server refuses a response; it is not sent again.",
    "ieee2030-stranger": "Have the server notify the URI of our subscription, with its token.",
    "ieee2030-unsubscribed": "Look at why the server keeps no subscription of ours; polls go on.",
    "ieee2030-mirror-refused": "Have the server accept our MirrorUsagePoint, or leave "
    "`telemetry_seconds` unset.",
}
"""Code → what to do. :mod:`gridaware.domain.fixes_feeds` merges it with those of other feeds."""
