"""The report of one grid event: what was owed, what was delivered, and what it cost whom.

Every figure is a function of what is passed in: the event as control knows it, the power series
of its meter, two snapshots of the energy book, the acknowledgements and the pauses. ``evidence``
names the series, their boundary and how many readings stand behind the figures. Powers are at the
site meter, consumption positive; *delivered* is the reference less the measured mean.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf

from gridaware.domain.errors import InvalidInput
from gridaware.domain.event import Escalation, GridEvent, Reference
from gridaware.domain.programme import Programme
from gridaware.domain.stepseries import StepSeries
from gridaware.domain.target import Ramp
from gridaware.settlement.attribution import Snapshot
from gridaware.settlement.baselines.meter_before_after import meter_after_watts
from gridaware.settlement.delivery import Delivery, delivery
from gridaware.settlement.energy_report import EnergyFigure, EnergyReport, energy_report
from gridaware.settlement.impact import JobImpact, PauseEvidence, job_impacts
from gridaware.settlement.meter_log import MeterSpan, meter_warnings, within
from gridaware.settlement.record import ResponseRecord
from gridaware.settlement.response import (
    Latencies,
    NodeClock,
    NodeLatency,
    PowerCurve,
    Rates,
    latencies,
    node_latencies,
    power_curve,
    ramp_rates,
)

__all__ = ["SCHEMA", "EventInputs", "EventReport", "Evidence", "settle_event"]

SCHEMA = "gridaware.event-report/1"
DRIFT = 0.10
"""A mean after the event this far from the reference means that the load itself moved."""
COMPLETE = 0.95


@dataclass(frozen=True, slots=True)
class Evidence:
    """A series that figures of the report were computed from."""

    series: str
    boundary: str
    method: str
    readings: int
    start: datetime
    end: datetime
    coverage: float
    meter: str = ""
    """Its name, where the site has several."""
    accuracy_share: float | None = None
    """The truth lies within ± this share of a reading; None = nobody says."""


@dataclass(frozen=True, slots=True)
class EventInputs:
    """What an event is settled from."""

    meter: StepSeries
    """Power at the site meter, UTC seconds, from before the notice to now."""
    before: Snapshot
    """Of the energy book, when the ramp down began."""
    after: Snapshot
    """Of the energy book, now or when limits were back."""
    limit: StepSeries | None = None
    """What was owed, where revisions changed it; else the event's own limit throughout."""
    node_clocks: tuple[NodeClock, ...] = ()
    response: ResponseRecord | None = None
    pauses: tuple[PauseEvidence, ...] = ()
    ramp: Ramp = Ramp()
    meters: tuple[MeterSpan, ...] = (MeterSpan(-inf, inf, "", "meter", "site", None),)
    """Which meter was read when, from before the notice to now."""


@dataclass(frozen=True, slots=True)
class EventReport:
    """What an event came to. ``final`` once no later reading can change it."""

    schema: str
    final: bool
    generated_at: datetime
    event_id: str
    feed_id: str
    programme_id: str
    revision: int
    kind: str
    state: str
    reason: str
    window_start: datetime
    window_end: datetime
    ready_at: datetime
    """Start plus the programme's deadline: from here on intervals are scored."""
    received_at: datetime
    released_at: datetime | None
    restored_at: datetime | None
    latencies: Latencies
    nodes: tuple[NodeLatency, ...]
    reference: Reference
    reference_after_watts: float | None
    """Mean after limits were back, as a check on the reference; settles nothing."""
    limit_watts: float
    clamped_from_watts: float | None
    delivery: Delivery
    rates: Rates
    unresolved_watts: float
    paid_band: tuple[float, float]
    jobs: tuple[JobImpact, ...]
    pauses: tuple[PauseEvidence, ...]
    energy: EnergyReport
    evidence: tuple[Evidence, ...]
    curve: PowerCurve
    warnings: tuple[str, ...]
    response: ResponseRecord | None = None
    """The four clocks GPU by GPU; None where no GPU got a new limit."""
    escalations: tuple[Escalation, ...] = ()
    """Rungs taken for GPUs that did not follow."""
    opted_out_by: str | None = None
    """Who took the site out of it, or released limits that it held, and why."""
    programme_version: str = ""
    """Of the catalogue: the rules in force when it began; "" = the site's own."""
    voluntary: str = ""
    """Reason code why nothing was owed; "" = it was."""
    tariff_baseline: str = ""
    """What the programme settles by, where it is not what was used here; else ""."""


def settle_event(
    event: GridEvent,
    programme: Programme,
    inputs: EventInputs,
    *,
    generated_at: datetime,
    final: bool,
) -> EventReport:
    """Settle one event.

    Raises:
        InvalidInput: it has no reference or limit (``event-not-settleable``), or its window is
            empty.
    """
    reference, limit = _measure_of(event)
    start, end, settled_end = _window(event, inputs)
    ready = min(start + programme.deadline_seconds, end)
    limits = inputs.limit or StepSeries.constant(limit, start, end)
    step = programme.settlement_interval_seconds
    delivered = delivery(
        inputs.meter, limits, reference.watts, start=start, ready=ready, end=end, step=step
    )
    energy = energy_report(inputs.before, inputs.after)
    after_watts = _watts_after(event, inputs.meter, reference)
    return EventReport(
        schema=SCHEMA,
        final=final,
        generated_at=generated_at,
        event_id=event.event_id,
        feed_id=event.feed_id,
        programme_id=event.programme_id,
        revision=event.revision,
        kind=event.request.kind.value,
        state=event.state.value,
        reason=event.reason,
        opted_out_by=event.opted_out_by,
        window_start=_utc(start),
        window_end=_utc(end),
        ready_at=_utc(ready),
        received_at=event.received_at,
        released_at=event.released_at,
        restored_at=event.restored_at,
        latencies=latencies(event.clocks),
        nodes=node_latencies(event.clocks, inputs.node_clocks),
        reference=reference,
        reference_after_watts=after_watts,
        limit_watts=limit,
        clamped_from_watts=event.clamped_from_watts,
        delivery=delivered,
        rates=ramp_rates(inputs.meter, start, settled_end, _bound_by(programme, inputs.ramp)),
        unresolved_watts=event.unresolved_watts,
        paid_band=programme.paid_band,
        jobs=job_impacts(energy, inputs.before, inputs.after),
        pauses=inputs.pauses,
        energy=energy,
        evidence=_evidence(inputs, reference, start, end, energy),
        curve=power_curve(inputs.meter, limits, start - _lead(start, settled_end), settled_end),
        warnings=_once(
            *_warnings(event, programme, reference, after_watts, delivered),
            *_meter_warnings(inputs, reference, settled_end),
            *energy.warnings,
        ),
        response=inputs.response,
        escalations=event.escalations,
        programme_version=programme.version,
        voluntary=event.voluntary,
        tariff_baseline=programme.tariff_baseline,
    )


def _measure_of(event: GridEvent) -> tuple[Reference, float]:
    """What the event is measured against, and its limit in watts."""
    if event.reference is None or event.limit_watts is None:
        raise InvalidInput(
            "event-not-settleable", f"event {event.event_id} has no reference or no limit"
        )
    return event.reference, event.limit_watts


def _bound_by(programme: Programme, ramp: Ramp) -> Ramp:
    """The site's ramp as far as it binds an event of this programme."""
    return replace(ramp, down_watts_per_minute=None) if programme.ramp_exempt else ramp


def _watts_after(event: GridEvent, meter: StepSeries, reference: Reference) -> float | None:
    if event.restored_at is None:
        return None
    return meter_after_watts(meter, event.restored_at.timestamp(), reference.window_seconds)


def _lead(start: float, end: float) -> float:
    """Seconds before the event that its figure shows: a fifth of the rest, 15 s to 15 min."""
    return min(max((end - start) / 5, 15.0), 900.0)


def _window(event: GridEvent, inputs: EventInputs) -> tuple[float, float, float]:
    """Start and end of what is owed, and the end of the meter's series, UTC seconds.

    An event that arrives after its start is owed from its arrival; one that was cancelled or opted
    out of, or has no end, is owed until its release.
    """
    start = max(event.request.start, event.received_at).timestamp()
    last = inputs.meter.times[-1] if len(inputs.meter) else start
    ends = [last]
    if event.request.end is not None:
        ends.append(event.request.end.timestamp())
    if event.released_at is not None:
        ends.append(event.released_at.timestamp())
    end = min(ends)
    if not end > start:
        raise InvalidInput("window-empty", f"event {event.event_id} has no readings to settle")
    return start, end, last


def _evidence(
    inputs: EventInputs, reference: Reference, start: float, end: float, energy: EnergyReport
) -> tuple[Evidence, ...]:
    notice = reference.frozen_at.timestamp()
    spans = [
        ("meter, reference window", notice - reference.window_seconds, notice),
        ("meter, event window", start, end),
    ]
    rows = [row for name, a, b in spans for row in _meter_evidence(inputs, name, a, b)]
    rows.append(_energy_evidence("meter, energy", energy.boundary, [energy.meter], energy))
    rows.append(_energy_evidence("GPUs, energy", "gpu", energy.gpus, energy))
    return tuple(rows)


def _meter_evidence(
    inputs: EventInputs, series: str, start: float, end: float
) -> Iterator[Evidence]:
    """A row for each meter that was read in a window, in the order of time."""
    for span in within(inputs.meters, start, end):
        yield Evidence(
            series=series,
            boundary=span.boundary,
            method=span.method,
            readings=inputs.meter.readings_in(span.start, span.end),
            start=_utc(span.start),
            end=_utc(span.end),
            coverage=inputs.meter.integral(span.start, span.end).coverage,
            meter=span.meter,
            accuracy_share=span.accuracy_share,
        )


def _energy_evidence(
    series: str, boundary: str, figures: Sequence[EnergyFigure], energy: EnergyReport
) -> Evidence:
    methods = {figure.method for figure in figures}
    return Evidence(
        series=series,
        boundary=boundary,
        method=methods.pop() if len(methods) == 1 else "mixed",
        readings=sum(figure.readings for figure in figures),
        start=energy.start,
        end=energy.end,
        coverage=min((figure.coverage for figure in figures), default=0.0),
    )


def _warnings(
    event: GridEvent,
    programme: Programme,
    reference: Reference,
    after_watts: float | None,
    delivered: Delivery,
) -> tuple[str, ...]:
    found = []
    if not any(row.scored for row in delivered.intervals):
        found.append("window-shorter-than-deadline")
    if any(row.coverage < COMPLETE for row in delivered.intervals):
        found.append("meter-incomplete")
    if programme.tariff_baseline:
        found.append("baseline-not-programmes")
    if reference.quality != "measured":
        found.append("reference-not-measured")
    if after_watts is not None and abs(after_watts - reference.watts) > DRIFT * reference.watts:
        found.append("reference-drifted")
    if event.clamped_from_watts is not None:
        found.append("clamped-to-authority")
    if event.unresolved_watts > 0:
        found.append("unresolved-watts")
    if event.escalations:
        found.append("gpus-not-following")
    return tuple(found)


def _meter_warnings(inputs: EventInputs, reference: Reference, end: float) -> tuple[str, ...]:
    """Of every meter that was read between the reference's beginning and the end."""
    start = reference.frozen_at.timestamp() - reference.window_seconds
    return meter_warnings((s.meter, s.method) for s in within(inputs.meters, start, end))


def _once(*words: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
