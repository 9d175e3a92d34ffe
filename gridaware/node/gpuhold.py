"""One GPU in the hands of the lease holder: what it was found at, what we set, what came back.

A GPU that asks to be reset or drained is quarantined: nothing is written to it until a fresh
driver child could write to it again, whatever it answers to reads meanwhile.

Limits count as equal within ``TOLERANCE_WATTS``: drivers round, and some round to whole watts.
"""

from collections.abc import Iterable
from math import isfinite

from gridaware.domain.fleet import LimitRange
from gridaware.node.actions import Device, Fault, GpuRecord, LimitReading, Written

__all__ = ["HUNG", "TOLERANCE_WATTS", "GpuHold", "free_watts", "retry_seconds", "same_watts"]

TOLERANCE_WATTS = 0.75
HUNG = ("device-hung", "DeviceHung")
"""Code and kind of error of a GPU whose driver calls do not return."""
_RETRY_SECONDS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
_CALM_SECONDS = 120.0
"""A corrected limit that stands this long ends the back-off of corrections."""
_MOST_WRITTEN = 8
_TOLD_AGAIN_SECONDS = 60.0
"""A GPU that fails to be read now and then is told no more often than this."""
_UNTIL_IT_ANSWERS = frozenset({"DeviceLost", "DeviceHung"})
_QUARANTINE = "DeviceResetRequired"
_FOR_GOOD = "DeviceNotSupported"
_SILENT = _UNTIL_IT_ANSWERS | {_QUARANTINE}


class GpuHold:
    """Mutable, owned by one :class:`gridaware.node.holder.LeaseHolder`; knows no lease."""

    def __init__(self, gpu_id: str) -> None:
        self.gpu_id = gpu_id
        self.limits: LimitRange | None = None
        self.can_set = False
        self.described = False
        """Whether the driver child told its range, permission and limits."""
        self.standing_watts: float | None = None
        """Requested limit last read while we held nothing."""
        self.enforced_watts: float | None = None
        self.found_watts: float | None = None
        """Frozen before our first change, until the limit has been given back."""
        self.safe = False
        """Whether the journal has the found limit, so that we may change it."""
        self.foreign_watts: float | None = None
        self.asked_watts: float | None = None
        self.written_watts: tuple[float, ...] = ()
        self._stood_watts: float | None = None
        """The last of ours that was read back."""
        self.ticket = 0
        self.in_flight = False
        self.confirmed = False
        self.read_at: float | None = None
        """When the limit that stands was read back, boot seconds."""
        self.error_code: str | None = None
        self.blocked_by: str | None = None
        """Kind of the error that keeps us from trying."""
        self._failures = 0
        self._corrections = 0
        self._corrected_at = 0.0
        self.retry_at = 0.0
        self._told: set[str] = set()
        self._ailing: str | None = None
        """Why the last reading failed."""
        self._ailing_told_at = float("-inf")

    @property
    def touched(self) -> bool:
        """Whether its found limit is frozen."""
        return self.found_watts is not None

    @property
    def settled(self) -> bool:
        """Whether what we last asked for has been read back."""
        return self.confirmed and not self.in_flight

    @property
    def ails(self) -> bool:
        """Whether a fresh driver child is worth a try: it does not answer, or may not be set.

        The latter only while it is ours: its found limit is still to be given back.
        """
        read_only = self.touched and not self.can_set
        return self.blocked_by is not None or not self.described or read_only

    def touch(self) -> None:
        """Freeze the found limit before our first change; nothing where we could not change it."""
        if self.touched or not self.can_set or self.standing_watts is None:
            return
        self.found_watts = self.asked_watts = self._stood_watts = self.standing_watts
        self.written_watts = ()
        self.confirmed = False

    def let_go(self) -> None:
        """The found limit stands again (or a lower foreign one): it is no longer ours."""
        self.standing_watts = self.asked_watts
        self.found_watts = self.asked_watts = self.foreign_watts = None
        self.written_watts = ()
        self.confirmed = self.safe = False

    def record(self) -> GpuRecord | None:
        """What the journal must know of it."""
        if self.found_watts is None:
            return None
        return GpuRecord(self.gpu_id, self.found_watts, self.written_watts, self.foreign_watts)

    def needs_write(self, target_watts: float, now: float) -> bool:
        """Whether ``target_watts`` must be written now."""
        if self.blocked_by is not None or not self.can_set:
            return False
        if self.asked_watts != target_watts:
            return True
        return not self.confirmed and not self.in_flight and now >= self.retry_at

    def begin(self, target_watts: float, ticket: int, *, remember: bool) -> None:
        """A write is on its way. ``remember`` it as a limit of ours that may stand."""
        if remember:
            before = () if self.confirmed else self.written_watts
            seen = dict.fromkeys((self._stood_watts, *before, self.asked_watts))
            kept = [w for w in seen if w is not None and w != target_watts]
            self.written_watts = (*kept[:1], *kept[1:][2 - _MOST_WRITTEN :], target_watts)
        self.asked_watts = target_watts
        self.ticket = ticket
        self.in_flight = True
        self.confirmed = False

    def finish(self, result: Written, now: float) -> list[Fault]:
        """The write came back. One that a newer write has overtaken says nothing."""
        if result.ticket != self.ticket or self.asked_watts is None:
            return []
        self.in_flight = False
        if result.error_kind is not None or result.enforced_watts is None:
            return self._fail(result.error_code or "device-error", result.error_kind, now)
        self.enforced_watts = result.enforced_watts
        if result.enforced_watts > self.asked_watts + TOLERANCE_WATTS:
            return self._fail("limit-not-taken", None, now)
        self.confirmed, self.read_at = True, result.read_at
        self._stood_watts = self.asked_watts
        self.error_code = None
        self._failures = 0
        self.retry_at = 0.0
        self._told -= {"limit-not-taken"}
        faults = self._back()
        if result.enforced_watts < self.asked_watts - TOLERANCE_WATTS:
            faults += self._tell(
                "limit-out-of-band",
                f"asked for {self.asked_watts:g} W, enforced are {result.enforced_watts:g} W: "
                "another limiter is below ours",
            )
        else:
            self._told.discard("limit-out-of-band")
        return faults

    def abandon(self, code: str | None) -> None:
        """Nobody can say any more what stands.

        ``code``: why a write that was out will not be answered; None where none was.
        """
        if self.touched:
            self.confirmed = False
            self.error_code = code
        self.in_flight = False

    def observe(self, reading: LimitReading, own_target_watts: float, now: float) -> list[Fault]:
        """A reading outside our writes: the found limit, drift, or a foreign limit.

        ``own_target_watts`` is what we want regardless of foreign limits.
        """
        requested, enforced = reading.requested_watts, reading.enforced_watts
        if requested is None or enforced is None or not isfinite(requested + enforced):
            return self._unread(reading, now)
        faults = [*self._permitted(reading.can_set), *self._back()]
        if not self.touched:
            self.standing_watts, self.enforced_watts = requested, enforced
            return faults
        if reading.ticket != self.ticket or not self.settled:
            return faults
        self.enforced_watts = enforced
        return faults + self._compare(requested, enforced, own_target_watts, now)

    def resume(self, device: Device, own_target_watts: float, *, ramping: bool) -> list[Fault]:
        """A new driver child sees the GPU: whose is the limit that stands?

        Ours if it is one that we wrote (any between held and found while ``ramping``); a lower one
        is foreign, a higher one has drifted and will be written again.
        """
        self.ticket = 0
        self.in_flight = self.confirmed = False
        requested, enforced = device.requested_watts, device.enforced_watts
        if requested is None or enforced is None or self.found_watts is None:
            return []
        self.enforced_watts = enforced
        ours = any(same_watts(requested, w) for w in self.written_watts)
        if ramping and self.written_watts:
            least = min(self.written_watts)
            ours = ours or least <= requested <= self.found_watts + TOLERANCE_WATTS
        if self.foreign_watts is not None:
            ours = ours or same_watts(requested, self.foreign_watts)
            if requested > self.foreign_watts + TOLERANCE_WATTS:
                self.foreign_watts = None  # they have lifted it meanwhile
        if ours or same_watts(requested, own_target_watts):
            self.asked_watts = requested
            self.confirmed = enforced <= requested + TOLERANCE_WATTS
            return []
        if requested < own_target_watts:
            return self._adopt_foreign(requested)
        self.foreign_watts = None
        self.asked_watts = None
        return [self._drift_fault(requested, enforced, own_target_watts)]

    def block(self, code: str, kind: str) -> list[Fault]:
        """It does not answer: leave it alone until it does. Quarantine is not replaced by less."""
        if self.blocked_by == _QUARANTINE != kind:
            return []
        self.blocked_by = kind
        self.confirmed = False
        self.error_code = code
        return self._tell(code, f"the GPU does not answer ({code}); the others go on")

    def _fail(self, code: str, kind: str | None, now: float) -> list[Fault]:
        self.confirmed = False
        self.error_code = code
        self.retry_at = now + retry_seconds(self._failures + 1)
        self._failures += 1
        if kind in _SILENT:
            return self.block(code, str(kind))
        if kind == "DeviceNoPermission":
            self.can_set = False
        if kind == _FOR_GOOD:
            self.blocked_by = kind
        return self._tell(code, f"the limit of {self.asked_watts:g} W was not set ({code})")

    def free(self) -> list[Fault]:
        """A fresh driver child could read and write it: whatever it was blocked for is over."""
        if self.blocked_by not in _SILENT:
            self.blocked_by = None
            return []
        return self._answers()

    def _unread(self, reading: LimitReading, now: float) -> list[Fault]:
        """A reading that failed: silence blocks, and so does a call for a reset."""
        code, kind = reading.error_code, reading.error_kind
        if kind in _SILENT:
            return self.block(code or "device-error", str(kind))
        if code is None:
            return []
        again = now - self._ailing_told_at >= _TOLD_AGAIN_SECONDS
        if code == self._ailing or not again:
            self._ailing = code
            return []
        self._ailing, self._ailing_told_at = code, now
        return [Fault(code, self.gpu_id, f"the GPU cannot be read ({code}); the others go on")]

    def _permitted(self, can_set: bool | None) -> list[Fault]:
        if not can_set or self.can_set:
            return []
        self.can_set = True
        self.error_code = None
        self.retry_at = 0.0
        self._told.discard("device-no-permission")
        return [Fault("permission-back", self.gpu_id, "its limit may be set again")]

    def _back(self) -> list[Fault]:
        """It could be read."""
        if self._ailing is not None and self.blocked_by is None:
            self._ailing = None
            return [Fault("gpu-back", self.gpu_id, "the GPU can be read again")]
        return self._answers() if self.blocked_by in _UNTIL_IT_ANSWERS else []

    def _answers(self) -> list[Fault]:
        self.blocked_by = self._ailing = self.error_code = None
        self._told.clear()
        self.retry_at = 0.0
        self._failures = 0
        return [Fault("gpu-back", self.gpu_id, "the GPU answers again")]

    def _compare(
        self, requested: float, enforced: float, own_target_watts: float, now: float
    ) -> list[Fault]:
        asked = self.asked_watts
        assert asked is not None
        if requested < asked - TOLERANCE_WATTS:
            return self._adopt_foreign(requested)
        if max(requested, enforced) <= asked + TOLERANCE_WATTS:
            if self._corrections and now - self._corrected_at > _CALM_SECONDS:
                self._corrections = 0
            return []
        if self.foreign_watts is not None and requested <= own_target_watts + TOLERANCE_WATTS:
            same = same_watts(requested, own_target_watts)
            self.foreign_watts = None if same else requested
            self.asked_watts = requested
            return []
        self.foreign_watts = None
        self.confirmed = False
        self.retry_at = now + retry_seconds(self._corrections)
        self._corrections += 1
        self._corrected_at = now
        return [self._drift_fault(requested, enforced, own_target_watts)]

    def _adopt_foreign(self, requested: float) -> list[Fault]:
        self.foreign_watts = self.asked_watts = requested
        self.confirmed = True
        self._told.discard("limit-foreign")
        return self._tell(
            "limit-foreign", f"someone else has set {requested:g} W, below ours: it is left alone"
        )

    def _drift_fault(self, requested: float, enforced: float, own_watts: float) -> Fault:
        """Someone raised it. The card's default tells of a reset, any other value of a program."""
        default = self.limits is not None and same_watts(requested, self.limits.default_watts)
        who = (
            "the card's default (persistence mode off, or the driver was reloaded)"
            if default
            else "not the card's default: a program of this host set it"
        )
        return Fault(
            "limit-drift-reset" if default else "limit-drift",
            self.gpu_id,
            f"requested {requested:g} W and enforced {enforced:g} W where we hold "
            f"{own_watts:g} W, {who}: set again",
        )

    def _tell(self, code: str, message: str) -> list[Fault]:
        if code in self._told:
            return []
        self._told.add(code)
        return [Fault(code, self.gpu_id, message)]


def free_watts(holds: Iterable[GpuHold]) -> dict[str, float]:
    """What stands on GPUs that we could take and have not."""
    return {
        hold.gpu_id: hold.standing_watts
        for hold in holds
        if hold.can_set and not hold.touched and hold.standing_watts is not None
    }


def same_watts(one_watts: float, other_watts: float) -> bool:
    """Whether two limits are one, as far as a driver can tell."""
    return abs(one_watts - other_watts) <= TOLERANCE_WATTS


def retry_seconds(times: int) -> float:
    """How long to wait before a try that follows so many failures."""
    return _RETRY_SECONDS[min(times, len(_RETRY_SECONDS) - 1)]
