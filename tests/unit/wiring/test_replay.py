"""Replay: an event decided again from a real store, and a forged decision found out."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gridaware.cli.main import main
from gridaware.control.codec import encode
from gridaware.control.instructions import Decide
from gridaware.control.machine import Machine
from gridaware.control.site import ADMIN_FEED, Policy
from gridaware.control.stimuli import SignalReceived, SiteConfigured, Started, Stimulus
from gridaware.domain.moment import Moment
from gridaware.domain.signal import EventRequest, Quantity, Signal, TargetSpec
from gridaware.store.controller import ControllerStore
from gridaware.wiring.config import load_settings
from gridaware.wiring.curves import load_curves

START = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A site whose ledger holds one event that was announced and refused to act on."""
    path = tmp_path / "site.yaml"
    path.write_text("control: {state_dir: state}\n", encoding="utf-8")
    settings = load_settings(path)
    settings.state_dir.mkdir()
    store = ControllerStore(settings.store_url, site_id="site", started_at=START)
    machine = Machine(load_curves())
    request = EventRequest(
        START + timedelta(hours=1),
        START + timedelta(hours=2),
        TargetSpec(Quantity.REDUCTION_FRACTION, 0.25),
    )
    signal = Signal(ADMIN_FEED, "dr-1", 0, START, 1.0, request)
    stimuli: list[Stimulus] = [
        Started(1),
        SiteConfigured(settings.site_value(Policy())),
        SignalReceived(signal),
    ]
    for seconds, stimulus in enumerate(stimuli):
        moment = Moment(float(seconds), START + timedelta(seconds=seconds))
        store.ledger.append("stimulus", encode(stimulus, moment), moment.wall)
        machine.handle(stimulus, moment)
    store.close()
    return path


def forge(config: Path) -> None:
    """Append a decision that the machine never made."""
    settings = load_settings(config)
    store = ControllerStore(settings.store_url, site_id="site", started_at=START)
    never = Decide("d-9", ("admin.dr-1",), "tiers", 1.0, 1.0, 1.0, 0.0, ())
    moment = replace(Moment(9.0, START), wall=START + timedelta(seconds=9))
    store.ledger.append("decision", encode(never, moment), moment.wall)
    store.close()


def test_an_event_comes_out_as_it_did(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "admin.dr-1", "--config", str(config), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["stimuli"] == 3
    assert result["differences"] == []
    assert result["state"] == "opted_out"


def test_a_decision_that_is_not_made_again_is_a_failure(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forge(config)
    assert main(["replay", "admin.dr-1", "--config", str(config), "--json"]) == 1
    (difference,) = json.loads(capsys.readouterr().out)["differences"]
    assert difference.startswith("Decide at 2026-07-01T12:00:09Z")


def test_an_event_that_the_ledger_does_not_know_is_not_found(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "admin.dr-2", "--config", str(config)]) == 3
    assert "gridaware event list" in capsys.readouterr().err


def test_a_site_that_never_ran_has_no_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("{}\n", encoding="utf-8")
    assert main(["replay", "x", "--config", str(path)]) == 69
    assert capsys.readouterr().err.startswith("error[store-not-ready]")
