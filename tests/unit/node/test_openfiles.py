"""Open files: raised as far as the system lets us, and told where that is little."""

import resource
import subprocess
import sys

import pytest

PROGRAM = """
import logging, resource, sys
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stderr)
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
from gridaware.node.openfiles import raise_open_files
print(raise_open_files(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def _run(soft: int, hard: int) -> tuple[str, str]:
    command = [sys.executable, "-c", PROGRAM, str(soft), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.strip(), done.stderr


def test_it_is_raised_to_the_hard_limit_and_a_low_one_is_told():
    told, warned = _run(100, 600)
    assert told == "600 600 600"
    assert "may open 600 files, so it hears about 344 agents" in warned
    assert "LimitNOFILE=" in warned


@pytest.mark.skipif(0 <= HARD < 5000, reason="this system allows fewer open files")
def test_a_limit_that_will_do_is_not_mentioned():
    assert _run(1000, 5000) == ("5000 5000 5000", "")
