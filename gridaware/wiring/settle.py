"""Event reports: the energy book kept as readings come in, and each event settled from it."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from gridaware.control.state import EventTrack, State
from gridaware.control.stimuli import Dispatched, Stimulus, Tick
from gridaware.domain.errors import GridawareError
from gridaware.domain.event import GridEvent
from gridaware.domain.job import Job, JobState
from gridaware.domain.moment import Moment
from gridaware.domain.reading import Observation, Quality
from gridaware.domain.stepseries import StepSeries
from gridaware.domain.target import Overhead
from gridaware.domain.wire import Acknowledged, CheckpointReport, JobRegistered
from gridaware.settlement.attribution import EnergyBook, Snapshot
from gridaware.settlement.event_report import EventInputs, EventReport, settle_event
from gridaware.settlement.impact import PauseEvidence
from gridaware.settlement.meter_log import MeterLog
from gridaware.settlement.record import Recorder
from gridaware.settlement.response import NodeClock

__all__ = ["Settler"]

METER_SECONDS = 2 * 86400.0
"""How much of the meter is kept in memory for reports of events still open."""
METER_GAP_SECONDS = 15.0
RESPONSES = 64
"""Responses kept until their events are settled for good."""
_log = logging.getLogger(__name__)


class Settler:
    """Watches what control sees and makes the report of an event when it is asked for."""

    def __init__(self, overhead: Overhead) -> None:
        self.book = EnergyBook(overhead)
        self._meter: list[tuple[float, float]] = []
        self._meters = MeterLog()
        self._before: dict[str, Snapshot] = {}
        self._limits: dict[str, list[tuple[float, float | None]]] = {}
        """Event → (UTC seconds, watts) of each limit it had: revisions make steps."""
        self._responses: dict[str, Recorder] = {}
        """Event → the clocks of its GPUs."""
        self._pauses: dict[tuple[str, str], PauseEvidence] = {}

    def watch(self, stimulus: Stimulus, moment: Moment, state: State) -> None:
        """See one stimulus after the machine has taken it in: live, and again on a restart."""
        match stimulus:
            case Tick(observation=observation):
                self._on_decisions(state)
                self._on_observation(observation, (t.job for t in state.jobs.values()))
                for track in state.events.values():
                    self._on_event(track)
                for job_track in state.jobs.values():
                    self._on_job(job_track.job)
                self._on_power(observation, moment, state)
            case Dispatched():
                # Only now, with the frames on their way: nothing delays them.
                self._on_decisions(state)
            case Acknowledged():
                for recorder in self._responses.values():
                    recorder.acknowledged(stimulus, moment.seconds)
            case CheckpointReport():
                self._on_checkpoint(stimulus, moment.wall)
            case JobRegistered(job_id=job_id, resumed_step=step):
                self._on_resumed(job_id, step, moment.wall)
            case _:
                pass

    def _on_observation(self, observation: Observation, jobs: Iterable[Job]) -> None:
        """One tick was read."""
        self.book.add(observation, jobs)
        at = observation.meter.at.timestamp()
        whole = observation.meter.quality is not Quality.MISSING
        if whole and (not self._meter or at > self._meter[-1][0]):
            self._meter.append((at, observation.meter.watts))
            self._meters.note(observation.meter)
        if self._meter and len(self._meter) % 3600 == 0:
            oldest = at - METER_SECONDS
            self._meter = [point for point in self._meter if point[0] >= oldest]
            self._meters.forget_before(oldest)

    def _on_decisions(self, state: State) -> None:
        """An event's first decision was made: the clocks of the GPUs it concerns run."""
        for event_id, track in state.events.items():
            if not track.decision_id or not track.event.state.acting:
                continue
            known = self._responses.get(event_id)
            if known is None or known.decision_id != track.decision_id:
                limits = {node_id: state.nodes[node_id].limits_watts for node_id in track.awaiting}
                self._responses[event_id] = Recorder(track.decision_id, limits, track.awaiting)
                while len(self._responses) > RESPONSES:
                    del self._responses[next(iter(self._responses))]

    def _on_power(self, observation: Observation, moment: Moment, state: State) -> None:
        """Power was read: see which GPUs have come down to their limits."""
        if state.ride.frozen(moment.seconds):
            return
        running = {k: r for k, r in self._responses.items() if r.running}
        if not running:
            return
        limits = {node_id: node.limits_watts for node_id, node in state.nodes.items()}
        for event_id, recorder in running.items():
            track = state.events.get(event_id)
            if track is None or not track.event.state.acting:
                recorder.close()
            else:
                recorder.observed(observation.nodes, limits, moment.seconds)

    def _on_event(self, track: EventTrack) -> None:
        """An event changed: its energy is counted from when it began to act."""
        event_id, limit = track.event.event_id, track.event.limit_watts
        if track.event.state.acting and limit is not None and self._meter:
            steps = self._limits.setdefault(event_id, [])
            if not steps or steps[-1][1] != limit:
                steps.append((self._meter[-1][0], limit))
        if track.event.state.acting and event_id not in self._before:
            try:
                self._before[event_id] = self.book.snapshot()
            except ValueError:
                _log.warning("event %s began before the first reading", event_id)

    def _on_job(self, job: Job) -> None:
        """A job changed: note that it was asked to pause."""
        if job.request_id is None:
            return
        key = (job.spec.job_id, job.request_id)
        pause = self._pauses.get(key)
        if pause is None and job.state is JobState.PAUSING:
            self._pauses[key] = PauseEvidence(
                job_id=job.spec.job_id,
                request_id=job.request_id,
                attempt=job.attempt,
                requested_at=job.state_since,
                verified_at=None,
                checkpoint_path=None,
                step_saved=None,
                outcome="asked",
            )

    def _on_checkpoint(self, report: CheckpointReport, at: datetime) -> None:
        """An agent says what became of a pause."""
        key = (report.job_id, report.request_id)
        pause = self._pauses.get(key)
        if pause is None:
            return
        verified = at if report.outcome in {"saved", "left"} else None
        self._pauses[key] = replace(
            pause,
            verified_at=pause.verified_at or verified,
            checkpoint_path=report.path or pause.checkpoint_path,
            step_saved=report.step if report.step is not None else pause.step_saved,
            outcome=report.outcome,
        )

    def _on_resumed(self, job_id: str, step: int | None, at: datetime) -> None:
        """A later attempt of a paused job registered and says from which step it goes on."""
        for key, pause in self._pauses.items():
            if pause.job_id == job_id and pause.verified_at and pause.resumed_at is None:
                self._pauses[key] = replace(pause, resumed_at=at, step_resumed=step)

    def report(
        self, state: State, event_id: str, *, final: bool, at: datetime
    ) -> EventReport | None:
        """Settle one event; None where it cannot be (it never acted)."""
        track = state.events.get(event_id)
        before = self._before.get(event_id)
        if track is None or before is None:
            return None
        event = track.event
        recorder = self._responses.get(event_id)
        nodes = (
            ()
            if recorder is None
            else tuple(NodeClock(*clock) for clock in recorder.accepted_by_gpu())
        )
        clocks = event.clocks
        response = (
            None
            if recorder is None
            else recorder.record(clocks.received_seconds, clocks.decided_seconds)
        )
        since = event.started_at or event.received_at
        inputs = EventInputs(
            meter=StepSeries.sampled(self._meter, METER_GAP_SECONDS),
            before=before,
            limit=self._limit_of(event_id, event),
            after=self.book.snapshot(),
            node_clocks=nodes,
            response=response,
            pauses=tuple(p for p in self._pauses.values() if p.requested_at >= since),
            ramp=state.site.ramp,
            meters=self._meters.spans,
        )
        programme = state.site.programme(event.programme_id, event.request.start)
        try:
            report = settle_event(event, programme, inputs, generated_at=at, final=final)
        except GridawareError as error:
            _log.warning("event %s cannot be settled: %s", event_id, error)
            return None
        if final:
            self._before.pop(event_id, None)
            self._limits.pop(event_id, None)
            self._responses.pop(event_id, None)
        return report

    def _limit_of(self, event_id: str, event: GridEvent) -> StepSeries | None:
        """What was owed over time, where a revision changed it; None = one limit throughout."""
        steps = self._limits.get(event_id, [])
        if len(steps) < 2 or event.started_at is None:
            return None
        begun = (event.started_at.timestamp(), steps[0][1])
        end = event.released_at or event.request.end
        last = end.timestamp() if end is not None else self._meter[-1][0]
        return StepSeries.held([begun, *steps[1:]], last)
