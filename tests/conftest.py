"""What holds for every test: which ones share a worker, and which settings must not leak in."""

import os
from pathlib import Path

import pytest

GROUPS = {
    "ray": "ray",  # one Ray head for all of them
    "rig": "rig",  # one compiled library
    "e2e": "e2e",  # one whole site at a time
}
"""Folder to xdist group: the tests of a group run in one worker, one after another."""

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents:
            continue
        group = GROUPS.get(item.path.relative_to(HERE).parts[0])
        if group == "e2e":
            item.add_marker(pytest.mark.real_time)
        if group:
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own settings would change what is tested."""
    for name in list(os.environ):
        if name.startswith("GRIDAWARE__") or name in {"GRIDAWARE_URL", "GRIDAWARE_API_KEY"}:
            monkeypatch.delenv(name)
