"""What the machine takes from the site's meters: its power, alarms, and how far to trust it."""

from gridaware.control.state import State, Turn
from gridaware.domain.reading import Method, Observation, Quality, Reading

__all__ = ["note_meters", "take_meter", "uncertain_share"]

PROBLEMS = ("meter-silent", "meter-stale", "meter-implausible", "meter-stuck")
"""The alarms of a meter, each for as long as it stands."""
CARRY_SECONDS = 2.0
"""An older reading is carried on by what the GPUs' own sensors have moved since."""
HISTORY_SECONDS = 120.0
"""The oldest reading that can be carried on."""
HISTORY_STEP_SECONDS = 0.45


def take_meter(turn: Turn, observation: Observation) -> None:
    """What the site draws; while no meter speaks, what the GPUs' sensors say it draws."""
    state, reading = turn.state, observation.meter
    state.meter_silent = reading.quality in {Quality.HELD, Quality.SUSPECT, Quality.MISSING}
    if reading.quality in {Quality.SUSPECT, Quality.MISSING}:
        # What the overhead model leaves out was learned while the meter spoke: it still holds.
        learned = 1.0 + state.tracker.bias if state.tracker.at_seconds is not None else 1.0
        state.meter_watts = state.meter_of(state.gpu_watts) * learned
    else:
        state.meter_watts = reading.watts + _moved_watts(turn, reading)


def note_meters(turn: Turn, observation: Observation) -> None:
    """Remember which meters speak and which are ill, whether what they say is believed or not."""
    _alarm(turn, observation)
    turn.state.reading, turn.state.meters = observation.meter, observation.meters


def uncertain_share(state: State) -> float:
    """By how much the meter in use is less sure than the site's first: margin to keep free."""
    if state.reading is None or not state.meters:
        return 0.0
    share = state.reading.accuracy_share or 0.0
    return max(share - state.meters[0].accuracy_share, 0.0)


def _moved_watts(turn: Turn, reading: Reading) -> float:
    """What the GPUs have moved since the reading was taken, at the meter."""
    state, now = turn.state, turn.now.seconds
    history = state.gpu_history
    if not history or now - history[-1][0] >= HISTORY_STEP_SECONDS:
        history.append((now, state.gpu_watts))
        while history[0][0] < now - HISTORY_SECONDS:
            del history[0]
    if reading.method is Method.DEVICE_SUM or reading.age_seconds <= CARRY_SECONDS:
        return 0.0
    taken = now - reading.age_seconds
    then = next((watts for at, watts in reversed(history) if at <= taken), history[0][1])
    return state.site.overhead.slope * (state.gpu_watts - then)


def _alarm(turn: Turn, observation: Observation) -> None:
    """Say which meters are ill, that nodes are missing, and that another meter speaks now."""
    reading = observation.meter
    if reading.quality is Quality.MISSING:
        turn.alarm(
            "readings-missing", "the readings of some nodes are not there: held as they were"
        )
    else:
        turn.calm("readings-missing")
    for meter in observation.meters:
        for problem in PROBLEMS:
            if problem == meter.problem:
                turn.alarm(problem, f"{meter.name}: {meter.detail}", meter.name)
            else:
                turn.calm(problem, meter.name)
    # An older ledger does not name its meters.
    if not observation.meters and reading.quality is Quality.SUSPECT:
        turn.alarm("meter-silent", "the site meter does not answer; the GPUs' sensors stand in")
    elif reading.quality is not Quality.SUSPECT:
        turn.calm("meter-silent")
    before = turn.state.reading
    if before is not None and before.meter and reading.meter not in {"", before.meter}:
        turn.calm("meter-changed")  # each change is told
        share = 100.0 * (reading.accuracy_share or 0.0)
        turn.alarm(
            "meter-changed",
            f"the site's power is now {reading.meter}'s (within {share:g} %), not {before.meter}'s",
        )
