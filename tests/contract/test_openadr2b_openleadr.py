"""The `openadr2b` kind against openleadr's own VTN, which we did not write."""

import json
import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from feed_rigs.openadr2b import decided

from gridaware.clock import SystemClock
from gridaware.control.ports import FeedTelemetry
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import Quantity, Signal, TargetSpec
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.openadr2.signature import fingerprint_of
from gridaware.feeds.runner import RunningFeed
from gridaware.sim.grid.openleadr_vtn import VEN_ID, OpenleadrVtn, ServerFiles
from gridaware.wiring.identity import Identity, issue, make_ca

CLOCK = SystemClock()


class Site:
    def __init__(self, vtn: OpenleadrVtn, **settings: object) -> None:
        given = {"vtn_url": vtn.url, **settings}
        spec = FeedSpec("grid", "openadr2b", "p", settings_json=json.dumps(given))
        self.refused: list[str] = []
        self.signals: list[Signal] = []
        self.running = RunningFeed(
            spec,
            CLOCK.wall(),
            CLOCK,
            lambda *what: self.refused.append(what[1]),
            memory=FeedMemory(),
        )
        self.feed: Any = self.running.feed

    def poll(self) -> list[Signal]:
        before = len(self.signals)
        self.running.poll_once(self.signals.append)
        assert self.running.health.now().failures == 0, self.running.health.now().reason
        return self.signals[before:]

    def decide(self, status: str, signal: Signal) -> None:
        self.feed.tell(decided(signal, status, CLOCK.wall()))


@pytest.fixture
def vtn() -> Iterator[OpenleadrVtn]:
    with OpenleadrVtn(poll_seconds=0) as server:
        yield server


HOUR = timedelta(hours=1)


def soon() -> Any:
    return CLOCK.wall().replace(microsecond=0) + HOUR


def test_an_event_comes_is_accepted_and_is_cancelled(vtn: OpenleadrVtn) -> None:
    site = Site(vtn)
    assert site.poll() == []
    start = soon()
    event_id = vtn.add_event(start, HOUR, 3)
    (signal,) = site.poll()
    assert signal.request is not None
    assert (signal.request.start, signal.request.end) == (start, start + HOUR)
    assert signal.request.target == TargetSpec(Quantity.REDUCTION_FRACTION, 0.5)
    site.decide("opted-in", signal)
    assert vtn.answers == [(event_id, "optIn")]
    assert site.poll() == []
    vtn.cancel_event(event_id)
    (gone,) = site.poll()
    assert (gone.source_id, gone.request, gone.revision) == (signal.source_id, None, 1)
    for _ in range(3):
        assert site.poll() == []
    assert site.refused == []


def test_a_limit_in_kilowatts_and_one_for_another_ven(vtn: OpenleadrVtn) -> None:
    from openleadr.objects import (
        ActivePeriod,
        Event,
        EventDescriptor,
        EventSignal,
        Interval,
        Measurement,
        PowerAttributes,
        Target,
    )

    site = Site(vtn)
    site.poll()
    start = soon()
    kilowatts = Measurement(
        name="powerReal",
        description="RealPower",
        unit="W",
        scale="k",
        power_attributes=PowerAttributes(hertz=60, voltage=480, ac=True),
    )
    for name, ven_id in (("ours", VEN_ID), ("theirs", "ven-2")):
        event = Event(
            event_descriptor=EventDescriptor(
                event_id=name,
                modification_number=0,
                market_context="http://market.example",
                event_status="far",
                created_date_time=CLOCK.wall(),
            ),
            active_period=ActivePeriod(dtstart=start, duration=HOUR),
            event_signals=[
                EventSignal(
                    intervals=[Interval(dtstart=start, duration=HOUR, signal_payload=750.0)],
                    signal_name="LOAD_DISPATCH",
                    signal_type="setpoint",
                    signal_id="s",
                    measurement=kilowatts,
                )
            ],
            targets=[Target(ven_id=ven_id)],
        )
        vtn.call(lambda server, event=event: server.add_raw_event(VEN_ID, event))
    (signal,) = site.poll()
    assert signal.request is not None
    assert signal.source_id == "ours.s.0"
    assert signal.request.target == TargetSpec(Quantity.LIMIT_WATTS, 750_000)
    assert site.refused == ["event-for-others"]


def test_case_8_after_a_restart_of_the_server_we_are_registered_and_what_it_lost_is_held(
    vtn: OpenleadrVtn,
) -> None:
    site = Site(vtn)
    site.poll()
    vtn.add_event(soon(), HOUR, 2)
    (held,) = site.poll()
    site.decide("opted-in", held)
    vtn.restart()
    assert site.poll() == []
    assert [signal.source_id for signal in site.feed.poll()] == [held.source_id]
    assert "openadr2-lists-nothing" in site.refused
    vtn.add_event(soon(), HOUR, 1)
    (new,) = site.poll()
    assert new.source_id != held.source_id


def test_reports_arrive_as_it_asked_for_them() -> None:
    with OpenleadrVtn(poll_seconds=0, sampling=timedelta(seconds=10)) as vtn:
        site = Site(vtn)
        site.poll()
        at, seconds = CLOCK.wall(), CLOCK.monotonic_seconds()
        for second in range(32):
            sample = FeedTelemetry(
                at + timedelta(seconds=second), seconds + second, 640e3, "good", None, True, ()
            )
            site.feed.report(sample)
        power, energy = vtn.reports["RealPower"], vtn.reports["RealEnergy"]
        assert [value for _, value in power] == [640.0, 640.0, 640.0]
        # 640 kW for 10 s are 640 / 360 kWh.
        assert [value for _, value in energy] == pytest.approx([640 / 360] * 3)
        assert power[1][0] - power[0][0] == timedelta(seconds=10)
        assert site.refused == []


# Mutual TLS and signatures ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ca")
    make_ca(folder, CLOCK)
    return folder


@pytest.fixture(scope="module")
def theirs(ca: Path) -> Identity:
    return issue(ca, "vtn", CLOCK, "controller")


@pytest.fixture(scope="module")
def ours(ca: Path) -> Identity:
    return issue(ca, "ven", CLOCK)


def fingerprint(identity: Identity) -> str:
    return fingerprint_of(ssl.PEM_cert_to_DER_cert(identity.certificate.read_text()))


@pytest.fixture
def secured(theirs: Identity, ours: Identity) -> Iterator[OpenleadrVtn]:
    files = ServerFiles(
        tls_certificate=str(theirs.certificate),
        tls_key=str(theirs.key),
        client_authority=str(theirs.ca),
        signing_certificate=str(theirs.certificate),
        signing_key=str(theirs.key),
        verify=True,
    )
    with OpenleadrVtn(poll_seconds=0, files=files, fingerprint=fingerprint(ours)) as server:
        yield server


def secure(theirs: Identity, ours: Identity, **other: object) -> dict[str, object]:
    """Settings: our TLS, our signatures, theirs verified."""
    return {
        "ca_file": str(ours.ca),
        "tls_certificate_file": str(ours.certificate),
        "tls_key_file": str(ours.key),
        "signing_certificate_file": str(ours.certificate),
        "signing_key_file": str(ours.key),
        "vtn_fingerprint": fingerprint(theirs),
        **other,
    }


def test_over_mutual_tls_with_every_message_signed_an_event_is_answered(
    secured: OpenleadrVtn, theirs: Identity, ours: Identity
) -> None:
    site = Site(secured, **secure(theirs, ours))
    site.poll()
    event_id = secured.add_event(soon(), HOUR, 2)
    (signal,) = site.poll()
    site.decide("opted-in", signal)
    assert secured.answers == [(event_id, "optIn")]
    assert "<ei:eventID>" in signal.raw


def failure(vtn: OpenleadrVtn, settings: dict[str, object]) -> str:
    """Why a poll fails."""
    site = Site(vtn, **settings)
    site.running.poll_once(site.signals.append)
    assert site.signals == []
    return site.running.health.now().reason_code


def test_case_11_a_server_that_signs_with_another_key_is_not_heard(
    secured: OpenleadrVtn, theirs: Identity, ours: Identity
) -> None:
    settings = secure(theirs, ours, vtn_fingerprint=fingerprint(ours))
    assert failure(secured, settings) == "openadr2-fingerprint-other"


def test_case_11_a_server_that_does_not_sign_is_not_heard(
    ours: Identity, vtn: OpenleadrVtn
) -> None:
    assert failure(vtn, {"vtn_fingerprint": fingerprint(ours)}) == "openadr2-unsigned"


def test_case_11_a_server_whose_authority_we_do_not_trust_is_not_asked(
    secured: OpenleadrVtn, theirs: Identity, ours: Identity, tmp_path: Path
) -> None:
    make_ca(tmp_path, CLOCK)
    other = issue(tmp_path, "other", CLOCK)
    settings = secure(theirs, ours, ca_file=str(other.ca))
    assert failure(secured, settings) == "peer-certificate"


def test_case_13_messages_signed_with_another_key_than_the_server_knows_are_refused(
    secured: OpenleadrVtn, theirs: Identity, ours: Identity, ca: Path
) -> None:
    """TLS is right, the signature is a stranger's: the two are settings of their own."""
    signer = issue(ca, "signer", CLOCK)
    settings = secure(
        theirs,
        ours,
        signing_certificate_file=str(signer.certificate),
        signing_key_file=str(signer.key),
    )
    # Its refusal of a request for events trips over itself and becomes a 500.
    assert failure(secured, settings) == "openadr2-http"
