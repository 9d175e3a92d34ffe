"""The points of the DNP3 outstation, on dnp3py: what a master writes and what it reads back.

| point | is |
|---|---|
| AO ``limit_index`` | the limit that was written |
| BO ``emergency_index`` | the emergency that was latched |
| AI 0 / 1 / 2 | power at the site meter / the limit in force / what could be given up now |
| BI 0 / 1 / 2 | an event acts / the site acts on what it is asked / the master is silent |

A value that is missing is offline and of lost communication, never 0 and online.
"""

import math
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from gridaware.control.ports import FeedTelemetry
from gridaware.domain.errors import ConfigError
from gridaware.domain.event import GridEvent

if TYPE_CHECKING:
    from gridaware.feeds.dnp3 import Dnp3, Dnp3Settings

__all__ = ["ACTIVE", "ACTS", "FLEXIBLE", "LIMIT", "SITE", "STALE", "Points", "Refusal"]

SITE, LIMIT, FLEXIBLE = 0, 1, 2
"""Analog inputs."""
ACTIVE, ACTS, STALE = 0, 1, 2
"""Binary inputs."""
COUNTS_AT_MOST = 2**31 - 1
_OVER = {"completed", "cancelled", "failed", "opted-out"}


class Refusal(Enum):
    """Why a command is not carried out; its name is what the master is answered."""

    OUT_OF_RANGE = "out_of_range"
    LOCAL = "local"
    """The site is under local control: ``control.act`` is false."""
    BLOCKED = "blocked"
    """Control refuses it."""
    AWAY = "hardware_error"
    """Control cannot take it now."""
    NOT_SUPPORTED = "not_supported"


class Points:
    """The database of the outstation, and the shell that serves it."""

    def __init__(self, settings: "Dnp3Settings") -> None:
        _library()
        from dnp3.database import (
            AnalogInputConfig,
            AnalogOutputConfig,
            BinaryInputConfig,
            BinaryOutputConfig,
            Database,
        )

        self._settings = settings
        self._acting: dict[str, float] = {}
        """Limit in force by event."""
        self.database: Any = Database()
        for index in (SITE, LIMIT, FLEXIBLE):
            self.database.add_analog_input(index, AnalogInputConfig(deadband=1.0))
        for index in (ACTIVE, ACTS, STALE):
            self.database.add_binary_input(index, BinaryInputConfig())
        self.database.add_analog_output(settings.limit_index, AnalogOutputConfig())
        if settings.emergency_index is not None:
            self.database.add_binary_output(settings.emergency_index, BinaryOutputConfig())
        self._show_limit()
        self._analog(SITE, None)
        self._analog(FLEXIBLE, None)
        for index in (ACTS, STALE):
            self.database.update_binary_input(index, value=False)

    def show_event(self, event: GridEvent, status: str) -> None:
        """What became of an event."""
        if status in _OVER:
            self._acting.pop(event.event_id, None)
        elif status == "active" and event.limit_watts is not None:
            self._acting[event.event_id] = event.limit_watts
        self._show_limit()

    def show_site(self, telemetry: FeedTelemetry) -> None:
        """What the site draws; events that are open without having been told count too."""
        self._acting = {
            event.event_id: event.limit_watts
            for event in telemetry.events
            if event.state.acting and event.limit_watts is not None
        }
        self._show_limit()
        self._analog(SITE, telemetry.site_watts)
        self._analog(FLEXIBLE, telemetry.flexible_watts)
        self.database.update_binary_input(ACTS, value=telemetry.act)

    def show_stale(self, stale: bool) -> None:
        """Whether the master is silent."""
        if self.database.get_binary_input(STALE).value != stale:
            self.database.update_binary_input(STALE, value=stale)

    def runner(self, feed: "Dnp3", on_request: Callable[[], None]) -> Any:
        """What serves masters over TCP; ``on_request`` hears of each request of ours."""
        from dnp3.outstation import Outstation, OutstationConfig, OutstationTcpRunner

        settings = self._settings

        class OfOneMaster(Outstation):
            """Answers the master that it belongs to, and no other."""

            def process_request(self, data: bytes, *, peer: Any = None) -> Any:
                if peer is None or peer.source != settings.master_address:
                    return []
                on_request()
                return super().process_request(data, peer=peer)

        class FromNamedHosts(OutstationTcpRunner):
            """Talks to the addresses that it may, and closes on any other."""

            async def _handle_connection(self, channel: Any) -> None:
                allowed = settings.master_hosts
                address = channel.remote_address
                if allowed and (address is None or address[0] not in allowed):
                    await channel.close()
                    return
                await super()._handle_connection(channel)

        outstation = OfOneMaster(
            database=self.database,
            config=OutstationConfig(
                address=settings.outstation_address,
                master_address=settings.master_address,
                time_sync_required=False,
            ),
            handler=_Commands(feed, settings),
        )
        return FromNamedHosts(outstation=outstation, host=settings.host, port=settings.port)

    def _show_limit(self) -> None:
        """The strictest limit in force; the neutral value where there is none."""
        watts = min(self._acting.values(), default=self._settings.neutral_kw * 1e3)
        self._analog(LIMIT, watts)
        self.database.update_binary_input(ACTIVE, value=bool(self._acting))

    def _analog(self, index: int, watts: float | None) -> None:
        from dnp3.core.flags import AnalogQuality

        if watts is None:
            kept = self.database.get_analog_input(index).value
            self.database.update_analog_input(index, value=kept, quality=AnalogQuality.COMM_LOST)
            return
        counts, quality = watts / self._settings.watts_per_count, AnalogQuality.ONLINE
        if abs(counts) > COUNTS_AT_MOST:
            counts = math.copysign(COUNTS_AT_MOST, counts)
            quality |= AnalogQuality.OVER_RANGE
        self.database.update_analog_input(index, value=round(counts), quality=quality)


class _Commands:
    """What dnp3py asks for each command; see its ``CommandHandler``."""

    def __init__(self, feed: "Dnp3", settings: "Dnp3Settings") -> None:
        self._feed = feed
        self._settings = settings

    def select_analog_output(self, index: int, value: float) -> Any:
        return self._analog(index, value, select=True)

    def operate_analog_output(self, index: int, value: float, select_sequence: int) -> Any:
        del select_sequence
        return self._analog(index, value, select=False)

    def direct_operate_analog_output(self, index: int, value: float) -> Any:
        return self._analog(index, value, select=False)

    def select_binary_output(
        self, index: int, code: Any, count: int, on_time: int, off_time: int
    ) -> Any:
        del on_time, off_time
        return self._binary(index, code, count, select=True)

    def operate_binary_output(
        self, index: int, code: Any, count: int, on_time: int, off_time: int, select_sequence: int
    ) -> Any:
        del on_time, off_time, select_sequence
        return self._binary(index, code, count, select=False)

    def direct_operate_binary_output(
        self, index: int, code: Any, count: int, on_time: int, off_time: int
    ) -> Any:
        del on_time, off_time
        return self._binary(index, code, count, select=False)

    def cold_restart(self) -> int | None:
        """Not for a master to do."""
        return None

    def warm_restart(self) -> int | None:
        """Not for a master to do."""
        return None

    def freeze_counters(self, start: int, stop: int, clear: bool) -> Any:
        """There are none."""
        del start, stop, clear
        return _result(Refusal.NOT_SUPPORTED)

    def _analog(self, index: int, value: float, *, select: bool) -> Any:
        if index != self._settings.limit_index:
            return _result(Refusal.NOT_SUPPORTED)
        return _result(self._feed.command_limit(value, select=select))

    def _binary(self, index: int, code: Any, count: int, *, select: bool) -> Any:
        from dnp3.core.enums import ControlCode

        latches = {ControlCode.LATCH_ON: True, ControlCode.LATCH_OFF: False}
        # A count of 0 says that nothing is to be executed (IEEE 1815-2012, A.8.1).
        if index != self._settings.emergency_index or code not in latches or count == 0:
            return _result(Refusal.NOT_SUPPORTED)
        return _result(self._feed.command_emergency(latches[code], select=select))


def _result(refusal: Refusal | None) -> Any:
    from dnp3.outstation.handler import CommandResult

    if refusal is None:
        return CommandResult.success()
    return getattr(CommandResult, refusal.value)()


def _library() -> None:
    try:
        import dnp3.outstation  # noqa: F401 - only whether it is there
    except ImportError:
        raise ConfigError("extra-missing", "this needs gridaware[dnp3], which is absent") from None
