"""Reading over the API: what the store holds, as it is, by page, and for key holders alone."""

import json
from datetime import timedelta

import msgspec
import pytest

from gridaware.domain.wire import Acknowledged, GpuResult
from gridaware.service import render
from gridaware.settlement.energy_report import EnergyFigure, EnergyReport, JobEnergy
from gridaware.settlement.record import Recorder

JOB = {
    "job_id": "train",
    "state": "running",
    "reason": "Capped",
    "why": "each GPU is capped at 250 W",
    "plan_reason": "TierCapped",
    "cap_watts": 250.0,
    "saved_step": None,
    "secret_of_nobody": "not explained",
}
NODE = {
    "node_id": "n-0",
    "connected": True,
    "gpus": [
        {"gpu_id": "GPU-0", "node_id": "n-0", "power_watts": 201.5, "enforced_limit_watts": 250.0},
        {"gpu_id": "GPU-1", "node_id": "n-0", "power_watts": None, "enforced_limit_watts": None},
    ],
}


def put(store, noon, kind, document_id, body, state="running"):
    store.documents.put(kind, document_id, state, body, noon)
    store.ledger.flush()


@pytest.fixture
def noon(clock):
    return clock.wall()


@pytest.mark.parametrize(
    ("path", "kind"),
    [("jobs", "job"), ("events", "event"), ("feeds", "feed"), ("nodes", "node")],
)
def test_a_list_and_its_items_are_the_stored_documents(client, store, noon, path, kind):
    for name in ("a", "b", "c"):
        put(store, noon, kind, name, {"id": name}, state="even" if name == "b" else "odd")
    everything = client.get(f"/api/v1/{path}").json()
    assert everything == {"items": [{"id": "c"}, {"id": "b"}, {"id": "a"}], "next_cursor": None}
    first = client.get(f"/api/v1/{path}?limit=2").json()
    assert [i["id"] for i in first["items"]] == ["c", "b"]
    second = client.get(f"/api/v1/{path}?limit=2&cursor={first['next_cursor']}").json()
    assert second == {"items": [{"id": "a"}], "next_cursor": None}
    odd = client.get(f"/api/v1/{path}?state=odd").json()
    assert [i["id"] for i in odd["items"]] == ["c", "a"]
    both = client.get(f"/api/v1/{path}?state=odd&state=even").json()
    assert len(both["items"]) == 3
    assert client.get(f"/api/v1/{path}/b").json() == {"id": "b"}


def test_an_empty_list_is_a_success(client, store):
    answer = client.get("/api/v1/jobs")
    assert (answer.status_code, answer.json()) == (200, {"items": [], "next_cursor": None})


def test_gpus_are_those_of_the_nodes(client, store, noon):
    put(store, noon, "node", "n-0", NODE)
    put(store, noon, "node", "n-1", {"node_id": "n-1"})
    assert client.get("/api/v1/gpus").json()["items"] == NODE["gpus"]


def test_policies_are_listed(client, store, noon):
    put(store, noon, "policy", "default", {"name": "default", "active": True})
    items = client.get("/api/v1/policies").json()["items"]
    assert items == [{"name": "default", "active": True}]


def test_a_job_is_explained_by_its_reason_its_sentence_and_its_numbers(client, store, noon):
    put(store, noon, "job", "train", JOB)
    explained = client.get("/api/v1/jobs/train/explain").json()
    assert explained["why"] == "each GPU is capped at 250 W"
    assert (explained["reason"], explained["cap_watts"], explained["saved_step"]) == (
        "Capped",
        250.0,
        None,
    )
    assert "secret_of_nobody" not in explained


def test_the_status_says_how_old_the_controllers_last_sign_of_life_is(client, store, noon, clock):
    put(store, noon, "status", "dc-1", {"site": "dc-1", "power_watts": 4000.0})
    clock.advance(4)
    status = client.get("/api/v1/status").json()
    assert (status["site"], status["power_watts"]) == ("dc-1", 4000.0)
    assert status["controller"] == {
        "epoch": 1,
        "heartbeat_at": "2026-11-30T12:00:00Z",
        "age_seconds": 4.0,
        "alive": True,
    }
    clock.advance(60)
    assert client.get("/api/v1/status").json()["controller"]["alive"] is False


def test_the_ledger_is_read_in_order_with_its_chain(client, store, noon):
    for number in range(5):
        store.ledger.append("even" if number % 2 == 0 else "odd", {"number": number}, noon)
    store.ledger.flush()
    page = client.get("/api/v1/ledger?from_seq=2&limit=2").json()
    assert [(e["seq"], e["body"]) for e in page["items"]] == [
        (2, {"number": 1}),
        (3, {"number": 2}),
    ]
    assert page["items"][1]["prev_hash"] == page["items"][0]["hash"]
    rest = client.get(f"/api/v1/ledger?limit=2&cursor={page['next_cursor']}").json()
    assert ([e["seq"] for e in rest["items"]], rest["next_cursor"]) == ([4, 5], None)
    odd = client.get("/api/v1/ledger?kind=odd").json()["items"]
    assert [e["seq"] for e in odd] == [2, 4]


@pytest.mark.parametrize(
    ("form", "media", "disposition"),
    [
        ("json", "application/json", None),
        ("csv", "text/csv; charset=utf-8", 'attachment; filename="grid.dr_1.csv"'),
        ("html", "text/html; charset=utf-8", None),
    ],
)
def test_a_report_comes_in_the_form_asked_for(
    client, store, noon, monkeypatch, form, media, disposition
):
    monkeypatch.setattr(render, "event_report_csv", lambda body, _: f"csv of {body['event_id']}")
    monkeypatch.setattr(render, "event_report_html", lambda body: f"html of {body['event_id']}")
    put(store, noon, "report", "grid.dr:1", {"event_id": "grid.dr:1"})
    answer = client.get(f"/api/v1/events/grid.dr:1/report?format={form}")
    assert answer.headers["Content-Type"] == media
    assert answer.headers.get("Content-Disposition") == disposition
    wanted = '{"event_id":"grid.dr:1"}' if form == "json" else f"{form} of grid.dr:1"
    assert answer.text == wanted


def test_any_table_of_a_report_comes_as_csv_under_its_name(client, store, noon, monkeypatch):
    monkeypatch.setattr(render, "event_report_csv", lambda _, table: f"{table} of it")
    put(store, noon, "report", "grid.dr:1", {"event_id": "grid.dr:1"})
    answer = client.get("/api/v1/events/grid.dr:1/report?format=csv&table=event-gpus")
    assert answer.text == "event-gpus of it"
    named = 'attachment; filename="grid.dr_1-event-gpus.csv"'
    assert answer.headers["Content-Disposition"] == named


# Power


def test_power_is_the_mean_least_and_greatest_of_each_step(client, store, noon, clock):
    for second, watts in enumerate([100.0, 300.0, 50.0]):
        store.series.append("meter", noon + timedelta(seconds=second), watts)
    store.series.append("target", noon, 200.0)
    store.ledger.flush()
    clock.advance(10)
    answer = client.get(
        "/api/v1/power",
        params={"series": ["meter", "target"], "start": "2026-11-30T12:00:00Z", "step_seconds": 2},
    ).json()
    assert answer["step_seconds"] == 2
    shown = [
        (p["series"], p["at"], p["min_watts"], p["watts"], p["max_watts"]) for p in answer["items"]
    ]
    assert shown == [
        ("meter", "2026-11-30T12:00:00Z", 100.0, 200.0, 300.0),
        ("meter", "2026-11-30T12:00:02Z", 50.0, 50.0, 50.0),
        ("target", "2026-11-30T12:00:00Z", 200.0, 200.0, 200.0),
    ]


def test_power_chooses_a_step_that_keeps_the_answer_small(client, store):
    query = {"series": "meter", "start": "2026-11-23T12:00:00Z", "end": "2026-11-30T12:00:00Z"}
    assert client.get("/api/v1/power", params=query).json()["step_seconds"] == 1008  # 7 d / 600


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({}, "request-invalid"),
        ({"series": "meter", "step_seconds": 0}, "request-invalid"),
        ({"series": "meter", "step_seconds": "nan"}, "request-invalid"),
        ({"series": "meter", "start": "yesterday"}, "time-malformed"),
        ({"series": "meter", "start": "2026-11-30T12:00:00"}, "time-naive"),
        ({"series": "meter", "start": "2026-12-01T12:00:00Z"}, "end-before-start"),
        (
            {"series": "meter", "start": "2026-01-01T00:00:00Z", "step_seconds": 1},
            "power-range-too-fine",
        ),
    ],
)
def test_a_range_that_cannot_be_is_refused(client, store, query, code):
    answer = client.get("/api/v1/power", params=query)
    assert (answer.status_code, answer.json()["code"]) == (422, code)


# Energy


def _figure(name, joules, method="counter", coverage=1.0, flags=()):
    return EnergyFigure(name, joules, joules / 3.6e6, method, coverage, joules / 100, 60, flags)


def _period(noon, minute, running, held, method="counter", coverage=1.0, flags=()):
    jobs = []
    for job_id, team in (("a", "vision"), ("b", "vision"), ("c", "speech")):
        run = _figure("running", running, method, coverage, flags)
        idle = _figure("held_idle", held)
        jobs.append(
            JobEnergy(
                job_id=job_id,
                team=team,
                tier="flex-1",
                gpus=2,
                energy_joules=running + held,
                energy_kwh=(running + held) / 3.6e6,
                running=run,
                held_idle=idle,
            )
        )
    return EnergyReport(
        schema="x",
        start=noon + timedelta(minutes=minute),
        end=noon + timedelta(minutes=minute + 1),
        seconds=60.0,
        boundary="site",
        meter_method="meter",
        meter=_figure("meter", 3 * (running + held) + 50.0),
        lines=(
            _figure("job", 3 * running),
            _figure("held_idle", 3 * held),
            _figure("overhead", 30.0, "estimated"),
            _figure("unexplained", 20.0, "remainder"),
        ),
        jobs=tuple(jobs),
        teams=(),
        gpus=(_figure("GPU-0", running),),
        overhead_quality="assumed",
        sensor_gain_unknown=0.05,
        warnings=(),
    )


@pytest.fixture
def two_minutes(store, noon, clock):
    store.energy.append(_period(noon, 0, running=1000.0, held=0.0))
    store.energy.append(_period(noon, 1, 2000.0, 10.0, "integrated", 0.5, ("counter-reset",)))
    store.ledger.flush()
    clock.advance(3600)


def test_the_lines_of_an_energy_report_sum_to_the_meter(client, two_minutes):
    report = client.get("/api/v1/reports/energy").json()
    assert report["meter"]["joules"] == 9130.0
    assert sum(line["joules"] for line in report["lines"]) == 9130.0
    assert {line["name"]: line["joules"] for line in report["lines"]} == {
        "job": 9000.0,
        "held_idle": 30.0,
        "unallocated": 0.0,
        "unmanaged": 0.0,
        "overhead": 60.0,
        "unexplained": 40.0,
    }
    assert (report["start"], report["end"]) == ("2026-11-30T12:00:00Z", "2026-11-30T12:02:00Z")


def test_a_jobs_line_says_method_coverage_band_and_flags(client, two_minutes):
    [job, *_] = client.get("/api/v1/reports/energy?by=job").json()["jobs"]
    assert (job["job_id"], job["team"], job["gpus"], job["energy_joules"]) == (
        "a",
        "vision",
        2,
        3010,
    )
    assert job["running"] == {
        "name": "running",
        "joules": 3000.0,
        "kwh": pytest.approx(3000 / 3.6e6),
        "method": "mixed",
        "coverage": 0.75,
        "band_joules": 30.0,
        "flags": ["counter-reset"],
    }
    assert job["held_idle"]["joules"] == 10.0


def test_teams_and_gpus_add_up(client, two_minutes):
    report = client.get("/api/v1/reports/energy").json()
    assert [(t["team"], t["jobs"], t["energy_joules"]) for t in report["teams"]] == [
        ("speech", 1, 3010.0),
        ("vision", 2, 6020.0),
    ]
    assert [(g["name"], g["joules"]) for g in report["gpus"]] == [("GPU-0", 3000.0)]
    assert set(client.get("/api/v1/reports/energy?by=team").json()) == {
        "asked_start",
        "asked_end",
        "start",
        "end",
        "meter",
        "teams",
    }


def test_a_range_without_a_period_has_no_bounds_and_no_coverage(client, two_minutes):
    query = {"start": "2026-11-01T00:00:00Z", "end": "2026-11-02T00:00:00Z"}
    report = client.get("/api/v1/reports/energy", params=query).json()
    assert (report["start"], report["meter"]["joules"], report["meter"]["coverage"]) == (
        None,
        0.0,
        None,
    )
    assert report["jobs"] == []


# Metrics and health


def test_metrics_are_named_with_base_units_and_carry_no_job(
    client, store, noon, two_minutes, clock
):
    put(store, noon, "node", "n-0", NODE)
    put(store, noon, "job", "train", JOB)
    event = {
        "event_id": "grid.dr-1",
        "feed_id": "grid",
        "received_at": "2026-11-30T12:59:30Z",
        "latency_seconds": {"decided": 0.004, "accepted": 0.021, "confirmed": None},
    }
    put(store, noon, "event", "grid.dr-1", event)
    status = {
        "power_watts": 4100.0,
        "target_watts": 3000.0,
        "unresolved_watts": 0.0,
        "acting_events": ["grid.dr-1"],
        "jobs": {"running": 3},
    }
    put(store, noon, "status", "dc-1", status)
    store.heartbeat(clock.wall())
    store.ledger.flush()
    text = client.get("/metrics").text
    lines = set(text.splitlines())
    assert {
        'gridaware_build_info{version="0.1.0"} 1.0',
        "gridaware_controller_up 1.0",
        "gridaware_site_power_watts 4100.0",
        "gridaware_target_power_watts 3000.0",
        "gridaware_unresolved_watts 0.0",
        "gridaware_event_active 1.0",
        'gridaware_jobs{state="running"} 3.0',
        'gridaware_gpu_power_watts{gpu="GPU-0",node="n-0"} 201.5',
        'gridaware_gpu_power_cap_watts{gpu="GPU-0",node="n-0"} 250.0',
        'gridaware_node_connected{node="n-0"} 1.0',
        'gridaware_signal_age_seconds{feed="grid"} 30.0',
        'gridaware_actuation_latency_seconds{clock="accepted"} 0.021',
        'gridaware_energy_joules_total{class="flex-1",team="vision"} 6020.0',
    } <= lines
    assert "train" not in text
    assert "GPU-1" not in text


def test_each_gpus_clocks_of_each_event_are_counted_once(client, store, noon, clock):
    def report(event: str, final: bool) -> None:
        recorder = Recorder("d1-1", {"n-0": {"GPU-0": 250.0, "GPU-1": 250.0}}, {"n-0": 1})
        results = tuple(GpuResult(f"GPU-{i}", 250.0, 250.0, None, 0.001) for i in range(2))
        recorder.acknowledged(Acknowledged("n-0", 1, 1, "d1-1", results, True, noon), 10.04)
        record = msgspec.to_builtins(recorder.record(10.0, 10.004))
        put(store, noon, "report", event, {"event_id": event, "final": final, "response": record})

    put(store, noon, "report", "old", {"event_id": "old"})
    report("grid.one", final=False)
    store.ledger.flush()
    name, labels = "gridaware_response_seconds", 'clock="accepted"'
    lines = client.get("/metrics").text.splitlines()
    assert f'{name}_bucket{{{labels},le="0.02"}} 0.0' in lines
    assert f'{name}_bucket{{{labels},le="0.05"}} 2.0' in lines
    assert f'{name}_bucket{{{labels},le="+Inf"}} 2.0' in lines
    assert f"{name}_sum{{{labels}}} 0.08" in lines
    assert f'{name}_count{{clock="confirmed"}} 0.0' in lines
    report("grid.one", final=True)  # the same response, now for good
    report("grid.two", final=False)
    lines = client.get("/metrics").text.splitlines()
    assert f"{name}_count{{{labels}}} 4.0" in lines


def test_the_energy_counter_only_grows_by_what_came_since(client, store, noon, two_minutes, clock):
    def vision() -> str:
        lines = client.get("/metrics").text.splitlines()
        return next(line for line in lines if 'team="vision"' in line).split()[-1]

    assert (vision(), vision()) == ("6020.0", "6020.0")
    store.energy.append(_period(noon, 2, running=5.0, held=0.0))
    store.ledger.flush()
    assert vision() == "6030.0"


def test_health_is_open_and_readiness_follows_the_controller(client, store, clock):
    client.headers.pop("Authorization")
    assert client.get("/healthz").json() == {"ok": True}
    assert client.get("/readyz").json() == {"ready": True}
    clock.advance(60)
    refusal = client.get("/readyz")
    assert (refusal.status_code, refusal.json()["code"]) == (503, "controller-gone")
    assert client.get("/healthz").status_code == 200


def test_before_the_first_controller_reads_say_so_and_serve_once_it_came(client, settings, noon):
    from gridaware.store.controller import ControllerStore

    for path in ("/api/v1/jobs", "/api/v1/status", "/api/v1/stream", "/readyz"):
        refusal = client.get(path)
        assert (refusal.status_code, refusal.json()["code"]) == (503, "store-not-ready")
        assert refusal.headers["Retry-After"] == "1"
    assert "gridaware_controller_up 0.0" in client.get("/metrics").text
    store = ControllerStore(settings.store, site_id="dc-1", started_at=noon)
    assert client.get("/api/v1/jobs").status_code == 200
    refusal = client.get("/api/v1/status")
    assert (refusal.status_code, refusal.json()["code"]) == (503, "status-not-ready")
    store.close()


def test_the_openapi_document_describes_every_route_and_its_problems(client):
    document = client.get("/api/v1/openapi.json").json()
    assert "/api/v1/jobs/{job_id}/pause" in document["paths"]
    ids = [o["operationId"] for p in document["paths"].values() for o in p.values()]
    assert len(ids) == len(set(ids))
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation.get("summary"), path
            assert operation.get("description"), path
            if path.startswith("/api/v1/") and "signals" not in path:
                assert operation["security"] == [{"API key": []}]
                assert "application/problem+json" in operation["responses"]["503"]["content"]
    assert json.dumps(document["components"]["schemas"]["JobBody"]).count("gpus")
