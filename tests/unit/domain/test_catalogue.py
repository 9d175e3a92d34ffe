"""Versions of a programme by their day, values without a source, and programmes that exclude."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gridaware.domain.catalogue import (
    Catalogue,
    Entry,
    Mark,
    Term,
    in_force,
    in_words,
    refuse_exclusive,
)
from gridaware.domain.errors import InvalidInput, NotFound, Refused
from gridaware.domain.programme import SignalLoss
from gridaware.wiring.catalogue import load_catalogue

CATALOGUE = load_catalogue()
PJM = CATALOGUE.get("pjm-load-management")
DFS = CATALOGUE.get("gb-dfs")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_a_version_is_in_force_from_local_midnight_on() -> None:
    """1 June 2027 begins at 04:00 UTC in New York."""
    before, after = (
        in_force(PJM, utc("2027-06-01T03:59:59")),
        in_force(PJM, utc("2027-06-01T04:00")),
    )
    assert before is PJM.versions[0]
    assert after is PJM.versions[1]
    assert after.terms.obligation_hours.value == ("all hours",)
    assert after.terms.deadline_seconds == before.terms.deadline_seconds  # not changed by it


def test_between_two_versions_none_is_in_force_and_the_older_goes_on() -> None:
    first, second, later = DFS.versions
    assert in_force(DFS, utc("2023-01-15T17:00")) is first
    assert in_force(DFS, utc("2023-07-15T17:00")) is None
    assert DFS.version_at(utc("2023-07-15T17:00")) is first
    assert DFS.version_at(utc("2000-01-01T00:00")) is first
    assert in_force(DFS, utc("2024-01-15T17:00")) is second
    assert DFS.version_at(utc("2026-11-30T17:00")) is later


def test_versions_that_overlap_or_end_before_they_begin_are_refused() -> None:
    first, second = PJM.versions
    early = replace(second, valid_from=replace(second.valid_from, value=utc("2027-01-01T00:00")))
    with pytest.raises(InvalidInput, match="must begin where"):
        replace(PJM, versions=(first, early))
    with pytest.raises(InvalidInput, match="must begin where"):
        replace(PJM, versions=(second, first))
    over = replace(second, valid_to=replace(second.valid_to, value=utc("2027-01-01T00:00")))
    with pytest.raises(InvalidInput, match="ends before it"):
        replace(PJM, versions=(first, over))


def test_a_value_that_is_absent_by_its_source_must_say_so_and_numbers_must_be_numbers() -> None:
    terms = PJM.versions[0].terms
    nothing = Term(None, Mark.SOURCED, "the tariff")
    for name, term in {
        "notice_seconds": nothing,
        "deadline_seconds": Term(0.0, Mark.SOURCED, "s"),
        "return_seconds": Term(-1.0, Mark.SOURCED, "s"),
        "aggregation_share": Term(1.5, Mark.SOURCED, "s"),
        "frequency_rule": Term("ercot", Mark.SOURCED, "s"),
        "caps": Term(("many",), Mark.SOURCED, "s"),
    }.items():
        with pytest.raises(InvalidInput):
            replace(terms, **{name: term})  # type: ignore[arg-type]
    assert replace(terms, notice_seconds=replace(nothing, note="none is given"))


def test_values_are_shown_as_people_read_them() -> None:
    def words(name: str, value: object, mark: Mark = Mark.SOURCED, note: str = "") -> str:
        return in_words(name, Term(value, mark, "s", note))

    assert words("deadline_seconds", 1800.0) == "30 min"
    assert words("least_watts", 75e6) == "75.00 MW"
    assert words("ramp_up_watts_per_minute", 10e6) == "10.00 MW a minute"
    assert words("aggregation_share", 0.8) == "80 %"
    assert words("mandatory", False) == "no"
    assert words("caps", ("a", "b")) == "a; b"
    assert words("notice_seconds", None, Mark.CHECK) == "unknown"
    assert words("notice_seconds", None, note="the day before") == "the day before"
    assert (
        words("on_signal_loss", SignalLoss(None))
        == "hold the last limit until a person releases it"
    )
    assert words("on_signal_loss", SignalLoss(3600.0, 0.5)) == (
        "hold the last limit for 1 h, then go to 50 % of each GPU's found limit"
    )


def test_programmes_that_exclude_each_other_are_refused_by_name_and_source() -> None:
    sb6, ecrs = CATALOGUE.get("ercot-sb6"), CATALOGUE.get("ercot-ecrs")
    for pair in ((sb6, ecrs), (ecrs, sb6)):
        with pytest.raises(Refused) as refused:
            refuse_exclusive(pair)
        assert refused.value.code == "programmes-exclusive"
        assert {"ercot-sb6", "ercot-ecrs"} <= set(refused.value.message.replace(":", "").split())
        assert "Senate Bill 6" in refused.value.message
    refuse_exclusive((sb6, sb6, PJM, CATALOGUE.get("ercot-ers-30")))


def test_an_unknown_programme_is_refused_with_the_nearest() -> None:
    with pytest.raises(NotFound, match="did you mean 'ercot-ers-30'"):
        CATALOGUE.get("ercot-ers30")
    assert isinstance(CATALOGUE, Catalogue)
    assert all(isinstance(entry, Entry) for entry in CATALOGUE.entries.values())
