"""The control process: the loop, the agents' streams, the feeds and the only writer of the store.

``python -m gridaware.wiring.control --config FILE``
"""

import argparse
import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from gridaware.clock import Clock, SystemClock
from gridaware.control import jobs
from gridaware.control.dispatch import Dispatcher
from gridaware.control.instructions import Answer, Instruction
from gridaware.control.loop import Loop, SteadyClock
from gridaware.control.observe import Observer
from gridaware.control.ports import Receipt
from gridaware.control.state import State
from gridaware.control.stimuli import (
    InputRefused,
    NodeLost,
    RunnerReported,
    SignalReceived,
    SiteConfigured,
    Started,
    Stimulus,
    SubmitFailed,
    Tick,
)
from gridaware.domain.errors import ConfigError, GridawareError, Refused
from gridaware.domain.fixes import fix_for
from gridaware.domain.job import JobState
from gridaware.domain.moment import Moment
from gridaware.domain.reading import EnergyReading, Observation, Reading
from gridaware.domain.signal import Signal
from gridaware.domain.wire import Fenced, Hello, JobProgress, NodeFault, SampleBatch
from gridaware.feeds.http_listener import build_app
from gridaware.feeds.runner import FeedRunner
from gridaware.jobs.poller import JobPoller
from gridaware.jobs.ray_runner import RayRunner
from gridaware.node.link import AgentMessage, LinkServer
from gridaware.node.openfiles import raise_open_files
from gridaware.node.tls import controller_context
from gridaware.store.controller import ControllerStore
from gridaware.store.reader import StoreReader
from gridaware.wiring.commands import CommandDesk, tell_holder
from gridaware.wiring.config import Settings, load_settings
from gridaware.wiring.curves import load_curves
from gridaware.wiring.effects import ControlEffects
from gridaware.wiring.handlers import Handlers, refusal_of
from gridaware.wiring.identity import voucher
from gridaware.wiring.meter_reader import meter_order, meter_readers
from gridaware.wiring.policies import load_policy, rehearse
from gridaware.wiring.recovery import quiet, recover, write_snapshot
from gridaware.wiring.series import SeriesWriter
from gridaware.wiring.settle import Settler
from gridaware.wiring.telemetry import report_to_feeds

__all__ = ["ControlProcess", "main"]

SNAPSHOT_SECONDS = 300.0
SOCKET = "control.sock"
SWITCH_SECONDS = 0.0005
"""How long another thread (the store's, a feed's) may keep the loop from the interpreter: Python's
own 5 ms are a third of a response."""
_STARTED = {JobState.RUNNING, JobState.CAPPED, JobState.STALLED, JobState.PAUSING}
_log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """The process's signals are ours: uvicorn takes none."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signal handlers as they are."""
        yield


class ControlProcess:
    """Everything of one controller, put together. :meth:`run` lives until it is cancelled."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Take the store, and find the state again where an earlier controller left it.

        Raises:
            Refused: another controller runs on this store.
            ConfigError: something in the settings is wrong.
        """
        self._settings, self._clock = settings, clock
        self._async: asyncio.AbstractEventLoop | None = None
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        policy_dir = settings.control.policy_dir
        policy = load_policy(
            settings.control.policy, None if policy_dir is None else settings.path(policy_dir)
        )
        site = settings.site_value(policy)
        book = load_curves()
        rehearse(policy, book)
        meters = meter_readers(settings, clock, self, self._hz)
        self._store = ControllerStore(
            settings.store_url,
            site_id=site.name,
            started_at=clock.wall(),
            after_epoch=settings.control.after_epoch,
        )
        reader = StoreReader(settings.store_url)
        self._settler = Settler(site.overhead)
        run = recover(self._store, reader, book, self._settler.watch)
        reader.close()
        self._steady = SteadyClock(clock, run.last)
        self._observer = Observer(meter_order(settings))
        self._link = LinkServer(clock, silence_seconds=settings.control.silence_seconds)
        self._feeds = FeedRunner(
            clock, self._emit, self._refused, self._untold, settings.state_dir / "feeds"
        )
        runner = RayRunner(settings.ray.address, settings.ray_token())
        self._poller = JobPoller(runner, clock, self._from_thread)
        self.effects = ControlEffects(
            self._store, self._settler, self._poller, self._feeds, self._state, clock
        )
        self._series = SeriesWriter(self._store, self._settler)
        self._loop = Loop(
            run.machine,
            self._steady,
            self._store.ledger,
            Dispatcher(self._link, self.effects, clock),
            self._observe,
            self._watch,
            tick_seconds=settings.control.tick_seconds,
        )
        self._handlers = Handlers(
            self._loop, self._store, self._feeds, runner, self._steady, self.effects
        )
        self._meters = meters
        self._site = site

    async def run(self) -> None:
        """Serve until cancelled; then leave every agent with its lease, and the store closed."""
        self._async = asyncio.get_running_loop()
        control = self._settings.control
        tls = self._settings.tls_dir
        try:
            self._post_start()
            context = controller_context(
                tls / "ca.pem", tls / "controller.pem", tls / "controller.key"
            )
            await self._link.start(
                control.agents_host,
                control.agents_port,
                context,
                self._store.epoch,
                self,
                voucher(tls / "ca.pem", self._clock),
            )
            desk = CommandDesk(
                self._settings.state_dir / SOCKET,
                self._handlers.by_name(),
                self._store.idempotency,
                self._clock,
            )
            await desk.start()
            self._start_threads()
            # What was made so far stays: searching it for garbage would stop the loop for longer
            # than a whole response takes.
            gc.freeze()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._loop.run())
                tasks.create_task(self._listen())
                tasks.create_task(self._housekeeping())
        finally:
            await self._close()

    def _post_start(self) -> None:
        self._loop.post(Started(self._store.epoch))
        self._loop.post(SiteConfigured(self._site))
        state = self._state()
        for name, track in state.jobs.items():
            self.effects.publish("job", name)
            if track.job.state in _STARTED:
                self._poller.expect(name, track.job.attempt)
        for spec in state.feeds.values():
            try:
                self._feeds.add(spec, self._handlers.registered_at(spec.feed_id))
            except GridawareError as error:
                _log.error("feed %s does not start: %s", spec.feed_id, error)

    def _start_threads(self) -> None:
        self._feeds.start()
        self._poller.start()
        for meter in self._meters:
            meter.start()

    async def _listen(self) -> None:
        """Hear signals on control's own port."""
        control = self._settings.control
        config = uvicorn.Config(
            build_app(self._feeds, self._accept, self._clock),
            host=control.signals_host,
            port=control.signals_port,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        await _Server(config).serve()

    async def _housekeeping(self) -> None:
        """Heartbeats, and snapshots while no event's report needs what came before."""
        last = self._steady.now().seconds
        while True:
            await asyncio.sleep(1.0)
            now = self._steady.now()
            self._refresh(round(now.seconds))
            machine = self._loop.machine
            report_to_feeds(self._feeds, machine.state, machine.book, self._clock)
            with contextlib.suppress(GridawareError):
                # The web process judges its age by the system's own clock, however it was set.
                self._store.heartbeat(self._clock.wall())
                if now.seconds - last >= SNAPSHOT_SECONDS and quiet(self._state()):
                    last = now.seconds
                    write_snapshot(self._store, self._loop.machine, self._loop.last_seq, now)

    def _refresh(self, second: int) -> None:
        """Write again what moves all the time: power, draws, free GPUs."""
        state = self._state()
        self.effects.publish("status", "site")
        self.effects.publish_feeds()
        if second % 2 == 0:
            for node_id in state.nodes:
                self.effects.publish("node", node_id)
            for job_id, track in state.jobs.items():
                if track.job.state.on_gpus:
                    self.effects.publish("job", job_id)
            for event_id, event in state.events.items():
                if event.event.state.acting:
                    self.effects.publish("event", event_id)

    async def _close(self) -> None:
        for meter in self._meters:
            meter.stop()
        self._poller.stop(2.0)
        self._feeds.stop()
        await self._link.stop()
        self.effects.write_waiting()
        self.effects.close()
        self._series.close()
        if quiet(self._state()):
            with contextlib.suppress(GridawareError):
                now = self._steady.now()
                write_snapshot(self._store, self._loop.machine, self._loop.last_seq, now)
        self._store.close()

    # What comes in -----------------------------------------------------------------------------

    def on_hello(self, hello: Hello, moment: Moment) -> None:
        """An agent is connected."""
        del moment
        self._loop.post(hello)

    def on_message(self, node_id: str, message: AgentMessage, moment: Moment) -> None:
        """An agent said something: readings wait for the tick, the rest is a stimulus."""
        del moment
        seconds = self._steady.now().seconds
        match message:
            case SampleBatch():
                self._observer.on_samples(message, seconds)
            case JobProgress():
                self._observer.on_progress(message, seconds)
                if jobs.progress_matters(self._state(), message):
                    self._loop.post(message)
            case Fenced():
                _log.critical("%s obeys a newer controller: %s", node_id, message.message)
                self._loop.post(NodeFault(node_id, message.code, None, message.message))
            case _:
                self._loop.post(message)

    def on_lost(self, node_id: str, moment: Moment) -> None:
        """An agent's stream is gone."""
        del moment
        self._loop.post(NodeLost(node_id))

    async def _accept(self, signal: Signal) -> Receipt:
        """Take a signal in; returns once it is durable.

        Raises:
            Refused: the machine refuses it.
            Unavailable: it cannot be made durable.
        """
        answer = _answer(self._loop.post(SignalReceived(signal)))
        self.effects.write("event", answer.subject)  # what people read is on the disk with it
        await self._store.ledger.durable(self._loop.last_seq)
        if answer.disposition == "refused":
            raise refusal_of(answer)
        return Receipt(answer.subject, answer.revision, answer.disposition, answer.message)

    def _emit(self, signal: Signal) -> Receipt:
        """A polled signal, from a worker thread."""
        assert self._async is not None
        return asyncio.run_coroutine_threadsafe(self._accept(signal), self._async).result(10.0)

    def _refused(self, feed_id: str, code: str, message: str, raw: str) -> None:
        self._from_thread(InputRefused(f"feed:{feed_id}", code, message, raw))

    def _untold(self, feed_id: str, report: object, error: GridawareError) -> None:
        del report
        _log.warning("feed %s could not be told: %s", feed_id, error)

    def on_meter(
        self, name: str, reading: Reading, energy: EnergyReading | None, seconds: float
    ) -> None:
        """A meter was read, on its own thread."""
        del seconds
        self._in_loop(
            lambda: self._observer.on_meter(name, reading, energy, self._steady.now().seconds)
        )

    def on_meter_failed(self, name: str, message: str) -> None:
        """A meter could not be read, on its own thread."""
        self._in_loop(lambda: self._observer.on_meter_failed(name, message))

    def _in_loop(self, work: Callable[[], None]) -> None:
        if self._async is not None:  # else nobody looks yet
            with contextlib.suppress(RuntimeError):  # the loop is closing
                self._async.call_soon_threadsafe(work)

    def _from_thread(self, stimulus: Stimulus | RunnerReported | SubmitFailed) -> None:
        assert self._async is not None
        with contextlib.suppress(RuntimeError):  # the loop is closing
            self._async.call_soon_threadsafe(self._post_quietly, stimulus)

    def _post_quietly(self, stimulus: Stimulus) -> None:
        try:
            self._loop.post(stimulus)
        except GridawareError as error:
            _log.error("%s was not taken in: %s", type(stimulus).__name__, error)

    # What the loop asks ------------------------------------------------------------------------

    def _state(self) -> State:
        return self._loop.machine.state

    def _hz(self) -> float:
        return self._loop.machine.state.sample_hz

    def _observe(self, moment: Moment) -> Observation:
        free, total = self._poller.capacity
        self._observer.on_ray(None if free is None or total is None else (free, total))
        state = self._state()
        return self._observer.observe(moment, state.site.overhead, state.nodes.keys())

    def _watch(self, stimulus: Stimulus, moment: Moment, state: State) -> None:
        self._settler.watch(stimulus, moment, state)
        if isinstance(stimulus, Tick):
            self._series.on_tick(stimulus.observation, state)


def _answer(instructions: list[Instruction]) -> Answer:
    for instruction in instructions:
        if isinstance(instruction, Answer):
            return instruction
    raise Refused("no-answer", "nothing was said about it")


async def _serve(settings: Settings, clock: Clock) -> None:
    process = ControlProcess(settings, clock)
    task = asyncio.ensure_future(process.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main(arguments: list[str] | None = None) -> int:
    """Run the control process until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m gridaware.wiring.control")
    parser.add_argument("--config", type=Path, required=True, help="the site's settings file")
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    raise_open_files()
    try:
        settings = load_settings(options.config)
        try:
            asyncio.run(_serve(settings, SystemClock()))
        except Refused as error:
            if error.code == "store-locked":
                tell_holder(settings.state_dir / SOCKET, error)
            raise
    except GridawareError as error:
        fix = fix_for(error.code)
        told = f"error[{error.code}]: {error.message}\n" + (f"  fix      {fix}\n" if fix else "")
        sys.stderr.write(told)
        return {Refused: 4, ConfigError: 2}.get(type(error), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
