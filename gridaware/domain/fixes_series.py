"""What to do about errors of feeds that follow prices and carbon intensities."""

from collections.abc import Mapping

__all__ = ["FIXES"]

FIXES: Mapping[str, str] = {
    "table-shape": "Compare `columns` with the document: `rows`, `start`, `value`, `format`.",
    "table-empty": "Compare `columns` with a row of the document; the reason of one is shown.",
    "table-row": "Tell the publisher; the other rows are not affected. For times without an offset "
    "set `timezone`.",
    "table-too-long": "Ask for a shorter stretch of time in the URL.",
    "series-ended": "Look whether the publisher is late; what stands is held to its end.",
    "carbon-spike": "Nothing: the next value decides. Where it leaps in truth, ask the provider.",
}
