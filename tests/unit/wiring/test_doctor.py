"""The doctor: each part says ok, warn or fail, with a fact and what to do; nothing is changed."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import DeviceLost, DeviceResetRequired, Unavailable
from gridaware.domain.fleet import BoardState, LimitRange, Smoothing
from gridaware.domain.reading import Boundary, EnergyReading, Method, Reading
from gridaware.store.controller import ControllerStore
from gridaware.wiring.config import load_settings
from gridaware.wiring.doctor import PARTS, Question, Verdict, diagnose
from gridaware.wiring.doctor_driver import examine
from gridaware.wiring.initialise import initialise

NOW = datetime(2026, 7, 1, tzinfo=UTC)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return initialise(tmp_path / "site", ManualClock(NOW)).settings


def checks(
    site: Path, part: str, *, now: datetime = NOW, flags: dict[str, Any] | None = None, **more: Any
) -> list[tuple[str, str]]:
    question = Question(load_settings(site, flags), ManualClock(now), **more)
    return [(check.verdict.value, check.name) for check in diagnose(question, (part,))]


def test_certificates_are_good_then_running_out_then_expired(site: Path) -> None:
    assert checks(site, "tls") == [("ok", "tls.ca"), ("ok", "tls.controller")]
    soon = NOW + timedelta(days=800)
    assert ("warn", "tls.expires") in checks(site, "tls", now=soon)
    late = NOW + timedelta(days=900)
    assert ("fail", "tls.expired") in checks(site, "tls", now=late)


def test_a_key_that_others_may_read_fails(site: Path) -> None:
    (site.parent / "tls" / "controller.key").chmod(0o644)
    assert ("fail", "tls.key") in checks(site, "tls")


def test_a_site_without_certificates_is_told_to_make_them(site: Path) -> None:
    empty = {"control": {"tls_dir": "nowhere"}}
    assert checks(site, "tls", flags=empty) == [("fail", "tls.files")]


def test_secrets_of_feeds_are_followed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = {
        "id": "u",
        "kind": "webhook",
        "programme": "default",
        "settings": {"secrets": ["env:S"]},
    }
    flags = {"feeds": [feed]}
    assert checks(site, "feeds", flags=flags) == [("fail", "feeds.u.secret-missing")]
    monkeypatch.setenv("S", "a secret of more than 16 bytes")
    assert checks(site, "feeds", flags=flags) == [("ok", "feeds.u")]
    flags["feeds"][0]["kind"] = "telegraph"
    ((verdict, name),) = checks(site, "feeds", flags=flags)
    assert (verdict, name.startswith("feeds.u.")) == ("fail", True)


def test_no_ray_is_a_failure_with_a_fix(site: Path) -> None:
    flags = {"ray": {"address": "http://127.0.0.1:9"}}
    question = Question(load_settings(site, flags), ManualClock(NOW))
    (check,) = diagnose(question, ("ray",))
    assert check.verdict is Verdict.FAIL
    assert "ray start --head" in check.fix


def test_no_agent_is_a_warning_since_a_controller_may_stand_alone(
    site: Path, tmp_path: Path
) -> None:
    assert checks(site, "agent", agent_socket=tmp_path / "none.sock") == [("warn", "agent.socket")]


def test_the_store_is_not_there_before_the_first_start(site: Path) -> None:
    assert checks(site, "store") == [("warn", "store.folder")]
    assert not (site.parent / "state").exists()


def test_nodes_that_should_report_are_looked_up(site: Path) -> None:
    assert checks(site, "nodes") == [("ok", "nodes.none")]
    flags = {"agents": {"expected": ["n1", "n2", "n3"]}}
    assert checks(site, "nodes", flags=flags) == [("fail", "nodes.store-not-ready")]
    settings = load_settings(site)
    settings.state_dir.mkdir()
    store = ControllerStore(settings.store_url, site_id="site", started_at=NOW)
    store.documents.put("node", "n1", "ready", {"node_id": "n1", "state": "ready"}, NOW)
    store.documents.put("node", "n2", "lost", {"node_id": "n2", "state": "lost"}, NOW)
    store.close()
    assert checks(site, "nodes", flags=flags) == [
        ("ok", "nodes.n1"),
        ("fail", "nodes.n2"),
        ("fail", "nodes.n3"),
    ]


def test_the_key_file_is_read(site: Path) -> None:
    assert checks(site, "keys") == [("ok", "keys.file")]
    (site.parent / "api-keys").write_text("nonsense\n", encoding="utf-8")
    assert checks(site, "keys") == [("fail", "keys.api-key-file-malformed")]


def test_the_clock_part_always_has_an_answer(site: Path) -> None:
    ((verdict, name),) = checks(site, "clock")
    assert name == "clock.synchronised"
    assert verdict in {"ok", "warn"}


def test_a_driver_is_asked_in_another_process(site: Path, tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text("import os\nos.abort()\n", encoding="utf-8")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(tmp_path)
    try:
        assert checks(site, "driver", driver="dies") == [("fail", "driver.died")]
        assert checks(site, "driver", driver="absent.module") == [("fail", "driver.driver-import")]
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


def test_looking_changes_nothing(site: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in site.parent.rglob("*")}
    for part in set(PARTS) - {"driver", "ray"}:
        checks(site, part)
    assert {path: path.stat().st_mtime_ns for path in site.parent.rglob("*")} == before


@dataclass
class FakeDriver:
    """Two GPUs; nothing of it can write."""

    settable: bool = True
    lost: set[str] = field(default_factory=set)

    def gpus(self) -> Sequence[Any]:
        return [SimpleNamespace(gpu_id=f"GPU-{i}", index=i, model="H200") for i in range(2)]

    def can_set(self, gpu_id: str) -> bool:
        return self.settable

    def limit_range(self, gpu_id: str) -> LimitRange:
        if gpu_id in self.lost:
            raise DeviceLost("device-lost", f"{gpu_id} fell off the bus")
        return LimitRange(200, 700, 700)

    def enforced_limit_watts(self, gpu_id: str) -> float:
        return 650


class BoardDriver(FakeDriver):
    """Its GPUs tell their state, but the second one does not answer."""

    state = BoardState(False, ("MIG-a", "MIG-b"), ("MAX_Q",), Smoothing(300.0, 2.0, 50.0, 50.0))

    def can_set(self, gpu_id: str) -> bool:
        if gpu_id == "GPU-1":
            raise DeviceResetRequired("device-reset-required", "GPU-1: must be reset")
        return True

    def board_state(self, gpu_id: str) -> BoardState:
        if gpu_id == "GPU-1":
            raise DeviceLost("device-lost", "GPU-1 fell off the bus")
        return self.state


def lines(driver: Any) -> list[tuple[str, str]]:
    found = [(verdict, fact) for verdict, _, fact, _ in examine(driver)]
    json.dumps(found)
    return found


def test_a_healthy_driver_tells_models_range_and_permission() -> None:
    assert lines(FakeDriver()) == [
        ("ok", "2 x H200"),
        ("ok", "GPUs 0, 1: accepts 200 W to 700 W, in force 650 W, default 700 W"),
        ("ok", "this process may set limits (nothing changed to find out)"),
    ]


def test_missing_permission_is_a_warning_and_a_lost_gpu_a_failure() -> None:
    found = lines(FakeDriver(settable=False, lost={"GPU-1"}))
    assert ("fail", "GPU-1 fell off the bus") in found
    assert ("warn", "this process may not set limits of GPUs 0, 1") in found


def test_the_state_of_boards_that_weakens_limits_is_told_and_a_bad_gpu_hides_nothing() -> None:
    found = lines(BoardDriver())
    assert ("warn", "this process may not set limits of GPUs 1") in found
    assert ("warn", "persistence mode is off on GPUs 0: limits get lost") in found
    assert ("ok", "GPU 0 has 2 MIG slices: its board is limited") in found
    assert ("warn", "GPU 0: workload power profiles requested: MAX_Q") in found
    assert ("warn", "GPU 0 holds 300 W after work ends") in found


def test_each_meter_is_read_once_and_says_what_it_shows(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checks(site, "meters") == [("ok", "meters.none")]
    module = ModuleType("meter_of_a_doctor")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    shown = Reading(12_345.0, NOW, Boundary.SITE, Method.METER, accuracy_share=0.005)
    said: dict[str, Reading | Exception] = {
        "main": shown,
        "old": replace(shown, age_seconds=60.0),
        "turned": replace(shown, watts=-12_345.0),
        "gone": Unavailable("meter-unreachable", "no route to host"),
    }
    closed = []

    class Told:
        def __init__(self, options: dict[str, str]) -> None:
            self.name = options["name"]

        def read(self) -> tuple[Reading, EnergyReading | None]:
            told = said[self.name]
            if isinstance(told, Exception):
                raise told
            return told, EnergyReading(7.2e6, "1", NOW, Boundary.SITE)

        def close(self) -> None:
            closed.append(self.name)

    module.open_meter = Told  # type: ignore[attr-defined]
    meters = [{"name": name, "module": module.__name__, "options": {"name": name}} for name in said]
    meters += [{"name": "sum", "module": "device_sum"}, {"name": "no", "module": "nowhere"}]
    flags = {"site": {"meters": meters}}
    question = Question(load_settings(site, flags), ManualClock(NOW))
    found = list(diagnose(question, ("meters",)))
    assert [(check.verdict.value, check.name) for check in found] == [
        ("ok", "meters.main"),
        ("warn", "meters.old"),
        ("warn", "meters.turned"),
        ("fail", "meters.gone.meter-unreachable"),
        ("fail", "meters.no.meter-module"),
    ]
    assert found[0].fact == "12.345 kW, 0.0 s old, within 0.5 %, 2.0 kWh counted"
    assert all(check.fix for check in found[1:])
    assert closed == list(said)


def test_programmes_that_are_out_of_date_or_measured_otherwise_are_told(site: Path) -> None:
    programmes = [
        {"id": "own"},
        {"id": "peak", "catalogue": "caiso-bip"},
        {"id": "ffr", "catalogue": "ercot-ffr"},
        {"id": "fast", "catalogue": "ercot-ffr", "ramp_exempt": True},
    ]
    ramp = {"ramp": {"down_watts_per_minute": 1e6}}
    flags = {"programmes": programmes, "site": ramp}
    assert checks(site, "programmes", flags=flags) == [
        ("ok", "programmes.own"),
        ("ok", "programmes.peak"),
        ("warn", "programmes.peak"),
        ("ok", "programmes.ffr"),
        ("warn", "programmes.ffr"),
        ("ok", "programmes.fast"),
    ]
    assert checks(site, "programmes") == [("ok", "programmes.default")]
    over = {"programmes": [{"id": "elrp", "catalogue": "caiso-elrp"}]}
    late = datetime(2028, 7, 1, tzinfo=UTC)  # it was extended through 2027
    assert len(checks(site, "programmes", flags=over)) == 2
    assert len(checks(site, "programmes", flags=over, now=late)) == 3
