"""The processors' energy counters, on a folder laid out as the Linux kernel lays it out."""

from pathlib import Path

import pytest

from gridaware.devices import rapl
from gridaware.devices.rapl import CpuLimit, RaplMeter
from gridaware.domain.errors import ConfigError, Unavailable
from gridaware.domain.reading import Boundary, Method

RANGE = 262_143_328_850
"""max_energy_range_uj of an Intel server: 2**32 counts of 61 uJ, 262 kJ."""


@pytest.fixture
def zones(tmp_path):
    """Two packages, the memory of the first, and zones that must not be counted."""

    def zone(place, name, microjoules, most=RANGE):
        folder = tmp_path / place
        folder.mkdir()
        for file, text in (
            ("name", name),
            ("energy_uj", microjoules),
            ("max_energy_range_uj", most),
        ):
            (folder / file).write_text(f"{text}\n")

    zone("intel-rapl:0", "package-0", 1_000_000)
    zone("intel-rapl:0:0", "core", 0)
    zone("intel-rapl:0:1", "dram", 500_000, most=65_712_999_613)
    zone("intel-rapl:1", "package-1", 2_000_000)
    zone("intel-rapl:2", "psys", 0)
    zone("intel-rapl-mmio:0", "package-0", 0)
    (tmp_path / "intel-rapl").mkdir()
    return tmp_path


def begun(zones, clock):
    """A meter whose counting has begun."""
    meter = RaplMeter(zones, clock)
    with pytest.raises(Unavailable) as first:
        meter.read()
    assert first.value.code == "rapl-begun"
    return meter


def grow(zones, place, microjoules):
    file = zones / place / "energy_uj"
    file.write_text(f"{(int(file.read_text()) + microjoules) % (RANGE + 1)}\n")


def test_packages_and_memory_are_summed_and_what_lies_within_them_is_not(zones, clock):
    meter = begun(zones, clock)
    clock.advance(2.0)
    grow(zones, "intel-rapl:0", 200_000_000)
    grow(zones, "intel-rapl:0:0", 150_000_000)
    grow(zones, "intel-rapl:0:1", 40_000_000)
    grow(zones, "intel-rapl:1", 100_000_000)
    grow(zones, "intel-rapl:2", 900_000_000)
    power, energy = meter.read()
    assert power.watts == pytest.approx(170.0)
    assert energy.joules == pytest.approx(340.0)
    assert (power.boundary, power.method) == (Boundary.CPU, Method.AVERAGED)
    assert energy.boundary is Boundary.CPU


def test_case_3_a_counter_that_wraps_counts_on_and_is_never_negative(zones, clock):
    (zones / "intel-rapl:0/energy_uj").write_text(f"{RANGE - 50_000_000}\n")
    meter = begun(zones, clock)
    clock.advance(1.0)
    grow(zones, "intel-rapl:0", 180_000_000)  # 50 J to the end and 130 J beyond it
    power, energy = meter.read()
    assert power.watts == pytest.approx(180.0, abs=1e-3)
    assert energy.joules == pytest.approx(180.0, abs=1e-3)


def test_case_3_a_counter_that_was_reset_begins_an_epoch(zones, clock):
    meter = begun(zones, clock)
    clock.advance(1.0)
    grow(zones, "intel-rapl:0", 200_000_000)
    _, before = meter.read()
    clock.advance(1.0)
    (zones / "intel-rapl:0/energy_uj").write_text("7\n")  # as a wrap it would be 262 kW
    with pytest.raises(Unavailable) as reset:
        meter.read()
    assert reset.value.code == "rapl-begun"
    clock.advance(1.0)
    grow(zones, "intel-rapl:0", 100_000_000)
    power, after = meter.read()
    assert power.watts == pytest.approx(100.0)
    assert after.joules == pytest.approx(100.0)
    assert after.epoch != before.epoch


def test_after_a_pause_in_which_it_could_have_wrapped_unseen_nothing_is_claimed(zones, clock):
    meter = begun(zones, clock)
    clock.advance(3600.0)
    grow(zones, "intel-rapl:0", 200_000_000)
    with pytest.raises(Unavailable):
        meter.read()


def test_a_question_right_after_the_last_one_gets_the_same_answer(zones, clock):
    meter = begun(zones, clock)
    clock.advance(1.0)
    grow(zones, "intel-rapl:0", 200_000_000)
    first = meter.read()[0].watts
    clock.advance(0.001)
    assert meter.read()[0].watts == first


def test_limits_are_read_as_they_stand(zones, clock):
    for file, text in (
        ("constraint_0_name", "long_term"),
        ("constraint_0_power_limit_uw", "270000000"),
        ("constraint_0_max_power_uw", "270000000"),
        ("constraint_1_name", "short_term"),
        ("constraint_1_power_limit_uw", "324000000"),
    ):
        (zones / "intel-rapl:0" / file).write_text(text + "\n")
    assert RaplMeter(zones, clock).limits() == (
        CpuLimit("0 package-0", "long_term", 270.0, 270.0),
        CpuLimit("0 package-0", "short_term", 324.0, None),
    )


def test_counters_that_only_root_may_read_say_so(zones, clock, monkeypatch):
    def denied(self, **_arguments):
        if self.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return plain(self, encoding="ascii")

    plain = Path.read_text
    monkeypatch.setattr(Path, "read_text", denied)
    with pytest.raises(Unavailable) as refused:
        RaplMeter(zones, clock).read()
    assert refused.value.code == "rapl-permission"


@pytest.mark.parametrize("text", ["", "-1", "1e9", "12a", "[N/A]"])
def test_case_31_what_is_no_number_is_no_energy(zones, clock, text):
    (zones / "intel-rapl:0/energy_uj").write_text(text)
    with pytest.raises(Unavailable) as refused:
        RaplMeter(zones, clock).read()
    assert refused.value.code == "rapl-missing"


def test_a_machine_without_counters_says_so(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(Unavailable) as missing:
            rapl.open_meter({"path": str(path)}).read()
        assert missing.value.code == "rapl-missing"


@pytest.mark.parametrize("options", [{"path": "powercap"}, {"paths": "/a"}])
def test_options_are_checked(options):
    with pytest.raises(ConfigError) as refused:
        rapl.open_meter(options)
    assert refused.value.code == "rapl-options"


def test_the_processors_of_this_machine():
    meter = rapl.open_meter({})
    try:
        meter.read()
    except Unavailable as error:
        if error.code != "rapl-begun":
            pytest.skip(f"no counters here: {error.message}")
    assert all(limit.watts > 0 for limit in meter.limits())
