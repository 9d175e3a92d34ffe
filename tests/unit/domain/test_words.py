"""Units, reasons and fixes: what people read."""

import pytest

from gridaware.domain.fixes import fix_for
from gridaware.domain.reasons import names_of, sentence
from gridaware.domain.units import (
    DASH,
    show,
    show_joules,
    show_kwh,
    show_seconds,
    show_share,
    show_watts,
)


@pytest.mark.parametrize(
    ("watts", "text"),
    [
        (0, "0 W"), (193.4, "193 W"), (9_999, "9999 W"), (10_000, "10.0 kW"), (84_000, "84.0 kW"),
        (-9_700, "-9700 W"), (-19_700, "-19.7 kW"), (1_250_000, "1.25 MW"), (None, DASH),
        (float("nan"), DASH),
    ],
)  # fmt: skip
def test_watts_below_ten_kilowatts_stay_watts(watts: float | None, text: str) -> None:
    assert show_watts(watts) == text


@pytest.mark.parametrize(
    ("joules", "text"),
    [(950, "950 J"), (42_000, "42.0 kJ"), (360_000, "0.10 kWh"), (3.6e6, "1.00 kWh"),
     (3.6e9, "1.00 MWh"), (None, DASH)],
)  # fmt: skip
def test_energy_turns_into_kilowatt_hours(joules: float | None, text: str) -> None:
    assert show_joules(joules) == text


def test_energy_that_is_in_kilowatt_hours_stays_so() -> None:
    assert [show_kwh(x) for x in (0.42, 3.2, 1250.0, None)] == [
        "0.420 kWh", "3.20 kWh", "1.25 MWh", DASH,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.085, "85 ms"), (1.24, "1.2 s"), (38.4, "38 s"), (60, "1 min"),
     (380, "6 min 20 s"), (3599.7, "1 h"), (7500, "2 h 5 min"), (86399.9, "1 d"),
     (273_600, "3 d 4 h"), (-5, "-5.0 s"), (None, DASH)],
)  # fmt: skip
def test_durations_have_at_most_two_parts(seconds: float | None, text: str) -> None:
    assert show_seconds(seconds) == text


def test_shares_are_per_cent() -> None:
    assert [show_share(x) for x in (0.25, 0.025, 1, None)] == ["25 %", "2.5 %", "100 %", DASH]


def test_the_last_word_of_a_name_says_its_unit() -> None:
    assert show("limit_watts", 84_000) == "84.0 kW"
    assert show("watts", 10) == "10 W"
    assert show("running_joules", 7.2e6) == "2.00 kWh"
    assert show("greatest_depth", 0.5) == "50 %"
    assert show("step", 187) == "187"
    assert show("owed_kwh", 1.5) == "1.50 kWh"


def test_energies_that_stand_beside_each_other_share_a_unit() -> None:
    assert show("joules", 950, 7.2e6) == "0.000 kWh"
    assert show("held_idle.joules", 43_200, 7.2e6) == "0.012 kWh"
    assert show("joules", 7.2e6, 7.2e6) == "2.000 kWh"
    assert show("joules", 940, 43_200) == "0.9 kJ"
    assert show("cap_watts", 250, 84_000) == "250 W"


def test_a_sentence_shows_each_number_in_its_unit() -> None:
    assert sentence("TargetReached", {"limit_watts": 84_000}) == (
        "power is at or below the target of 84.0 kW"
    )


def test_numbers_may_come_in_the_order_of_the_template_or_as_pairs() -> None:
    named = sentence("Resumed", {"attempt": 2, "step": 187})
    assert named == "attempt 2 continues from step 187"
    assert names_of("Resumed") == ("attempt", "step")
    assert sentence("Resumed", (2, 187)) == named
    assert sentence("Resumed", (("attempt", 2), ("step", 187))) == named


def test_a_missing_number_is_a_dash_and_an_unknown_code_its_words() -> None:
    assert sentence("Resumed", {"attempt": 2}) == f"attempt 2 continues from step {DASH}"
    assert sentence("SomethingNewHappened") == "something new happened"
    assert sentence("") == "no reason was recorded"


def test_a_fix_is_found_by_code_or_by_its_ending() -> None:
    assert fix_for("target-negative") == "Send a value of 0 or more; consumption is positive."
    assert fix_for("node-id-malformed") == fix_for("event-id-malformed") != None  # noqa: E711
    assert fix_for("no-such-code") is None
