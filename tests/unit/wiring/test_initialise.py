"""`init`: what a site is given, what is kept, and that both ends can use it."""

import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gridaware.clock import ManualClock
from gridaware.domain.errors import InvalidInput, Refused
from gridaware.node.settings import load_relay_settings
from gridaware.node.settings import load_settings as load_agent_settings
from gridaware.node.tls import agent_context, controller_context
from gridaware.service.keys import KeyRing
from gridaware.wiring.config import load_settings
from gridaware.wiring.initialise import initialise

CLOCK = ManualClock(datetime(2026, 7, 1, tzinfo=UTC))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_new_site_has_settings_identities_and_one_key(tmp_path: Path) -> None:
    made = initialise(tmp_path / "site", CLOCK, nodes=("n1",))
    settings = load_settings(made.settings)
    assert settings.control.act is False
    assert made.api_key is not None
    keys = KeyRing.from_file(settings.api_key_file)
    assert keys.holder(made.api_key) == "admin"
    with pytest.raises(Refused):
        keys.holder("another")
    assert made.api_key not in settings.api_key_file.read_text(encoding="utf-8")
    assert not made.kept
    assert set(made.written) == set(contents(tmp_path / "site"))


def test_keys_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    initialise(tmp_path, CLOCK, nodes=("n1",))
    secrets = [*tmp_path.rglob("*.key"), tmp_path / "api-keys"]
    assert len(secrets) == 5
    for path in secrets:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_the_folder_of_a_node_is_all_that_its_agent_needs(tmp_path: Path) -> None:
    made = initialise(tmp_path, CLOCK, nodes=("n1",), hosts=("control.example", "10.0.0.1"))
    folder = tmp_path / "nodes" / "n1"
    assert not (folder / "ca.key").exists()
    agent = load_agent_settings(folder / "agent.yaml")
    assert agent.node_id == "n1"
    assert agent.controller.host == "control.example"
    settings = load_settings(made.settings)
    assert agent.controller.port == settings.control.agents_port
    assert settings.control.agents_host == "0.0.0.0"
    tls = settings.tls_dir
    client = agent_context(agent.tls.ca, agent.tls.certificate, agent.tls.key)
    server = controller_context(tls / "ca.pem", tls / "controller.pem", tls / "controller.key")
    assert client.verify_mode is ssl.CERT_REQUIRED
    assert server.verify_mode is ssl.CERT_REQUIRED


def test_running_it_again_keeps_every_byte_and_adds_a_node(tmp_path: Path) -> None:
    initialise(tmp_path, CLOCK, nodes=("n1",))
    settings = tmp_path / "site.yaml"
    settings.write_text(settings.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    before = contents(tmp_path)
    made = initialise(tmp_path, CLOCK, nodes=("n1", "n2"))
    after = contents(tmp_path)
    assert {path: after[path] for path in before} == before
    assert made.api_key is None
    assert {path.name for path in set(after) - set(before)} == {
        "n2.pem", "n2.key", "ca.pem", "agent.yaml",
    }  # fmt: skip


def test_a_node_of_another_machine_needs_a_name_to_dial(tmp_path: Path) -> None:
    initialise(tmp_path, CLOCK, hosts=("control.example",))
    with pytest.raises(InvalidInput) as caught:
        initialise(tmp_path, CLOCK, nodes=("n1",))
    assert caught.value.code == "init-host-missing"


def test_a_node_id_cannot_leave_the_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        initialise(tmp_path / "site", CLOCK, nodes=("../evil",))
    assert not (tmp_path / "evil").exists()


def test_a_relay_has_a_folder_of_its_own_and_nodes_can_dial_it(tmp_path: Path) -> None:
    relays = {"r1": "relay.example"}
    initialise(tmp_path, CLOCK, nodes=("n1",), hosts=("control.example",), relays=relays, via="r")
    folder = tmp_path / "relays" / "r1"
    assert not (folder / "ca.key").exists()
    relay = load_relay_settings(folder / "relay.yaml")
    assert (relay.relay_id, relay.controller.host) == ("r1", "control.example")
    assert relay.listen.port == relay.controller.port
    agent = load_agent_settings(tmp_path / "nodes" / "n1" / "agent.yaml")
    assert (agent.controller.host, agent.controller.port) == ("r", relay.listen.port)
    # One certificate is good for both of its ends, and says which it is.
    for make in (agent_context, controller_context):
        context = make(relay.tls.ca, relay.tls.certificate, relay.tls.key)
        assert context.verify_mode is ssl.CERT_REQUIRED


def test_a_relay_needs_a_name_for_the_controller_and_one_of_its_own(tmp_path: Path) -> None:
    initialise(tmp_path, CLOCK, hosts=("control.example",))
    for relays, hosts in (({"r1": "relay.example"}, ()), ({"r1": ""}, ("control.example",))):
        with pytest.raises(InvalidInput) as caught:
            initialise(tmp_path, CLOCK, hosts=hosts, relays=relays)
        assert caught.value.code == "init-host-missing"
    # A node that dials a relay needs no name for the controller.
    initialise(tmp_path, CLOCK, nodes=("n1",), via="relay.example")
