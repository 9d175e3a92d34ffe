"""What to do about an error: one imperative sentence per code, shown next to the error.

Errors themselves carry facts and no advice (:mod:`gridaware.domain.errors`); the CLI prints the
advice as its ``fix`` line and the API as the ``fix`` of a problem. A key that starts with ``*``
covers every code with that ending.
"""

from collections.abc import Mapping

from gridaware.domain.fixes_devices import FIXES as DEVICES
from gridaware.domain.fixes_dsx import FIXES as DSX
from gridaware.domain.fixes_feeds import FIXES as FEEDS
from gridaware.domain.fixes_jobs import FIXES as JOBS
from gridaware.domain.fixes_meters import FIXES as METERS
from gridaware.domain.fixes_node import FIXES as NODE
from gridaware.domain.fixes_openadr2 import FIXES as OPENADR2
from gridaware.domain.fixes_openadr3 import FIXES as OPENADR3
from gridaware.domain.fixes_pages import FIXES as PAGES
from gridaware.domain.fixes_series import FIXES as SERIES
from gridaware.domain.fixes_service import FIXES as SERVICE
from gridaware.domain.fixes_site import FIXES as SITE

__all__ = ["FIXES", "fix_for"]

_CONFIG = {
    "config-file-missing": "Write one with `gridaware init DIR`, or name it with `--config FILE`.",
    "config-file-unreadable": "Make the file readable for the user who runs gridaware.",
    "config-yaml-malformed": "Correct the YAML at the line shown.",
    "config-invalid": "Correct each line shown; configs/site.example.yaml comments every setting.",
    "secret-missing": "Set the environment variable, or write the file, that the setting names.",
}

_VALUES = {
    "*-id-malformed": "Use 1 to 64 characters of A-Z a-z 0-9 . _ : - and start with a letter or "
    "a digit.",
    "target-not-finite": "Send a finite number of watts, or a fraction between 0 and 1.",
    "target-negative": "Send a value of 0 or more; consumption is positive.",
    "target-fraction-range": "Send a fraction between 0 and 1, not a percentage.",
    "target-absurd": "Check the unit: the field says whether it takes watts or kilowatts.",
    "time-naive": "Write the instant with its zone, such as 2026-07-01T14:00:00Z.",
    "end-before-start": "Send an end after the start, or a duration.",
    "duration-absurd": "Send a shorter event, or leave the end out for an open end.",
    "revision-range": "Number revisions from 0 upwards.",
    "authority-least-watts": "Set least_watts to 0 or more.",
    "authority-depth-range": "Set greatest_depth between 0 and 1.",
    "authority-hours-range": "Set hours_per_day between 0 and 24.",
    "authority-notice": "Set least_notice_seconds to 0 or more.",
    "programme-hold-negative": "Set hold_seconds to 0 or more, or leave it out to wait for a "
    "person.",
    "programme-fallback-range": "Set fallback_fraction above 0 and at most 1.",
    "programme-armed-depths": "List shares between 0 and 1 from the shallowest to the deepest.",
    "overhead-range": "Set fixed_watts to 0 or more and slope to 1 or more.",
    "curve-shape": "Give cap_watts, power_watts and throughput the same number of points.",
    "curve-caps": "Sort the points of the curve by cap.",
}

_CLIENT = {
    "api-unreachable": "Start it with `gridaware serve`, or set GRIDAWARE_URL to where it runs.",
    "api-timeout": "Try again; `gridaware doctor` tells what is slow.",
    "api-url-malformed": "Write the URL with its scheme, such as http://127.0.0.1:8780.",
    "api-name-malformed": "Give the id as its list shows it.",
    "api-request-malformed": "Check the URL and the key for characters that do not belong there.",
    "api-answer-malformed": "Check that GRIDAWARE_URL is a gridaware of the same version.",
}

_CLI = {
    "cli-target-count": "Give exactly one of them: `gridaware event send --help`.",
    "cli-settings-file": "Write a YAML table of KEY: VALUE, each key once; quote dates.",
    "cli-settings-malformed": "Write each setting as KEY=VALUE with a YAML value.",
    "cli-pair-malformed": "Write it as KEY=VALUE.",
    "doctor-part-unknown": "Name one of the parts shown, or none for all.",
    "*-key-unknown": "Use one of the keys that the message names.",
}

_PARTS = (
    *(_CONFIG, _VALUES, _CLIENT, _CLI),
    *(DEVICES, DSX, FEEDS, JOBS, METERS, NODE, OPENADR2, OPENADR3, PAGES, SERIES, SERVICE, SITE),
)
FIXES: Mapping[str, str] = {code: fix for part in _PARTS for code, fix in part.items()}
"""Every code, or ending of codes, with its advice."""

_ENDINGS = {key[1:]: fix for key, fix in FIXES.items() if key.startswith("*")}


def fix_for(code: str) -> str | None:
    """What to do about ``code``: one imperative sentence, or None where nobody knows better."""
    if code in FIXES:
        return FIXES[code]
    endings = [ending for ending in _ENDINGS if code.endswith(ending)]
    return _ENDINGS[max(endings, key=len)] if endings else None
