"""The site's power, mirrored to the server: a MirrorUsagePoint and its readings.

Each reading is the mean power of one interval. An interval of which less than half was measured is
left out: what is missing is never 0.
"""

import hashlib
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gridaware.control.ports import FeedTelemetry
from gridaware.domain.errors import GridawareError, Refused, Unavailable
from gridaware.feeds.ieee2030.client import Calls, Reply
from gridaware.feeds.ieee2030.servertime import ServerTime
from gridaware.feeds.ieee2030.xml import NAMESPACE

__all__ = ["Mirror"]

WAITING_AT_MOST = 1440
GAP_SECONDS = 5.0
"""Samples further apart leave a hole."""
HALF = 0.5
POSTS_AT_MOST = 20
VALID, QUESTIONABLE = 0x01, 0x10
"""Of ``qualityFlags``."""
_READING_TYPE = (
    "<commodity>1</commodity><dataQualifier>2</dataQualifier><flowDirection>1</flowDirection>"
    "<intervalLength>{seconds}</intervalLength><kind>37</kind>"
    "<powerOfTenMultiplier>0</powerOfTenMultiplier><uom>38</uom>"
)
"""Electricity, average, to the customer, power, in watts."""


@dataclass(slots=True)
class _Interval:
    """What was seen of one interval."""

    number: int
    seen_seconds: float = 0.0
    joules: float = 0.0
    good: bool = True


class Mirror:
    """Collects samples, and posts a reading for each interval. One thread at a time.

    Args:
        seconds: of an interval.
        lfdi: whose power it is.
        time: readings carry the server's time.
        alarm: hears what a person should know.
    """

    def __init__(
        self, seconds: float, lfdi: str, time: ServerTime, alarm: Callable[[GridawareError], None]
    ) -> None:
        self._seconds = round(seconds)
        self._lfdi = lfdi
        self._time = time
        self._alarm = alarm
        self._interval: _Interval | None = None
        self._last: tuple[float, float | None] | None = None
        self._waiting: deque[bytes] = deque(maxlen=WAITING_AT_MOST)
        self._href = ""
        self._refused = False
        self._not_before_seconds = float("-inf")

    def take(self, telemetry: FeedTelemetry) -> None:
        """Take one sample of the site."""
        self._count(telemetry)
        number = math.floor(self._time.now(telemetry.at) / self._seconds)
        if self._interval is None or number != self._interval.number:
            if self._interval is not None:
                self._close(self._interval)
            self._interval = _Interval(number)

    def _count(self, telemetry: FeedTelemetry) -> None:
        """Add what was drawn since the sample before, which stood until this one."""
        last, self._last = self._last, (telemetry.seconds, telemetry.site_watts)
        if self._interval is None or last is None or last[1] is None:
            return
        passed = telemetry.seconds - last[0]
        if 0 < passed <= GAP_SECONDS:
            self._interval.seen_seconds += passed
            self._interval.joules += last[1] * passed
            self._interval.good &= telemetry.quality == "good"

    def send(self, calls: Callable[[], Calls], list_href: str) -> None:
        """Post the readings that wait, and after a failure not before an interval has passed.

        Raises:
            Unavailable: one could not be delivered; it is tried again with a later sample.
        """
        now = 0.0 if self._last is None else self._last[0]
        if now < self._not_before_seconds:
            return
        try:
            self._send(calls, list_href)
        except Unavailable:
            self._not_before_seconds = now + self._seconds
            raise

    def _send(self, calls: Callable[[], Calls], list_href: str) -> None:
        for _ in range(POSTS_AT_MOST):
            if not self._waiting or not list_href or self._refused:
                return
            if not self._href and not self._made(calls, list_href):
                return
            reply = calls().ask("POST", self._href, self._waiting[0])
            if reply.status in {404, 410}:
                self._href = ""  # the server was restarted: it is made anew
                return
            if not self._delivered(reply):
                return
            self._waiting.popleft()

    # ------------------------------------------------------------------------------------------

    def _close(self, interval: _Interval) -> None:
        if interval.seen_seconds < HALF * self._seconds:
            return
        watts = round(interval.joules / interval.seen_seconds)
        flags = VALID if interval.good else QUESTIONABLE
        self._waiting.append(
            (
                f'<MirrorMeterReading xmlns="{NAMESPACE}"><mRID>{self._mrid("power")}</mRID>'
                "<description>power at the site meter</description>"
                f"<Reading><qualityFlags>{flags:04X}</qualityFlags><timePeriod>"
                f"<duration>{self._seconds}</duration>"
                f"<start>{interval.number * self._seconds}</start></timePeriod>"
                f"<value>{watts}</value></Reading><ReadingType>"
                f"{_READING_TYPE.format(seconds=self._seconds)}</ReadingType></MirrorMeterReading>"
            ).encode()
        )

    def _made(self, calls: Callable[[], Calls], list_href: str) -> bool:
        body = (
            f'<MirrorUsagePoint xmlns="{NAMESPACE}"><mRID>{self._mrid("site")}</mRID>'
            "<description>site meter</description><roleFlags>03</roleFlags>"
            "<serviceCategoryKind>0</serviceCategoryKind><status>1</status>"
            f"<deviceLFDI>{self._lfdi}</deviceLFDI></MirrorUsagePoint>"
        )
        reply = calls().ask("POST", list_href, body.encode())
        if self._delivered(reply):
            self._href = reply.location
        return bool(self._href)

    def _delivered(self, reply: Reply) -> bool:
        if reply.good:
            return True
        if reply.status in {408, 425, 429} or reply.status >= 500:
            raise Unavailable("ieee2030-refused", f"a reading was answered {reply.status}")
        self._refused = True
        told = f"the server does not take our readings: it answered {reply.status}"
        self._alarm(Refused("ieee2030-mirror-refused", told))
        return False

    def _mrid(self, what: str) -> str:
        return hashlib.sha256(f"{self._lfdi} {what}".encode()).hexdigest()[:32].upper()
