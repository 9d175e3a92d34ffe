"""The web process as `serve` starts it: it answers before control is there, and ends when told."""

import http.client
import os
import signal
import socket
import subprocess
import sys

import pytest

from gridaware.service.keys import api_key_line
from gridaware.wiring.config import load_settings
from gridaware.wiring.web import main, web_settings


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def site(tmp_path, free_port):
    (tmp_path / "api-keys").write_text(f"{api_key_line('admin', 'gw_k')}\n")
    path = tmp_path / "site.yaml"
    path.write_text(f"web:\n  port: {free_port}\n")
    return path


def test_it_takes_its_settings_from_the_sites_file(site, tmp_path, free_port):
    settings = web_settings(load_settings(site))
    assert settings.control_socket == tmp_path / "state" / "control.sock"
    assert settings.store == f"sqlite:///{tmp_path / 'state' / 'gridaware.db'}"
    assert settings.signals_url == "http://127.0.0.1:8781"
    assert (settings.api_key_file, settings.port) == (tmp_path / "api-keys", free_port)


def test_a_listener_on_every_address_is_reached_on_this_machine(site):
    site.write_text('control:\n  signals_host: "0.0.0.0"\n  signals_port: 99\n')
    assert web_settings(load_settings(site)).signals_url == "http://127.0.0.1:99"


def test_a_missing_key_file_ends_it_with_the_code(site, tmp_path, capsys):
    (tmp_path / "api-keys").unlink()
    assert main(["--config", str(site)]) == 2
    fact, fix = capsys.readouterr().err.splitlines()
    assert fact.startswith("error[api-key-file-unreadable]: ")
    assert fix.startswith("  fix      Run `gridaware init`")


def test_it_answers_before_control_is_there_and_ends_at_sigterm(site, free_port):
    process = subprocess.Popen(
        [sys.executable, "-m", "gridaware.wiring.web", "--config", str(site)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        log = []
        for line in process.stderr:
            log.append(line)
            if "running on" in line:
                break
        connection = http.client.HTTPConnection("127.0.0.1", free_port, timeout=10)
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b'{"ok":true}', "".join(log)
        connection.request("GET", "/api/v1/jobs", headers={"Authorization": "Bearer gw_k"})
        answer = connection.getresponse()
        assert (answer.status, b"store-not-ready" in answer.read()) == (503, True)
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in {0, -signal.SIGTERM}
    finally:
        process.kill()
        process.communicate()
