"""``dnp3``: an outstation (IEEE 1815) that a control centre's master writes limits to.

Analog output 0 is the power limit of the site; a value at or above ``neutral_kw`` releases it. One
binary output may ask for a declared emergency target. What the master reads back is the limit that
is in force, not the one it wrote. DNP3 over TCP knows no authentication: by default only this
machine may connect, and who else may is named address by address.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from gridaware.control.ports import FeedReport, FeedTelemetry, Receipt
from gridaware.domain.errors import ConfigError, GridawareError, InvalidInput, Unavailable
from gridaware.domain.eventjson import target_from_mapping
from gridaware.domain.signal import EventRequest, Quantity, Signal, TargetSpec
from gridaware.feeds.dnp3_points import Points, Refusal
from gridaware.feeds.kind import FEED_KINDS, Feed, FeedContext, FeedSettings
from gridaware.feeds.standing_limit import StandingLimit, kept_limit

if TYPE_CHECKING:
    from dnp3.outstation import OutstationTcpRunner

__all__ = ["Dnp3", "Dnp3Settings"]

CHECK_SECONDS = 0.2
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Dnp3Settings(FeedSettings):
    """Settings of a DNP3 outstation."""

    host: str = Field(default="127.0.0.1", max_length=255)
    """Where it listens."""
    port: int = Field(default=20000, ge=0, le=65535)
    outstation_address: int = Field(default=1, ge=0, le=65519)
    master_address: int = Field(default=2, ge=1, le=65519)
    """Frames of any other master are not answered."""
    master_hosts: tuple[str, ...] = Field(default=(), max_length=16)
    """Addresses that may connect; needed where ``host`` is not this machine alone."""
    watts_per_count: float = Field(default=1000.0, gt=0, le=1e6)
    """Of every analog value: 1000 = kW. Static analog inputs are whole numbers of 32 bits."""
    limit_index: int = Field(default=0, ge=0, le=65535)
    neutral_kw: float = Field(gt=0, le=1e8)
    """A limit at or above it asks for nothing: the connection's capacity, say."""
    limit_minutes: float | None = Field(default=None, gt=0, le=14 * 1440)
    """How long a written limit holds; written again it holds anew. Unset = until it is released."""
    emergency_index: int | None = Field(default=None, ge=0, le=65535)
    """A binary output: latched on it asks for ``emergency_target``, latched off no longer."""
    emergency_target: Mapping[str, float] | None = None
    """Such as ``{limit_kw: 200}``."""
    stale_seconds: float = Field(default=300.0, ge=1, le=86400)
    """A master that asks nothing for so long is flagged; nothing is released."""

    @model_validator(mode="after")
    def _whole(self) -> "Dnp3Settings":
        if (self.emergency_index is None) != (self.emergency_target is None):
            raise ValueError("emergency_index and emergency_target belong together")
        return self


@FEED_KINDS.register("dnp3")
class Dnp3(Feed[Dnp3Settings]):
    """Serves one master at a time."""

    settings_model = Dnp3Settings

    def __init__(self, context: FeedContext, settings: Dnp3Settings) -> None:
        super().__init__(context, settings)
        if settings.host not in _LOOPBACK and not settings.master_hosts:
            raise ConfigError(
                "dnp3-open", f"{settings.host} is open to a network, and no master_hosts are named"
            )
        self._emergency = (
            None
            if settings.emergency_target is None
            else target_from_mapping(settings.emergency_target)
        )
        self._points = Points(settings)
        self._closing = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._emit: Callable[[Signal], object] | None = None
        self._written: dict[str, Signal] = {}
        self.port: int | None = None
        """Where it listens, once it does."""

    def listen(self, emit: Callable[[Signal], object], heard: Callable[[], None]) -> None:
        """Serve masters until it is closed.

        Raises:
            Unavailable: the address cannot be listened on (``dnp3-unreachable``).
        """
        from dnp3.transport_io.channel import ChannelError

        self._emit = emit
        try:
            asyncio.run(self._serve(heard))
        except (OSError, ChannelError) as error:
            raise Unavailable("dnp3-unreachable", f"{self.settings.host}: {error}") from error
        finally:
            self._emit = self._loop = None

    def close(self) -> None:
        """Let :meth:`listen` return."""
        self._closing.set()

    def standing(self) -> Sequence[Signal]:
        """The limit and the emergency that stand, as they were written since the process began."""
        at = self.context.clock.wall()
        kept = [(key, kept_limit(self.context.memory, key)) for key in tuple(self._written)]
        return [self._written[key] for key, limit in kept if limit.is_active(at)]

    def can_tell(self) -> bool:
        """Always: its points say what is in force."""
        return True

    def tell(self, report: FeedReport) -> None:
        """Show on the points what became of an event."""
        event, status = report.event, report.status
        self._soon(lambda: self._points.show_event(event, status))

    def report(self, telemetry: FeedTelemetry) -> None:
        """Show on the points what the site draws."""
        self._soon(lambda: self._points.show_site(telemetry))

    # Commands of the master, on the loop of the outstation ------------------------------------

    def command_limit(self, value: float, *, select: bool) -> Refusal | None:
        """A limit was selected, or written; None = it was accepted."""
        watts = value * self.settings.watts_per_count
        if not 0 <= watts <= 1e11:  # NaN too
            return Refusal.OUT_OF_RANGE
        if select:
            return None
        if watts >= self.settings.neutral_kw * 1e3:
            return self._release("limit")
        return self._ask("limit", TargetSpec(Quantity.LIMIT_WATTS, watts), f"AO={value!r}")

    def command_emergency(self, on: bool, *, select: bool) -> Refusal | None:
        """The emergency was selected, or latched; None = it was accepted."""
        if select:
            return None
        if not on:
            return self._release("emergency")
        assert self._emergency is not None
        return self._ask("emergency", self._emergency, "BO=on")

    def _ask(self, key: str, target: TargetSpec, raw: str) -> Refusal | None:
        at = self.context.clock.wall()
        minutes = self.settings.limit_minutes
        end = None if minutes is None else at + timedelta(minutes=minutes)
        before = kept_limit(self.context.memory, key)
        after, request = before.asked(EventRequest(at, end, target, immediate=True), at)
        return self._say(key, after, request, raw)

    def _release(self, key: str) -> Refusal | None:
        before = kept_limit(self.context.memory, key)
        if not before.is_active(self.context.clock.wall()):
            return None  # nothing stands: a release of nothing is carried out already
        return self._say(key, before.released(), None, "released")

    def _say(
        self, key: str, after: StandingLimit, request: EventRequest | None, raw: str
    ) -> Refusal | None:
        """Hand a signal to control; the master is answered once it is durable."""
        clock = self.context.clock
        emit = self._emit
        if emit is None:
            return Refusal.AWAY
        signal = Signal(
            self.context.feed_id,
            after.name(key),
            after.revision,
            clock.wall(),
            clock.monotonic_seconds(),
            request,
            f"{self.settings.master_address}: {raw}",
        )
        try:
            receipt = emit(signal)
            after.keep(self.context.memory, key)
            self._written[key] = signal
        except InvalidInput:
            return Refusal.OUT_OF_RANGE
        except GridawareError as error:
            return Refusal.AWAY if error.retryable else Refusal.BLOCKED
        if isinstance(receipt, Receipt) and receipt.disposition == "opted-out":
            return Refusal.LOCAL
        return None

    # ------------------------------------------------------------------------------------------

    async def _serve(self, heard: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        clock = self.context.clock
        asked_seconds = clock.monotonic_seconds()

        def on_request() -> None:
            nonlocal asked_seconds
            asked_seconds = clock.monotonic_seconds()
            heard()

        runner = self._points.runner(self, on_request)
        serving = asyncio.create_task(runner.run())
        try:
            while not self._closing.is_set() and not serving.done():
                await asyncio.sleep(CHECK_SECONDS if self.port else 0.01)
                address = runner.local_address
                self.port = None if address is None else address[1]
                silent = clock.monotonic_seconds() - asked_seconds
                self._points.show_stale(silent > self.settings.stale_seconds)
        finally:
            await self._stop(runner, serving)

    async def _stop(self, runner: "OutstationTcpRunner", serving: "asyncio.Task[None]") -> None:
        self.port = None
        if not serving.done():
            await runner.stop()
        await serving

    def _soon(self, work: Callable[[], None]) -> None:
        loop: Any = self._loop
        if loop is None:
            work()  # nobody serves: the points are nobody else's
            return
        try:
            loop.call_soon_threadsafe(work)
        except RuntimeError:
            return  # it ends just now; whoever serves next is told again
