"""The table of cases that feeds are held to: every case is there, and so is every test it names."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TABLE = (TESTS.parent / "docs" / "feeds" / "cases.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([\w/]+\.py)::(test_\w+)`", TABLE)


def test_every_case_has_a_row() -> None:
    users, corners = TABLE.split("## Corner cases")
    assert [int(n) for n in re.findall(r"^\| (\d+) \|", users, re.MULTILINE)] == [
        *range(1, 30),
        419,
    ]
    assert [int(n) for n in re.findall(r"^\| (\d+) \|", corners, re.MULTILINE)] == [*range(1, 11)]
    rows = [line for line in TABLE.splitlines() if re.match(r"\| \d", line)]
    assert all("::test_" in row for row in rows)


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED}))
def test_every_test_that_is_named_exists(file: str) -> None:
    text = (TESTS / file).read_text(encoding="utf-8")
    missing = [
        n for f, n in NAMED if f == file and not re.search(rf"^def {n}\(", text, re.MULTILINE)
    ]
    assert missing == []
