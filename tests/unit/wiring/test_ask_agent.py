"""Asking the agent of this node over its own socket, with no controller anywhere."""

import asyncio
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gridaware.cli.main import main
from gridaware.domain.errors import NotFound, Refused, Unavailable
from gridaware.node.adminsocket import AdminSocket
from gridaware.wiring.ask_agent import ask_agent


def release(arguments: Mapping[str, str]) -> object:
    if arguments.get("confirm") != "n1":
        raise Refused("lease-alive", "lease L1 is in force", lease="L1")
    return {"node_id": "n1", "phase": "idle", "released": True, "holding": False, "gpus": []}


def status(arguments: Mapping[str, str]) -> object:
    return {"node_id": "n1", "phase": "holding", "released": False, "holding": True, "gpus": []}


@pytest.fixture
def socket_path() -> Iterator[Path]:
    """The agent's real socket, in a thread of its own; its path must be short."""
    started, loop = threading.Event(), asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "admin.sock"
        admin = AdminSocket(path, {"release": release, "status": status})

        def serve() -> None:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(admin.start())
            started.set()
            loop.run_forever()
            loop.run_until_complete(admin.stop())
            loop.close()

        thread = threading.Thread(target=serve)
        thread.start()
        assert started.wait(10)
        yield path
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def test_a_release_is_refused_while_a_lease_is_alive_and_done_when_confirmed(
    socket_path: Path,
) -> None:
    with pytest.raises(Refused) as caught:
        ask_agent(socket_path, "release")
    assert (caught.value.code, caught.value.facts) == ("lease-alive", {"lease": "L1"})
    assert ask_agent(socket_path, "release", {"confirm": "n1"})["phase"] == "idle"


def test_an_unknown_command_keeps_its_kind_of_error(socket_path: Path) -> None:
    with pytest.raises(NotFound):
        ask_agent(socket_path, "explode")


def test_no_agent_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        ask_agent(tmp_path / "none.sock", "release")
    assert caught.value.code == "agent-unreachable"


def test_the_command_line_releases_this_node(
    socket_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nobody is at a keyboard here: what a script has not confirmed is refused.
    assert main(["release", "--socket", str(socket_path)]) == 4
    assert "--confirm NODE_ID" in capsys.readouterr().err
    confirmed = ["--confirm", "n1", "--reason", "smoke", "--json"]
    assert main(["release", "--socket", str(socket_path), *confirmed]) == 0
    assert '"phase": "idle"' in capsys.readouterr().out
