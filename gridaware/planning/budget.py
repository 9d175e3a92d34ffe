"""How much work a job has lost, and how much it may still lose under its tier.

A tier allows a share of mean throughput over a rolling window of six hours of a job's running
time. A younger job is judged over its whole life to its declared or estimated end, at most six
hours; where no end is known, six hours are taken. Paused time is running time at zero throughput.
"""

from dataclasses import dataclass

from gridaware.domain.job import LOSS_WINDOW_SECONDS

__all__ = ["LossAccount"]

BUCKET_SECONDS = 300.0
"""Losses older than the window are forgotten in steps of this, late rather than early."""
_BUCKETS = int(LOSS_WINDOW_SECONDS / BUCKET_SECONDS)


@dataclass(frozen=True, slots=True)
class LossAccount:
    """Seconds of full-throughput work lost, by age. A value: adding gives a new account."""

    age_seconds: float = 0.0
    """Running time so far, pauses included."""
    buckets: tuple[float, ...] = ()
    """Lost seconds of each full bucket inside the window, oldest first."""
    buckets_lost_seconds: float = 0.0
    """Their sum."""
    open_seconds: float = 0.0
    """Length so far of the bucket that is being filled."""
    open_lost_seconds: float = 0.0

    def add(self, seconds: float, throughput: float) -> "LossAccount":
        """The account after ``seconds`` more at ``throughput``, relative to uncapped (0 to 1)."""
        if not seconds > 0:
            return self
        loss = 1.0 - min(max(throughput, 0.0), 1.0)
        buckets, total = self.buckets, self.buckets_lost_seconds
        length, lost = self.open_seconds, self.open_lost_seconds
        # What would fall out of the window at once is not worth filling in.
        left = min(seconds, LOSS_WINDOW_SECONDS + BUCKET_SECONDS)
        while length + left >= BUCKET_SECONDS:
            part = BUCKET_SECONDS - length
            buckets = (*buckets, lost + part * loss)[-_BUCKETS:]
            total = sum(buckets)
            left, length, lost = left - part, 0.0, 0.0
        return LossAccount(
            age_seconds=self.age_seconds + seconds,
            buckets=buckets,
            buckets_lost_seconds=total,
            open_seconds=length + left,
            open_lost_seconds=lost + left * loss,
        )

    @property
    def lost_seconds(self) -> float:
        """Full-throughput seconds lost within the window."""
        return self.buckets_lost_seconds + self.open_lost_seconds

    def window_seconds(self, life_seconds: float | None) -> float:
        """Running time over which the job is judged now.

        Args:
            life_seconds: declared or estimated running time from start to end; None = unknown.
        """
        if life_seconds is None:
            return LOSS_WINDOW_SECONDS
        return min(max(life_seconds, self.age_seconds), LOSS_WINDOW_SECONDS)

    def loss_budget_seconds(self, allowed_loss: float, life_seconds: float | None = None) -> float:
        """Full-throughput seconds that may still be lost; negative where the promise is broken.

        Args:
            allowed_loss: the tier's share of mean throughput, 0 to 1.
            life_seconds: declared or estimated running time from start to end; None = unknown.
        """
        return allowed_loss * self.window_seconds(life_seconds) - self.lost_seconds
