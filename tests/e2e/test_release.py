"""A person gives limits back in an event: on one node, on the fleet, with control up and down."""

import json
import os
import subprocess
import sys

import pytest

SECONDS = 30.0


def gridaware(site, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The command line, as a script runs it: nobody is at the keyboard."""
    api = {"GRIDAWARE_URL": site.virtual.web_url, "GRIDAWARE_API_KEY": site.virtual.api_key}
    return subprocess.run(
        [sys.executable, "-m", "gridaware", *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **api, "SUDO_USER": "alice", **environment},
        timeout=60,
        check=False,
    )


def node_socket(site, n: int) -> str:
    return str(site.virtual.home / "run" / site.virtual.nodes[n] / "admin.sock")


def test_on_a_node_in_an_event_it_is_confirmed_and_the_programme_hears_who_and_why(bare_site):
    site, words = bare_site, ["release", "--socket", node_socket(bare_site, 0), "--json"]
    with site.watching() as truth:
        promise = site.ask(seconds=SECONDS)
        site.reaches(promise, "holding")
        refused = gridaware(site, *words)
        assert refused.returncode == 4
        assert "error[lease-alive]" in refused.stderr
        assert not site.is_restored()
        promise.ends_seconds = truth.samples[-1].seconds
        done = gridaware(site, *words, "--confirm", "node-1", "--reason", "smoke in row 3")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["released"]
        site.comes_back(promise)
    site.rose_within_ramp(promise, truth)
    event = site.client.event(promise.event_id)
    assert event["opted_out_by"] == "alice released node-1: smoke in row 3"
    site.reaches(promise, "settled")
    report = site.until(lambda: site.client.event_report(promise.event_id), "its report", 10)
    assert report["opted_out_by"] == event["opted_out_by"]
    site.ledger().follow()


def test_the_fleet_is_released_through_control_and_rises_by_the_ramp(bare_site):
    site = bare_site
    with site.watching() as truth:
        promise = site.ask(seconds=SECONDS)
        site.reaches(promise, "holding")
        refused = gridaware(site, "release", "--fleet", "--json")
        assert (refused.returncode, site.is_restored()) == (4, False)
        promise.ends_seconds = truth.samples[-1].seconds
        words = ("release", "--fleet", "--confirm", "fleet", "--reason", "wrong tariff", "--json")
        done = gridaware(site, *words)
        assert json.loads(done.stdout)["opted_out"] == [promise.event_id], done.stderr
        site.comes_back(promise)
    site.rose_within_ramp(promise, truth)
    assert site.client.event(promise.event_id)["opted_out_by"].endswith("wrong tariff")


@pytest.mark.slow
def test_with_control_down_the_fleet_is_released_by_a_stand_in_and_control_hears_later(bare_site):
    site = bare_site
    config = ("--config", str(site.virtual.settings_file))
    words = ("release", "--fleet", *config, "--confirm", "fleet", "--reason", "fire", "--json")
    promise = site.ask(seconds=60.0)
    site.reaches(promise, "holding")
    site.kill_serve_for_good()
    with site.watching() as truth:
        promise.ends_seconds = site.now()
        done = gridaware(site, *words, "--wait", "30")
        assert done.returncode == 0, done.stderr
        states = {node["node_id"]: node["state"] for node in json.loads(done.stdout)}
        assert states == {"node-1": "released", "node-2": "released"}
        assert site.is_restored()
    site.rose_within_ramp(promise, truth)
    site.controllers += 1  # the stand-in's epoch
    site.restart_serve()
    site.all_connected()
    site.until(
        lambda: site.client.event(promise.event_id)["opted_out_by"], "the event says who", 10
    )
    assert "fire" in site.client.event(promise.event_id)["opted_out_by"]
    site.comes_back(promise)


@pytest.mark.slow
def test_with_only_the_web_process_down_the_command_still_reaches_control(bare_site):
    site = bare_site
    promise = site.ask(seconds=SECONDS)
    site.reaches(promise, "holding")
    config = ("--config", str(site.virtual.settings_file))
    words = (
        "release",
        "--fleet",
        *config,
        "--confirm",
        "fleet",
        "--reason",
        "web is gone",
        "--json",
    )
    done = gridaware(site, *words, GRIDAWARE_URL="http://127.0.0.1:9")
    assert json.loads(done.stdout)["opted_out"] == [promise.event_id], done.stderr
    site.comes_back(promise)
