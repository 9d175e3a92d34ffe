"""Ride-through: what a disturbed supply makes readings say is not acted upon.

In a voltage sag the meter, and perhaps the sensors, show far less than the work draws, for tenths
of a second up to about two. A loop that believed them would hand out limits that the site cannot
keep once the voltage is back, and a bias learned from them is wrong for minutes. So while a reading
is disturbed, and for :data:`TAIL_SECONDS` after it, the loop holds what it knew: no reading moves a
limit, nothing is learned, no clock is stopped. What the *grid* asks is answered all the same.

A disturbance is one of

* **declared**: the meter says so itself, or a node's frequency meter saw a blip;
* **sag**: the meter, or the sum of the sensors, shows less than :data:`SAG_SHARE` of what the GPUs
  draw by the last sound reading and the limits in force;
* **meter-gap**: the meter's last reading is repeated, or another meter has just taken its place.

None lasts longer than :data:`LONGEST_SECONDS`: by then it is the load that has changed, or a meter
that is broken, and both are other modules' business.

Source: ERCOT NOGRR282 asks large loads to be back at 90 % within 2 s and to ride through six sags
in 90 s; the frequency rule is :mod:`gridaware.domain.frequency`.
"""

from dataclasses import dataclass, replace

from gridaware.domain.reading import Quality, Reading

__all__ = ["LONGEST_SECONDS", "SAG_SHARE", "TAIL_SECONDS", "RideThrough"]

SAG_SHARE = 0.8
"""Below this share of what is drawn a reading is no reading of it: overheads are assumed to within
a tenth, sensors are right to within a twentieth, and a real sag goes below nine tenths."""
TAIL_SECONDS = 2.0
"""How long after a disturbance the loop stays as it is."""
LONGEST_SECONDS = 5.0
LONG_AGO = -1e9
"""Before any moment; a number that JSON can hold."""


@dataclass(frozen=True, slots=True)
class RideThrough:
    """What the loop remembers of disturbances. A value: each reading gives a new one."""

    cause: str = ""
    """Of the disturbance that a freeze is for; "" = none."""
    present: bool = False
    """The last reading was disturbed."""
    began_seconds: float = LONG_AGO
    """Since when every reading has been."""
    seen_seconds: float = LONG_AGO
    """When it was last seen."""
    outlasted: str = ""
    """A cause that lasted too long to be one; believed until it is gone."""
    meter: str | None = None
    """Which meter was read last; None = none yet, since this controller began."""
    quality: Quality = Quality.GOOD
    """Of its last reading."""
    count: int = 0
    """Disturbances so far."""

    def frozen(self, now_seconds: float) -> bool:
        """Whether the loop stays as it is."""
        return bool(self.cause) and now_seconds < self.seen_seconds + TAIL_SECONDS

    def look(
        self,
        now_seconds: float,
        meter: Reading,
        *,
        sags: bool,
        known: bool = True,
        responding: bool = False,
    ) -> "RideThrough":
        """Take in one reading.

        Args:
            now_seconds: monotonic.
            meter: what the site's meter showed.
            sags: whether meter or sensors show far less than is drawn.
            known: whether there was a sound reading before; the first one follows no other.
            responding: a large command was given just now, so that meter and sensors may tell of
                different moments: that one is doubted is then no gap.
        """
        if meter.quality is Quality.MISSING:
            return self  # nothing was read: the next one follows what was read before
        cause = _cause(self, meter, sags=sags, responding=responding) if known else ""
        state = replace(self, meter=meter.meter, quality=meter.quality, present=bool(cause))
        if cause != self.outlasted:
            state = replace(state, outlasted="")
        if cause == "" or state.outlasted:
            return state if state.frozen(now_seconds) else replace(state, cause="")
        if not self.present:
            state = replace(state, began_seconds=now_seconds)
        elif now_seconds - self.began_seconds > LONGEST_SECONDS:
            return replace(state, cause="", outlasted=cause)
        anew = not self.frozen(now_seconds)
        return replace(state, cause=cause, seen_seconds=now_seconds, count=self.count + anew)

    def declared(self, now_seconds: float) -> "RideThrough":
        """Somebody who measures the supply says that it is disturbed now."""
        return replace(
            self,
            cause="declared",
            seen_seconds=now_seconds,
            count=self.count + (not self.frozen(now_seconds)),
        )


def _cause(before: RideThrough, meter: Reading, *, sags: bool, responding: bool) -> str:
    if meter.disturbed:
        return "declared"
    if sags:
        return "sag"
    silent = meter.quality in {Quality.HELD, Quality.SUSPECT}
    was_silent = before.quality in {Quality.HELD, Quality.SUSPECT}
    if before.meter is None:
        return ""  # there may have been anything in between: what is read now is what is known
    if meter.meter != before.meter:
        return "meter-gap"
    doubted = meter.quality is Quality.HELD or silent != was_silent
    return "meter-gap" if doubted and not responding else ""
