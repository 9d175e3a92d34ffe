"""The agent's settings: everything that is wrong at once, each with its line."""

from pathlib import Path

import pytest

from gridaware.domain.errors import ConfigError
from gridaware.node.settings import load_relay_settings, load_settings

GOOD = """\
node_id: n0
controller: {host: control.example, port: 7444}
tls: {ca: ca.pem, certificate: n0.pem, key: /etc/n0.key}
driver:
  module: gridaware.sim.driver
  options: {window: /w, node: "3"}
restore_on_stop: true
"""


def _load(tmp_path: Path, text: str):
    path = tmp_path / "agent.yaml"
    path.write_text(text)
    return load_settings(path)


def test_a_good_file_is_read_and_relative_paths_start_at_its_folder(tmp_path):
    settings = _load(tmp_path, GOOD)
    assert settings.node_id == "n0"
    assert (settings.controller.host, settings.controller.port) == ("control.example", 7444)
    assert settings.tls.ca == tmp_path / "ca.pem"
    assert settings.tls.key == Path("/etc/n0.key")
    assert settings.driver.options == {"window": "/w", "node": "3"}
    assert settings.driver.environment == {}
    assert settings.restore_on_stop is True
    assert settings.cluster_id == "default"


def test_every_error_is_told_at_once_with_its_line_and_the_nearest_name(tmp_path):
    with pytest.raises(ConfigError) as refused:
        _load(
            tmp_path,
            "node_idd: n0\n"
            "controller: {host: h, port: 99999}\n"
            "tls:\n"
            "  ca: ca.pem\n"
            "  certificat: n0.pem\n"
            "restore_on_stop: maybe\n",
        )
    lines = refused.value.message.splitlines()
    where = [(int(line.split(":")[1]), line.split(": ", 1)[1]) for line in lines]
    assert (1, "unknown setting 'node_idd'; did you mean 'node_id'?") in where
    assert (1, "'node_id' is missing") in where
    assert (2, "'controller.port' must be a port, 1 to 65535") in where
    assert (5, "unknown setting 'tls.certificat'; did you mean 'certificate'?") in where
    assert (6, "'restore_on_stop' must be true or false") in where
    assert any("'tls.key' is missing" in what for _, what in where)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "settings-invalid"),
        ("- 1\n", "settings-invalid"),
        ("a: [", "settings-unreadable"),
        (GOOD + "node_id: n1\n", "settings-invalid"),
        (GOOD.replace("node_id: n0", "node_id:"), "settings-invalid"),
        (GOOD.replace("port: 7444", "port: 7444.5"), "settings-invalid"),
        (GOOD.replace("driver:", "driver: 1\nx:"), "settings-invalid"),
        ("\x00", "settings-unreadable"),
    ],
)
def test_what_is_no_settings_file_is_refused(tmp_path, text, code):
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, text)
    assert refused.value.code == code


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError) as refused:
        load_settings(tmp_path / "none.yaml")
    assert refused.value.code == "settings-unreadable"


def test_a_relay_has_settings_of_its_own(tmp_path):
    path = tmp_path / "relay.yaml"
    path.write_text(
        "relay_id: r1\n"
        "controller: {host: control.example}\n"
        "tls: {ca: ca.pem, certificate: r1.pem, key: r1.key}\n"
        "listen: {host: 10.0.0.1}\n"
    )
    settings = load_relay_settings(path)
    assert (settings.relay_id, settings.tls.key) == ("r1", tmp_path / "r1.key")
    assert (settings.listen.host, settings.listen.port) == ("10.0.0.1", 7443)
    path.write_text(path.read_text() + "node_id: n0\n")
    with pytest.raises(ConfigError, match="unknown setting 'node_id'"):
        load_relay_settings(path)
