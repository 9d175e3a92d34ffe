"""What to do about an error of public pages: market conditions, forecasts, requirements."""

from collections.abc import Mapping

__all__ = ["FIXES"]

FIXES: Mapping[str, str] = {
    "page-asked-lately": "Wait: the page is asked again once its publisher's rate allows.",
    "page-garbled": "Open the URL and compare it with docs/feeds: its publisher may have changed "
    "the page.",
    "page-too-often": "Raise `poll_seconds`, and look for other programs here that ask the same "
    "publisher.",
    "page-forbidden": "Open the URL from this machine: its publisher may have blocked the address.",
    "page-moved": "Look for the page's new address on its publisher's site, and set it.",
    "page-unavailable": "Wait, or look at its publisher's status page; what stands is held "
    "meanwhile.",
    "page-stale": "Compare this machine's clock with UTC, then look whether the publisher still "
    "updates the page.",
    "history-header": "Write the first line as date,peak_mw,forecast_mw.",
    "history-row": "Correct that line: one day a line, such as 2026-08-20,85123,84900.",
    "history-too-large": "Leave out what is not needed: a line a day is enough.",
    "history-unreadable": "Check the path, as seen by the machine that runs control.",
    "page-value": "Look at the page: a value in it is missing or absurd.",
}
