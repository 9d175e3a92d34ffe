"""Thresholds of a price in control: whatever the forecast does, what is asked is what stands."""

import json
import random
from datetime import timedelta

from gridaware.control.stimuli import SignalReceived
from gridaware.domain.advisory import AdvisoryQuality
from gridaware.domain.signal import Signal
from gridaware.feeds.series import Point
from gridaware.feeds.threshold import Asked, Threshold, follow

FIVE = timedelta(minutes=5)
RULE = {"name": "dear", "above": 105, "clear": 100, "hold_minutes": 10}


class Follower:
    """Tells a machine of what a threshold asks, as the feed does."""

    def __init__(self, bench, seed: int) -> None:
        self.bench, self.drawn = bench, random.Random(seed)
        self.rule = Threshold.model_validate_json(
            json.dumps({**RULE, "target": {"reduce_percent": 30}})
        )
        self.begin = bench.now().wall
        self.asked: list[Asked] = []
        self.codes: list[str] = []
        self.ever: dict[str, Asked] = {}
        self.truth = [100.0]
        while len(self.truth) < 100:
            last = self.truth[-1]
            self.truth.append(last + self.drawn.uniform(-12, 12) + (100 - last) * 0.1)

    def poll(self) -> None:
        now = self.bench.now()
        first = int((now.wall - self.begin) / FIVE)
        points = [
            Point(
                self.begin + n * FIVE,
                self.begin + (n + 1) * FIVE,
                self.truth[n] + (0 if n == first else self.drawn.uniform(-8, 8)),
                AdvisoryQuality.FORECAST,
            )
            for n in range(first, first + 12)
        ]
        self.asked = follow(self.asked, points, self.rule, now.wall)
        self.ever |= {each.name: each for each in self.asked}
        for each in self.asked:
            if each.end > now.wall:
                request = None if each.taken_back else self.rule.request(each.start, each.end)
                signal = Signal("f", each.name, each.revision, now.wall, now.seconds, request)
                self.codes.append(self.bench.code(SignalReceived(signal)))

    def asks(self) -> bool:
        now = self.bench.now().wall
        return any(e.start <= now < e.end and not e.taken_back for e in self.asked)


def test_control_takes_every_event_and_is_capped_while_one_stands(bench) -> None:
    bench.start_job()
    follower = Follower(bench, seed=3)
    capped = free = 0
    for _ in range(80):
        follower.poll()
        bench.tick(146)
        bench.tick(1)
        if follower.asks():
            capped += 1
            assert bench.state.target_watts is not None
        else:
            free += 1
    assert set(follower.codes) == {""}, "control refused something"
    assert capped > 20
    assert free > 20
    assert any(each.taken_back for each in follower.ever.values())
    assert any(not name.endswith("Z") for name in follower.ever), "none came again"
