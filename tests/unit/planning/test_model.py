"""The cap model against its published check values and the public traces it was fitted to."""

import csv
import dataclasses
from collections import defaultdict

import numpy as np
import pytest

from gridaware.domain.errors import ConfigError, InvalidInput, NotFound
from gridaware.domain.fleet import LimitRange
from gridaware.planning.model import CurveBook, curve_of, respond
from gridaware.wiring.curves import load_curves
from gridaware.wiring.data import data_path

CAPS = (100, 90, 80, 70, 62, 50, 40, 30)
# Throughput and power in per cent, worked by hand from the fit of the A100 sweep (two decimals).
CHECK_VALUES = {
    "pretrain": ("100/96 95/87 89/77 82/68 76/60 66/49 54/40 36/30"),
    "finetune": ("100/84 98/81 95/76 91/70 87/62 79/50 69/40 52/30"),
    "llm-batch-infer": ("100/90 98/86 94/80 90/70 86/62 78/50 68/40 50/30"),
}


@pytest.mark.parametrize("workload", CHECK_VALUES)
def test_a100_responds_as_in_the_published_check_values(book, workload):
    gpu = book.gpu("a100-400")
    for percent, pair in zip(CAPS, CHECK_VALUES[workload].split(), strict=True):
        throughput, power = respond(gpu, book.workload(gpu, workload), 4.0 * percent)
        want_throughput, want_power = (int(part) / 100 for part in pair.split("/"))
        assert throughput == pytest.approx(want_throughput, abs=0.0051)
        assert power / 400 == pytest.approx(want_power, abs=0.0051)


def test_arrays_and_floats_give_the_same_answers(book):
    gpu = book.gpu("v100-250")
    work = book.workload(gpu, "bert")
    caps = np.linspace(100, 250, 7)
    throughput, power = respond(gpu, work, caps)
    assert [respond(gpu, work, float(cap)) for cap in caps] == [
        pytest.approx(pair) for pair in zip(throughput, power, strict=True)
    ]


@pytest.mark.parametrize(
    ("kind", "prefix"), [("pretrain", "pt_"), ("finetune", "ft_"), ("llm-batch-infer", "infer_")]
)
def test_a100_classes_stay_within_their_printed_residuals(book, shared_data, kind, prefix):
    gpu = book.gpu("a100-400")
    work = book.workload(gpu, kind)
    errors = []
    with (shared_data / "emerald_phoenix" / "dvfs_sweep.csv").open() as file:
        for row in csv.DictReader(file):
            # The 32g and 48g inference rows are scaled copies of the plain ones.
            if row["Workload"].startswith(prefix) and not row["Workload"].endswith(
                ("_32g", "_48g")
            ):
                throughput, power = respond(gpu, work, float(row["GPU power cap"]))
                errors.append(
                    (
                        throughput - float(row["normalized throughput"]),
                        (power - float(row["power per GPU"])) / 400,
                    )
                )
    throughput_rmse, power_rmse = np.sqrt(np.mean(np.square(errors), axis=0))
    assert len(errors) >= 6
    assert throughput_rmse == pytest.approx(work.throughput_rmse, abs=0.001)
    assert power_rmse == pytest.approx(work.power_rmse, abs=0.001)


ZEUS = {
    "bert": ("squad", "bert_base_uncased"),
    "resnet50": ("imagenet", "resnet50"),
    "deepspeech2": ("librispeech", "deepspeech2"),
    "shufflenet": ("cifar100", "shufflenetv2"),
    "ncf": ("movielens-1m", "ncf"),
}


@pytest.mark.parametrize("name", ["v100-250", "a40-300", "rtx6000-260", "p100-250"])
def test_zeus_classes_stay_within_their_printed_residuals(book, shared_data, name):
    gpu = book.gpu(name)
    path = shared_data / "zeus_nsdi23" / f"summary_power_{name.split('-')[0]}.csv"
    rows = defaultdict(lambda: defaultdict(dict))
    with path.open() as file:
        for row in csv.DictReader(file):
            runs = rows[row["dataset"], row["network"]]
            run = runs[row["batch_size"], row["optimizer"]]
            run[float(row["power_limit"])] = (
                float(row["time_per_epoch"]),
                float(row["average_power"]),
            )
    for kind, key in ZEUS.items():
        if kind not in {w for e in book.entries if e.gpu.name == name for w in e.workloads}:
            continue
        seen = defaultdict(list)
        for run in rows[key].values():
            if gpu.tdp_watts in run:
                for cap, (seconds, watts) in run.items():
                    seen[cap].append((run[gpu.tdp_watts][0] / seconds, watts / gpu.tdp_watts))
        work = book.workload(gpu, kind)
        means = {cap: np.mean(pairs, axis=0) for cap, pairs in seen.items()}
        errors = []
        for cap, mean in means.items():
            throughput, power = respond(gpu, work, cap)
            errors.append((throughput - mean[0], power / gpu.tdp_watts - mean[1]))
        throughput_rmse, power_rmse = np.sqrt(np.mean(np.square(errors), axis=0))
        assert throughput_rmse == pytest.approx(work.throughput_rmse, abs=0.001), kind
        assert power_rmse == pytest.approx(work.power_rmse, abs=0.001), kind


def test_a_cap_near_the_minimum_is_not_honoured(book):
    # A40 at 100 W: the traces show up to 20.7 % more than the cap.
    gpu = book.gpu("a40-300")
    _, power = respond(gpu, book.workload(gpu, "bert"), 100.0)
    assert 100.0 < power < 100.0 * 1.21


def test_a_cap_above_what_decode_draws_does_nothing(book):
    gpu = book.gpu("h200-700")
    work = book.workload(gpu, "llm-decode")
    assert respond(gpu, work, 320.0) == respond(gpu, work, 700.0)


def test_curves_follow_the_model_and_their_contract(book):
    for entry in book.entries:
        for work in entry.workloads.values():
            curve = curve_of(entry.gpu, work)
            caps = np.linspace(entry.gpu.least_watts, entry.gpu.greatest_watts, 201)
            throughput, power = respond(entry.gpu, work, caps)
            assert list(curve.power_watts) == sorted(curve.power_watts)
            assert list(curve.throughput) == sorted(curve.throughput)
            assert curve.throughput[-1] == 1.0
            for cap, share, watts in zip(caps, throughput, power, strict=True):
                assert curve.throughput_at(cap) == pytest.approx(share, abs=0.013)
                assert curve.power_at(cap) == pytest.approx(watts, abs=0.003 * entry.gpu.tdp_watts)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100-400"),
        ("NVIDIA H100 80GB HBM3", "h100-700"),
        ("NVIDIA H200", "h200-700"),
        ("NVIDIA B200", "b200-1000"),
        ("Tesla V100-PCIE-32GB", "v100-250"),
        ("NVIDIA A40", "a40-300"),
        ("Quadro RTX 6000", "rtx6000-260"),
        ("Tesla P100-PCIE-16GB", "p100-250"),
    ],
)
def test_drivers_model_names_find_their_class(book, model, name):
    assert book.gpu(model).name == name


def test_a_known_model_of_another_rated_power_is_scaled_and_assumed(book):
    gpu = book.gpu("Tesla V100-SXM2-16GB", LimitRange(150, 300, 300))
    assert (gpu.tdp_watts, gpu.least_watts, gpu.quality) == (300, 150, "assumed")
    same = book.gpu("NVIDIA A40", LimitRange(100, 300, 300))
    assert same.quality == "fitted"


def test_an_unknown_model_borrows_shares_only_if_its_limits_are_known(book):
    gpu = book.gpu("Frobnicator 9", LimitRange(60, 120, 120))
    assert gpu.tdp_watts == 120
    assert curve_of(gpu, book.workload(gpu, None)).quality == "assumed"
    with pytest.raises(NotFound, match="Frobnicator"):
        book.gpu("Frobnicator 9")


def test_unknown_work_gets_the_generic_assumed_class(book):
    gpu = book.gpu("a100-400")
    assert book.workload(gpu, "knitting") is book.workload(gpu, None)
    assert book.workload(gpu, None).quality == "assumed"
    assert book.curve("a100-400", "pretrain", gpu.limits).quality == "fitted"


def test_a_devices_curve_is_made_once_and_strangers_do_not_fill_the_memory(book, monkeypatch):
    limits = LimitRange(100.0, 250.0, 250.0)
    assert book.curve("Tesla V100", None, limits) is book.curve("Tesla V100", None, limits)
    other = book.curve("Tesla V100", None, LimitRange(120.0, 250.0, 250.0))
    assert other.cap_watts[0] == 120.0
    fresh = CurveBook(book.entries)
    monkeypatch.setattr("gridaware.planning.model.MOST_CURVES", 2)
    curves = [fresh.curve(f"unknown {n}", None, limits) for n in range(4)]
    assert len(curves) == 4
    assert fresh.curve("unknown 0", None, limits) is curves[0]
    assert fresh.curve("unknown 3", None, limits) is not curves[3]
    assert fresh.curve("unknown 3", None, limits) == curves[3]


def test_every_fitted_number_shows_residuals_and_no_assumed_one_does(book):
    for entry in book.entries:
        for thing in (entry.gpu, *entry.workloads.values()):
            assert thing.source
            assert (thing.throughput_rmse is not None) == (thing.quality == "fitted")


@pytest.mark.parametrize(
    "change",
    [{"tdp_watts": 0.0}, {"least_watts": 500.0}, {"static_share": 1.0}, {"clock_floor": 0.0}],
)
def test_an_impossible_gpu_class_is_refused(book, change):
    with pytest.raises(InvalidInput):
        dataclasses.replace(book.gpu("a100-400"), **change)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("tdp_watts: 400", "tdp_watts: soon", "tdp_watts is not a number"),
        ("exponent: 2.46", "exponentt: 2.46", "exponent, exponentt"),
        ("quality: fitted", "quality: good", "quality must be one of"),
        ("  generic:", "  generick:", "lacks the class generic"),
        ("models: [", "models: [[", "a100-400.yaml"),
    ],
)
def test_a_malformed_curve_file_is_refused_by_name(tmp_path, old, new, complaint):
    text = (data_path("configs") / "curves" / "a100-400.yaml").read_text()
    assert old in text
    (tmp_path / "a100-400.yaml").write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=complaint):
        load_curves(tmp_path)


def test_an_empty_curve_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no curve files"):
        load_curves(tmp_path)
