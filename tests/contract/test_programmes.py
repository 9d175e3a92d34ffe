"""Every file of the programme catalogue: complete, dated, sourced, and true to what it names."""

from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from gridaware.domain.catalogue import Entry, Mark, Terms
from gridaware.domain.frequency import FREQUENCY_RULES
from gridaware.domain.obligation import Cap, Obligation
from gridaware.domain.programme import ARMED_BELOW_SECONDS
from gridaware.settlement.baselines import BASELINES
from gridaware.wiring.catalogue import load_catalogue

ENTRIES = load_catalogue().entries
EVERY = pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
ASKED_FOR = {
    "ercot-ers-10", "ercot-ers-30", "ercot-ecrs", "ercot-ffr", "ercot-4cp", "ercot-sb6",
    "pjm-load-management", "pjm-economic", "pjm-synchronised-reserve",
    "caiso-pdr", "caiso-elrp", "caiso-bip", "miso-lmr", "nyiso-scr",
    "gb-dfs", "gb-dynamic-containment", "nordic-ffr", "flexible-interconnection",
}  # fmt: skip
OF_THE_ISSUE = {
    "trigger", "notice_seconds", "deadline_seconds", "least_hold_seconds", "max_duration_seconds",
    "ramp_down_watts_per_minute", "ramp_up_watts_per_minute", "telemetry_seconds", "baseline",
    "performance", "pay", "obligation_hours", "least_watts", "aggregation_share", "meter_class",
    "acknowledgement_seconds", "opt_out_seconds", "opt_out_cost", "caps", "least_gap_seconds",
    "recall", "return_seconds", "test_duty", "on_signal_loss", "evidence_days",
}  # fmt: skip


def test_every_programme_that_was_asked_for_is_there() -> None:
    assert set(ENTRIES) >= ASKED_FOR


def test_every_term_that_was_asked_for_is_one() -> None:
    assert set(Terms.__dataclass_fields__) >= OF_THE_ISSUE


@EVERY
def test_every_value_has_a_mark_and_a_source(entry: Entry) -> None:
    for version in entry.versions:
        terms = [*version.terms.items()]
        assert len(terms) == len(Terms.__dataclass_fields__)
        terms += [("valid_from", version.valid_from), ("valid_to", version.valid_to)]
        for name, term in terms:
            assert isinstance(term.mark, Mark), name
            assert len(term.source) > 10, name
            if term.value is None:
                # Nobody has read it, or the source says that there is none, and the note how.
                assert term.mark is Mark.CHECK or term.note, name


@EVERY
def test_dates_follow_each_other(entry: Entry) -> None:
    assert len({version.version for version in entry.versions}) == len(entry.versions)
    for older, newer in pairwise(entry.versions):
        assert older.valid_to.value is not None
        assert newer.valid_from.value is not None
        assert older.valid_to.value <= newer.valid_from.value
    for version in entry.versions:
        for date in (version.valid_from.value, version.valid_to.value):
            if date is not None:
                local = date.astimezone(ZoneInfo(entry.time_zone))
                assert (local.hour, local.minute, local.second) == (0, 0, 0)


@EVERY
def test_exclusions_name_each_other_and_give_a_source(entry: Entry) -> None:
    for exclusion in entry.exclusive_with:
        other = ENTRIES[exclusion.programme]
        assert other.programme_id != entry.programme_id
        back = other.excludes(entry.programme_id)
        assert back is not None, f"{other.programme_id} does not exclude {entry.programme_id}"
        assert back.mark is exclusion.mark
        assert len(exclusion.source) > 10


@EVERY
def test_a_baseline_is_one_of_ours_or_said_not_to_be(entry: Entry) -> None:
    for version in entry.versions:
        name = version.terms.baseline.value
        assert version.baseline_available is (name in BASELINES), name


@EVERY
def test_times_and_powers_are_in_the_units_of_their_names(entry: Entry) -> None:
    """A deadline in minutes, or a size in MW, would not lie within these."""
    for version in entry.versions:
        terms = version.terms
        for name, term in terms.items():
            if term.value is None:
                continue
            if name.endswith("_seconds"):
                assert 0 <= term.value <= 40 * 86400, name
            if name.endswith("_watts"):
                assert 1_000 <= term.value <= 1e9, name
        least, most = terms.least_hold_seconds.value, terms.max_duration_seconds.value
        assert least is None or most is None or least <= most
        telemetry, interval = terms.telemetry_seconds.value, terms.settlement_interval_seconds.value
        assert telemetry is None or interval is None or telemetry <= interval


@EVERY
def test_hours_and_caps_can_be_evaluated(entry: Entry) -> None:
    for version in entry.versions:
        hours = version.terms.obligation_hours.value
        if hours is not None:
            windows = Obligation.of(entry.time_zone, hours).windows
            assert [str(window) for window in windows] == list(hours)
        for cap in version.terms.caps.value or ():
            assert str(Cap.of(cap)) == cap


@EVERY
def test_only_what_answers_the_frequency_has_a_deadline_under_a_minute(entry: Entry) -> None:
    """Such a programme is armed on every node, which one by mistake should not be."""
    for version in entry.versions:
        terms = version.terms
        fast = (terms.deadline_seconds.value or 3600.0) < ARMED_BELOW_SECONDS
        assert fast is (terms.frequency_rule.value is not None)


@pytest.mark.parametrize("name", ["ercot-ffr", "gb-dynamic-containment", "nordic-ffr"])
def test_what_answers_the_frequency_agrees_with_its_rule(name: str) -> None:
    entry = ENTRIES[name]
    for version in entry.versions:
        terms = version.terms
        rule = FREQUENCY_RULES[terms.frequency_rule.value or ""]
        assert terms.deadline_seconds.value == rule.full_seconds
        assert terms.max_duration_seconds.value == rule.hold_seconds
        assert terms.telemetry_seconds.value == pytest.approx(1.0 / rule.data_hz)
        assert (terms.least_hold_seconds.value or 0.0) in {
            rule.least_hold_seconds,
            rule.hold_seconds,
        }
        trigger = terms.trigger.value or ""
        deepest = rule.droop[-1][0] if rule.droop else None
        for hertz in [rule.trigger_hz] if deepest is None else [rule.droop[0][0], deepest]:
            assert f"{hertz:g}" in trigger
        loss = terms.on_signal_loss.value
        assert loss is not None
        assert loss.hold_seconds == rule.hold_seconds


def test_every_rule_of_the_frequency_belongs_to_a_programme() -> None:
    named = {v.terms.frequency_rule.value for e in ENTRIES.values() for v in e.versions} - {None}
    assert {rule.split("-49")[0] for rule in FREQUENCY_RULES} == {
        str(rule).split("-49")[0] for rule in named
    }


@pytest.mark.parametrize(
    ("programme", "term", "value"),
    [
        ("ercot-ers-10", "deadline_seconds", 10 * 60),
        ("ercot-ers-30", "deadline_seconds", 30 * 60),
        ("ercot-ers-30", "return_seconds", 10 * 3600),
        ("ercot-ecrs", "deadline_seconds", 10 * 60),
        ("ercot-ecrs", "least_hold_seconds", 3600),
        ("ercot-ffr", "deadline_seconds", 15 / 60),
        ("ercot-sb6", "notice_seconds", 24 * 3600),
        ("ercot-sb6", "least_watts", 75e6),
        ("caiso-elrp", "max_duration_seconds", 5 * 3600),
        ("caiso-elrp", "caps", ("60 hours per year",)),
        ("caiso-bip", "caps", ("1 event per day", "10 events per month", "180 hours per year")),
        ("nyiso-scr", "deadline_seconds", 2 * 3600),
        ("gb-dynamic-containment", "telemetry_seconds", 1 / 20),
        ("nordic-ffr", "telemetry_seconds", 0.1),
        ("nordic-ffr", "return_seconds", 15 * 60),
    ],
)
def test_published_figures_stand_as_they_were_published(
    programme: str, term: str, value: object
) -> None:
    assert getattr(ENTRIES[programme].versions[-1].terms, term).value == value
