"""Entries of the catalogue read from files, and what a site's programme takes over from them."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gridaware.control.codec import from_builtins, to_builtins
from gridaware.control.site import Policy, Site
from gridaware.domain.errors import ConfigError
from gridaware.domain.programme import Programme, SignalLoss
from gridaware.domain.signal import EventRequest, Quantity, TargetSpec
from gridaware.wiring.catalogue import read_entry
from gridaware.wiring.config import load_settings
from gridaware.wiring.data import data_path

FEEDS = """feeds:
  - {id: a, kind: webhook, programme: gb-dfs}
  - {id: b, kind: webhook, programme: gb-dynamic-containment}"""
SHIPPED = data_path("configs") / "programmes"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def site_of(tmp_path: Path, programmes: str, more: str = "") -> Site:
    path = tmp_path / "site.yaml"
    path.write_text(f"{more}\nprogrammes: {programmes}\n", encoding="utf-8")
    return load_settings(path).site_value(Policy())


def programme_of(tmp_path: Path, text: str, at: str = "2026-11-30T12:00") -> Programme:
    return site_of(tmp_path, f"[{text}]").programme("p", utc(at))


def test_what_is_not_said_is_as_in_the_catalogue(tmp_path: Path) -> None:
    found = programme_of(tmp_path, "{id: p, catalogue: caiso-bip}")
    assert found == Programme(
        "p",
        deadline_seconds=1800.0,
        settlement_interval_seconds=900.0,
        max_duration_seconds=6 * 3600.0,
        mandatory=True,
        signal_loss=SignalLoss(6 * 3600.0),
        baseline="meter_before_after",
        tariff_baseline="firm_service_level",
        catalogue="caiso-bip",
        version="2026",
    )


def test_what_is_said_wins_key_by_key(tmp_path: Path) -> None:
    found = programme_of(
        tmp_path,
        "{id: p, catalogue: caiso-bip, deadline_seconds: 900, mandatory: false, "
        "baseline: meter_before_after, signal_loss: {fallback_fraction: 0.5}}",
    )
    assert (found.deadline_seconds, found.mandatory) == (900.0, False)
    assert found.signal_loss == SignalLoss(6 * 3600.0, 0.5)
    assert found.tariff_baseline == ""  # the operator has chosen
    assert found.settlement_interval_seconds == 900.0


def test_each_version_counts_from_its_day_on(tmp_path: Path) -> None:
    site = site_of(tmp_path, "[{id: p, catalogue: miso-lmr}, {id: other}]")
    old = site.programme("p", utc("2028-05-31T12:00"))
    new = site.programme("p", utc("2028-06-01T12:00"))
    assert (old.version, old.deadline_seconds) == ("until 2028", 6 * 3600.0)
    assert (new.version, new.deadline_seconds) == ("2028/29", 1800.0)
    assert [p.programme_id for p in site.programmes_at(utc("2028-06-01T12:00"))] == ["p", "other"]
    assert site.programme("unknown", utc("2028-06-01T12:00")) == Programme("unknown")


def test_a_site_with_versions_comes_back_from_the_ledger_as_it_was(tmp_path: Path) -> None:
    site = site_of(tmp_path, "[{id: p, catalogue: caiso-elrp}, {id: n, catalogue: nordic-ffr}]")
    assert from_builtins(to_builtins(site), Site) == site


def test_another_rule_of_the_frequency_brings_its_own_deadline(tmp_path: Path) -> None:
    usual = programme_of(tmp_path, "{id: p, catalogue: nordic-ffr}")
    chosen = programme_of(
        tmp_path, "{id: p, catalogue: nordic-ffr, frequency: {rule: nordic-ffr-49.5}}"
    )
    assert usual.frequency is not None
    assert chosen.frequency is not None
    assert (usual.deadline_seconds, usual.frequency.trigger_hz) == (1.3, 49.7)
    assert (chosen.deadline_seconds, chosen.frequency.trigger_hz) == (0.7, 49.5)
    assert usual.ladder == chosen.ladder == (0.1, 0.2, 0.3, 0.4)  # armed by its deadline


def asked(start: str, end: str | None) -> EventRequest:
    target = TargetSpec(Quantity.REDUCTION_FRACTION, 0.2)
    return EventRequest(utc(start), None if end is None else utc(end), target)


def test_hours_that_were_read_in_the_rules_bind_and_others_do_not(tmp_path: Path) -> None:
    night = asked("2026-07-01T05:00", "2026-07-01T06:00")
    elrp = programme_of(tmp_path, "{id: p, catalogue: caiso-elrp, mandatory: true}")
    assert elrp.voluntary(night) == "OutsideObligation"
    assert elrp.voluntary(asked("2026-07-01T23:30", "2026-07-02T00:30")) == ""
    # PJM's windows before 2027/28 are to be checked in the tariff: until then every event is owed.
    pjm = programme_of(tmp_path, "{id: p, catalogue: pjm-load-management}")
    assert pjm.obligation is None
    assert pjm.voluntary(night) == ""


def test_hours_of_the_site_are_in_the_zone_of_its_programme_or_its_own(tmp_path: Path) -> None:
    hours = 'obligation_hours: ["13:00-19:00"]'
    texas = programme_of(tmp_path, f"{{id: p, catalogue: ercot-ers-30, {hours}}}")
    own = site_of(tmp_path, f"[{{id: p, {hours}}}]", "site: {time_zone: Europe/Berlin}")
    noon = asked("2026-07-01T11:30", "2026-07-01T12:30")  # 13:30 in Berlin, 06:30 in Texas
    assert texas.voluntary(noon) == "OutsideObligation"
    assert own.programme("p", utc("2026-07-01T12:00")).voluntary(noon) == ""
    assert programme_of(tmp_path, "{id: p, mandatory: false}").voluntary(noon) == (
        "VoluntaryProgramme"
    )


def test_an_unknown_entry_is_refused_with_the_nearest_and_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        site_of(tmp_path, "[{id: p, catalogue: ercot-ers30}]")
    assert "line 2" in refused.value.message
    assert "did you mean 'ercot-ers-30'" in refused.value.message
    with pytest.raises(ConfigError):
        site_of(tmp_path, "[{id: p, catalogue: ../curves/a100}]")


@pytest.mark.parametrize(
    "text",
    [
        "programmes: [{id: a, catalogue: gb-dfs}, {id: b, catalogue: gb-dynamic-containment}]",
        "programmes: [{id: gb-dfs}, {id: b, catalogue: gb-dynamic-containment}]",
        FEEDS,
    ],
)
def test_programmes_that_exclude_each_other_are_refused_together(tmp_path: Path, text: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_settings(path)
    assert refused.value.code == "programmes-exclusive"
    assert refused.value.facts["programmes"] == "gb-dfs, gb-dynamic-containment"
    assert f"{path}:1" in refused.value.message
    assert "National Grid ESO" in refused.value.message


def complaints(tmp_path: Path, old: str, new: str) -> str:
    text = (SHIPPED / "caiso-bip.yaml").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "caiso-bip.yaml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        read_entry(path)
    assert refused.value.code == "config-invalid"
    return refused.value.message


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("deadline_seconds:", "deadline_minutes:", "did you mean 'deadline_seconds'"),
        ("value: 1800", "value: soon", "is 'soon', which it does not take"),
        ("mark: sourced", "mark: sure", "must be one of sourced, check the tariff"),
        ("source: rules", "source: hearsay", "is 'hearsay', not in sources"),
        ("time_zone: America/Los_Angeles", "time_zone: PST8PDX", "not a zone"),
        ('"2026"', "2026", "must be text"),
        ("baseline_available: false", "baseline_available: perhaps", "must be true or false"),
        ("id: caiso-bip", "id: caiso-bop", "is not the file's name"),
        ("10 events per month", "ten events", "is no cap"),
        ("operator: ", "operators: ", "lacks operator"),
        ("hold_seconds: 21600", "hold_seconds: -1", "hold_seconds must be 0 or more"),
        ("      recall:", "      recal:", "is unknown; did you mean 'recall'"),
        ("summary:", "name: again\nsummary:", "is given twice"),
        ("      trigger:", "      triger:", "lacks trigger"),
        ("  - programme: caiso-pdr", "  - programm: caiso-pdr", "lacks programme"),
        ("exclusive_with:\n", "exclusive_with: {}\nothers:\n", "exclusive_with must be a list"),
        ("versions:\n", "versions: {}\nothers:\n", "versions must be a list"),
        ("frequency_rule:\n", "frequency_rule: none\n      recalled:\n", "must be a table"),
        ("hold_seconds: 21600", "hold_seconds: long", "is malformed"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    message = complaints(tmp_path, old, new)
    assert said in message
    assert "line " in message or "flag or default" in message


def test_a_baseline_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'meter_before_after'"):
        site_of(tmp_path, "[{id: p, baseline: meter_before_aftr}]")
