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
    "ieee2030-url": "Use an https URL; plain http is allowed to this machine alone.",
}
"""Code → what to do. :mod:`gridaware.domain.fixes_feeds` merges it with those of other feeds."""
