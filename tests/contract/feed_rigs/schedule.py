"""A schedule, whose sender is its settings."""

from typing import Any

from feed_rigs.base import Rig, Said
from gridaware.domain.errors import GridawareError


class ScheduleRig(Rig):
    """A schedule has no sender: what it says is settings, so bad messages are bad settings."""

    kind = "schedule"
    windows: tuple[dict[str, Any], ...] = ()

    def settings(self) -> dict[str, object]:
        quiet = {
            "name": "quiet",
            "cron": "0 0 29 2 *",
            "duration": "PT1M",
            "target": {"limit_kw": 1},
        }
        return {"timezone": "America/Chicago", "windows": [quiet, *self.windows]}

    def say(self, *events: Said) -> None:
        for event in events:
            window = {
                "name": event.name,
                "cron": "10 8 * * *",
                "duration": "PT1H",
                "target": {event.key: event.value},
                "kind": event.kind,
                "revision": event.revision,
                "priority": 2,
            }
            others = [old for old in self.windows if old["name"] != event.name]
            self._replace((*others, window))

    def say_raw(self, message: bytes) -> None:
        self._replace((*self.windows, {"name": "bad", "cron": message.decode("latin-1")}))

    def _replace(self, windows: tuple[dict[str, Any], ...]) -> None:
        kept, self.windows = self.windows, windows
        try:
            # Replaced in place, as control does: what was delivered stays delivered.
            self.running.feed = self.open().feed
        except GridawareError as error:
            self.windows = kept
            self.running.refused(error, "")
        else:
            self.running.poll_once(self.signals.append)
