"""What the machine makes of the meters' words: alarms, old readings carried on, more margin."""

from dataclasses import replace

import pytest

from gridaware.control.instructions import Alarm
from gridaware.domain.reading import Boundary, MeterState, Method, Quality, Reading
from gridaware.domain.target import Overhead


def word(bench, watts: float, name: str = "main", share: float = 0.005, **over: object) -> Reading:
    made = Reading(watts, bench.now().wall, Boundary.SITE, Method.METER, meter=name)
    return replace(made, accuracy_share=share, **over)


def states(*problems: str) -> tuple[MeterState, ...]:
    return tuple(
        MeterState(name, "ill" if problem else "well", share, 1.0, problem, "no route")
        for name, share, problem in zip(("main", "backup"), (0.005, 0.02), problems, strict=True)
    )


def meter_alarms(bench) -> set[str]:
    return {key for key in bench.state.alarms if key.startswith("meter-")}


def test_each_ill_meter_is_alarmed_by_name_until_it_is_well(bench) -> None:
    bench.tick(meter=word(bench, 500.0), meters=states("", ""))
    made = bench.tick(meter=word(bench, 500.0), meters=states("", "meter-stuck"))
    assert [(a.code, a.subject) for a in bench.of(Alarm, made)] == [("meter-stuck", "backup")]
    assert bench.of(Alarm, made)[0].message == "backup: no route"
    bench.tick(meter=word(bench, 500.0), meters=states("", "meter-silent"))
    assert meter_alarms(bench) == {"meter-silent/backup"}
    bench.tick(meter=word(bench, 500.0), meters=states("", ""))
    assert not meter_alarms(bench)


def test_every_change_of_meter_is_told_in_both_directions(bench) -> None:
    bench.tick(meter=word(bench, 500.0), meters=states("", ""))
    codes = []
    for name in ("backup", "main", "backup"):
        ill = "meter-silent" if name == "backup" else ""
        for _ in range(10):  # a change freezes the loop for a moment
            made = bench.tick(meter=word(bench, 500.0, name, 0.02), meters=states(ill, ""))
            codes += [a for a in bench.of(Alarm, made) if a.code == "meter-changed"]
    assert len(codes) == 3
    assert "backup's (within 2 %)" in codes[0].message


def test_an_old_reading_is_carried_on_by_what_the_gpus_have_moved(make_bench) -> None:
    bench = make_bench(overhead=Overhead(0.0, 1.25))
    bench.watts = dict.fromkeys(bench.watts, 100.0)  # 8 GPUs
    for _ in range(30):
        bench.tick(meter=word(bench, 1500.0, age_seconds=12.0))
    assert bench.state.meter_watts == pytest.approx(1500.0)
    bench.watts = dict.fromkeys(bench.watts, 60.0)
    for _ in range(8):  # the meter was read before the GPUs came down
        bench.tick(meter=word(bench, 1500.0, age_seconds=12.0))
    assert bench.state.meter_watts == pytest.approx(1500.0 - 1.25 * 8 * 40.0)
    for _ in range(20):
        bench.tick(meter=word(bench, 1100.0, age_seconds=12.0))
    assert bench.state.meter_watts == pytest.approx(1100.0)


def test_a_less_sure_meter_keeps_more_margin_and_a_sure_one_gives_it_back(bench) -> None:
    bench.start_job()
    bench.post(bench.signal(depth=0.3, seconds=600.0))

    def ticks(seconds: int, name: str, share: float, problem: str = "") -> float:
        for _ in range(seconds):
            watts = sum(
                min(w, 0.97 * bench.state.nodes[f"n{g[1]}"].limits_watts.get(g, 400.0))
                for g, w in bench.watts.items()
            )
            bench.tick(meter=word(bench, watts, name, share), meters=states(problem, ""))
        return bench.state.tracker.margin

    sure = ticks(60, "main", 0.005)
    unsure = ticks(20, "backup", 0.02, "meter-silent")
    assert unsure - sure == pytest.approx(0.015, abs=0.002)
    assert ticks(90, "main", 0.005) == pytest.approx(sure, abs=0.001)


def test_nothing_is_learned_from_a_held_reading(bench) -> None:
    bench.ticks(30)
    offset = bench.state.offset_watts
    for _ in range(20):
        bench.tick(meter=word(bench, 5000.0, quality=Quality.HELD))
    assert bench.state.offset_watts == offset
