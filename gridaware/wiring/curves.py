"""Reads ``configs/curves``: one YAML file per GPU model, every number with source and quality."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import yaml

from gridaware.domain.errors import ConfigError, GridawareError
from gridaware.planning.model import CurveBook, GpuClass, GpuEntry, WorkloadClass
from gridaware.wiring.data import data_path

__all__ = ["load_curves"]

_QUALITIES = ("fitted", "assumed", "published")
_LAW = ("static_share", "exponent", "clock_floor")
_RESIDUALS = ("throughput_rmse", "power_rmse")
_TOP = ("name", "models", "tdp_watts", "limits", "idle", "law", "workloads")


def load_curves(path: Path | None = None) -> CurveBook:
    """Every curve file of a folder; None = those shipped with gridaware.

    Raises:
        ConfigError: the folder is empty, or a file is malformed; the message names the file.
    """
    folder = path if path is not None else data_path("configs") / "curves"
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise ConfigError("curves-missing", f"no curve files in {folder}")
    return CurveBook(tuple(_read(file) for file in files))


def _read(file: Path) -> GpuEntry:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        return _entry(_table(document, "the file", _TOP))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError, GridawareError) as error:
        raise ConfigError("curve-file", f"{file.name}: {error}", file=file.name) from error


def _entry(top: Mapping[str, object]) -> GpuEntry:
    law = _table(top["law"], "law", (*_LAW, *_RESIDUALS, "quality", "source"))
    limit_keys = ("least_watts", "greatest_watts", "default_watts")
    limits = _table(top["limits"], "limits", (*limit_keys, "quality", "source"))
    idle = _table(top["idle"], "idle", ("watts", "quality", "source"))
    for part in (law, limits, idle):
        _quality(part)
    gpu = GpuClass(
        name=str(top["name"]),
        tdp_watts=_number(top, "tdp_watts"),
        least_watts=_number(limits, "least_watts"),
        greatest_watts=_number(limits, "greatest_watts"),
        default_watts=_number(limits, "default_watts"),
        idle_watts=_number(idle, "watts"),
        static_share=_number(law, "static_share"),
        exponent=_number(law, "exponent"),
        clock_floor=_number(law, "clock_floor"),
        source=str(law["source"]),
        throughput_rmse=_residual(law, "throughput_rmse"),
        power_rmse=_residual(law, "power_rmse"),
        quality=_quality(law),
    )
    models = top["models"]
    if not isinstance(models, list) or not models:
        raise ValueError("models must list at least one model name")
    classes = _table(top["workloads"], "workloads", None)
    if "generic" not in classes:
        raise ValueError("workloads lacks the class generic")
    workloads = {name: _workload(name, value) for name, value in classes.items()}
    return GpuEntry(gpu, tuple(str(model) for model in models), workloads)


def _workload(name: str, value: object) -> WorkloadClass:
    shares = ("hot_demand", "hot_share", "cool_power")
    table = _table(value, name, (*shares, *_RESIDUALS, "quality", "source"))
    return WorkloadClass(
        name=name,
        hot_demand=_number(table, "hot_demand"),
        hot_share=_number(table, "hot_share"),
        cool_power=_number(table, "cool_power"),
        quality=_quality(table),
        source=str(table["source"]),
        throughput_rmse=_residual(table, "throughput_rmse"),
        power_rmse=_residual(table, "power_rmse"),
    )


def _table(value: object, where: str, keys: tuple[str, ...] | None) -> Mapping[str, object]:
    """``value`` as a table with exactly ``keys`` (None: any)."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{where} is not a table")
    if keys is not None and set(value) != set(keys):
        odd = sorted(set(value) ^ set(keys))
        raise ValueError(f"{where} lacks or does not know: {', '.join(odd)}")
    return cast("Mapping[str, object]", value)


def _number(table: Mapping[str, object], key: str) -> float:
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError("curve-number", f"{key} is not a number")
    return float(value)


def _residual(table: Mapping[str, object], key: str) -> float | None:
    return None if table[key] is None else _number(table, key)


def _quality(table: Mapping[str, object]) -> str:
    quality = table["quality"]
    if quality not in _QUALITIES:
        raise ValueError(f"quality must be one of {', '.join(_QUALITIES)}, not {quality!r}")
    return str(quality)
