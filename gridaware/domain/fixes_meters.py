"""What to do about the errors and the alarms of the site's meters."""

from collections.abc import Mapping

__all__ = ["FIXES"]

_ALARMS = {
    "meter-silent": "Check the meter's address and power; `gridaware doctor meters` reads it once.",
    "meter-stale": "Raise stale_seconds above twice the interval at which the meter is read, or "
    "see why what it serves is old.",
    "meter-implausible": "Compare its reading with another meter: a lost phase, a wrong scale or "
    "unit, or loads that it does not enclose.",
    "meter-stuck": "Restart the meter's gateway: it repeats one value whatever is drawn.",
    "meter-changed": "See `gridaware status`, which tells how each meter of the site is.",
}

_READING = {
    "meter-module": "Name a module with open_meter, such as gridaware.devices.modbus, or "
    "device_sum.",
    "meter-map": "Name a file of configs/meters, or give the absolute path of one like it.",
    "meter-timeout": "Check that the address is the meter's, or raise deadline_seconds.",
    "meter-unreachable": "Check the meter's address, its port and the network between.",
    "meter-answer": "Check that the map, the unit id or the query is for this meter.",
    "meter-value-absent": "Check that the meter measures what the map or the query asks for.",
    "meter-model-absent": "Use a map of the meter's own: it has no such SunSpec model.",
    "meter-denied": "Check user, password_file or token_file, and what they may read.",
    "modbus-missing": "Install it: pip install 'gridaware[modbus]'.",
}

FIXES: Mapping[str, str] = {**_ALARMS, **_READING}
"""Code to advice."""
