"""What stands in the way: each part of an installation looked at, nothing changed.

Every check answers ``ok``, ``warn`` or ``fail`` with a fact, and what to do where something is not
well. Checks never write: no limit is set, no file is touched, no job is submitted.
"""

import ctypes
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from math import inf
from pathlib import Path
from types import MappingProxyType

from gridaware.clock import Clock
from gridaware.domain.catalogue import in_force
from gridaware.domain.errors import GridawareError, NotFound
from gridaware.domain.fixes import fix_for
from gridaware.wiring.ask_agent import ADMIN_SOCKET, ask_agent
from gridaware.wiring.config import Settings

__all__ = ["PARTS", "Check", "Verdict", "diagnose"]

DRIVER_SECONDS = 20.0
"""A driver that does not answer in this long hangs."""
LEAST_FREE_BYTES = 1 << 30
CERTIFICATE_WARNING = timedelta(days=30)
RENEW = "Remove it with its key, and run `gridaware init DIR` again."


class Verdict(StrEnum):
    """How a part is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One fact about one part."""

    verdict: Verdict
    name: str
    """``part.detail``."""
    fact: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """What the checks are asked about."""

    settings: Settings
    clock: Clock
    driver: str = "gridaware.devices.nvml"
    driver_options: Mapping[str, str] = field(default_factory=dict)
    agent_socket: Path = ADMIN_SOCKET


def diagnose(question: Question, parts: tuple[str, ...] = ()) -> Iterator[Check]:
    """Look at each part, or at those named; one that raises is a failed check, never an end."""
    for name, look in PARTS.items():
        if parts and name not in parts:
            continue
        try:
            yield from look(question)
        except GridawareError as error:
            yield _failed(name, error)


def _failed(name: str, error: GridawareError) -> Check:
    fact = error.message.replace("\n", "; ")
    return Check(Verdict.FAIL, f"{name}.{error.code}", fact, fix_for(error.code) or "")


def _driver(question: Question) -> Iterator[Check]:
    """Asks in a child: a driver may hang, or take the process that loaded it down."""
    request = json.dumps([question.driver, dict(question.driver_options)])
    command = [sys.executable, "-m", "gridaware.wiring.doctor_driver", request]
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            command, capture_output=True, text=True, timeout=DRIVER_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        yield Check(
            Verdict.FAIL,
            "driver.hung",
            f"{question.driver} did not answer in {DRIVER_SECONDS:.0f} s",
            "Look for driver errors in the kernel's log (`dmesg`), and drain the node.",
        )
        return
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        yield Check(Verdict.FAIL, "driver.died", f"{question.driver}: {last[0]}")
        return
    for verdict, name, fact, fix in answer:
        yield Check(Verdict(verdict), f"driver.{name}", fact, fix)


def _agent(question: Question) -> Iterator[Check]:
    try:
        status = ask_agent(question.agent_socket, "status")
    except GridawareError as error:
        # A machine that only runs the controller has none.
        yield Check(Verdict.WARN, "agent.socket", error.message, fix_for(error.code) or "")
        return
    linked = "has" if status["connected"] else "has no"
    fact = (
        f"{status['node_id']}: {status['phase']}, {len(status['gpus'])} GPUs, {linked} controller"
    )
    yield Check(Verdict.OK if status["connected"] else Verdict.WARN, "agent.status", fact)


def _ray(question: Question) -> Iterator[Check]:
    import requests

    address = question.settings.ray.address
    token = question.settings.ray_token()
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        answer = requests.get(f"{address}/api/version", headers=headers, timeout=5)
    except requests.RequestException as error:
        yield Check(
            Verdict.FAIL,
            "ray.address",
            f"{address} does not answer: {type(error).__name__}",
            "Start it with `ray start --head`, or set ray.address to its dashboard.",
        )
        return
    if answer.status_code in {401, 403}:
        yield Check(
            Verdict.FAIL,
            "ray.token",
            f"{address} refuses the token",
            "Name Ray's token in ray.token, as env:NAME or file:/path.",
        )
        return
    try:
        version = str(answer.json()["ray_version"])
    except (ValueError, KeyError, TypeError):
        yield Check(Verdict.FAIL, "ray.address", f"{address} is not a Ray dashboard")
        return
    yield Check(Verdict.OK, "ray.address", f"Ray {version} answers at {address}")


def _store(question: Question) -> Iterator[Check]:
    settings = question.settings
    folder = settings.state_dir
    if not folder.is_dir():
        yield Check(
            Verdict.WARN, "store.folder", f"{folder} is not there yet; `gridaware serve` makes it"
        )
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Check(
            Verdict.FAIL,
            "store.folder",
            f"{folder} cannot be written",
            "Give the folder to the user who runs `gridaware serve`.",
        )
        return
    free = shutil.disk_usage(folder).free
    space = f"{folder} has {free / 1e9:.1f} GB free"
    if free < LEAST_FREE_BYTES:
        yield Check(Verdict.WARN, "store.space", space, "Make room: the ledger only grows.")
    else:
        yield Check(Verdict.OK, "store.space", space)
    from gridaware.store.reader import StoreReader

    StoreReader(settings.store_url).close()
    yield Check(Verdict.OK, "store.schema", f"{settings.store_url} can be read")


def _nodes(question: Question) -> Iterator[Check]:
    """Whether every node that should report does, as the controller wrote it down."""
    from gridaware.store.reader import StoreReader

    expected = question.settings.agents.expected
    if not expected:
        yield Check(Verdict.OK, "nodes.none", "the settings expect no node by name")
        return
    reader = StoreReader(question.settings.store_url)
    try:
        for node in expected:
            try:
                state = str(json.loads(reader.get("node", node))["state"])
            except NotFound:
                state = "never seen"
            verdict = Verdict.FAIL if state in {"never seen", "lost"} else Verdict.OK
            fix = "" if verdict is Verdict.OK else "Start its agent, and look into its log."
            yield Check(verdict, f"nodes.{node}", f"{node} is {state}", fix)
    finally:
        reader.close()


def _clock(question: Question) -> Iterator[Check]:
    """Whether the kernel's clock is disciplined, as the kernel itself says (adjtimex)."""
    del question
    unsynchronised = 5  # TIME_ERROR
    libc = ctypes.CDLL(None, use_errno=True)
    state = libc.adjtimex(ctypes.create_string_buffer(512))
    if state == unsynchronised:
        yield Check(
            Verdict.WARN,
            "clock.synchronised",
            "the kernel says that nothing disciplines the clock",
            "Run chrony or systemd-timesyncd: events are wall time, and signatures expire.",
        )
    elif state < 0:
        yield Check(Verdict.WARN, "clock.synchronised", "the kernel does not say")
    else:
        yield Check(Verdict.OK, "clock.synchronised", "the clock is disciplined")


def _meters(question: Question) -> Iterator[Check]:
    """Reads each meter of the site once, as the controller does, and says what it shows."""
    from gridaware.wiring.meter_reader import open_section
    from gridaware.wiring.sections import DEVICE_SUM

    site = question.settings.site
    if not any(section.module != DEVICE_SUM for section in site.meters):
        quality = site.overhead.quality
        fact = f"power is the sum of the GPUs' sensors; the overhead between is {quality}"
        yield Check(Verdict.OK, "meters.none", fact)
    for section in site.meters:
        if section.module == DEVICE_SUM:
            continue
        name = f"meters.{section.name}"
        try:
            meter = open_section(section)
            try:
                reading, energy = meter.read()
            finally:
                meter.close()
        except GridawareError as error:
            yield _failed(name, error)
            continue
        share = section.accuracy_share or reading.accuracy_share
        facts = [f"{reading.watts / 1000:.3f} kW", f"{reading.age_seconds:.1f} s old"]
        facts.append("nobody says how sure" if share is None else f"within {100 * share:g} %")
        facts.append("no counter" if energy is None else f"{energy.joules / 3.6e6:.1f} kWh counted")
        fact, fix = ", ".join(facts), ""
        if reading.age_seconds > section.stale_seconds:
            fix = "Raise stale_seconds above twice the interval at which it is measured."
        elif not 0 <= reading.watts < inf:
            fix = "Set sign: -1 where its transformers are mounted the other way round."
        yield Check(Verdict.WARN if fix else Verdict.OK, name, fact, fix)


def _programmes(question: Question) -> Iterator[Check]:
    at, settings = question.clock.wall(), question.settings
    programmes = settings.site_programmes()
    if not programmes:
        yield Check(Verdict.OK, "programmes.none", "none is declared; feeds name plain ones")
    for programme in programmes:
        name = f"programmes.{programme.programme_id}"
        entry, rules = programme.entry, programme.version_at(at)
        follows = f"follows {rules.catalogue}, rules of {rules.version}"
        yield Check(Verdict.OK, name, follows if entry is not None else "states its own values")
        if entry is not None and in_force(entry, at) is None:
            fact = f"{rules.catalogue} has no rules for today; those of {rules.version} go on"
            fix = "Bring its file in configs/programmes up to date, or state its values."
            yield Check(Verdict.WARN, name, fact, fix)
        if rules.tariff_baseline:
            fact = f"settles by {rules.tariff_baseline}, which is not computed here"
            fix = f"Compare its own statements with the reports, which rest on {rules.baseline}."
            yield Check(Verdict.WARN, name, fact, fix)
        if rules.ladder and settings.site.ramp.down_watts_per_minute and not rules.ramp_exempt:
            fact = "nothing is armed for it: site.ramp.down_watts_per_minute binds its events"
            fix = "Set its ramp_exempt where the connection agreement says so."
            yield Check(Verdict.WARN, name, fact, fix)


def _feeds(question: Question) -> Iterator[Check]:
    from gridaware.feeds import check_settings

    specs = question.settings.feed_specs()
    if not specs:
        yield Check(Verdict.OK, "feeds.none", "the settings name no feed; none has to be tried")
    for spec in specs:
        name = f"feeds.{spec.feed_id}"
        try:
            check_settings(spec.kind, spec.settings_json)
        except GridawareError as error:
            yield _failed(name, error)
            continue
        missing = list(_unreadable_secrets(json.loads(spec.settings_json)))
        for lack in missing:
            yield _failed(name, lack)
        if not missing:
            yield Check(Verdict.OK, name, f"{spec.kind}: settings hold, and secrets are there")


def _unreadable_secrets(value: object) -> Iterator[GridawareError]:
    """Every reference to a secret that cannot be followed, anywhere in a feed's settings."""
    from gridaware.feeds.secrets import read_secret

    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _unreadable_secrets(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _unreadable_secrets(inner)
    elif isinstance(value, str) and value.startswith(("env:", "file:")):
        try:
            read_secret(value)
        except GridawareError as error:
            yield error


def _tls(question: Question) -> Iterator[Check]:
    from cryptography import x509

    folder = question.settings.tls_dir
    certificates = sorted(folder.glob("*.pem"))
    if not certificates:
        yield Check(
            Verdict.FAIL,
            "tls.files",
            f"{folder} holds no certificate",
            "Make the CA and the controller's certificate: `gridaware init DIR`.",
        )
        return
    now = question.clock.wall()
    for path in certificates:
        end = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
        fact = f"{path.name} is valid until {end:%Y-%m-%d}"
        if end <= now:
            yield Check(Verdict.FAIL, "tls.expired", fact, RENEW)
        elif end - now < CERTIFICATE_WARNING:
            yield Check(Verdict.WARN, "tls.expires", fact, RENEW)
        else:
            yield Check(Verdict.OK, f"tls.{path.stem}", fact)
    for path in sorted(folder.glob("*.key")):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            yield Check(Verdict.FAIL, "tls.key", f"{path} has mode {mode:04o}", f"chmod 600 {path}")


def _keys(question: Question) -> Iterator[Check]:
    from gridaware.service.keys import KeyRing

    path = question.settings.api_key_file
    KeyRing.from_file(path)
    yield Check(Verdict.OK, "keys.file", f"{path} holds the hashes of API keys")


PARTS: Mapping[str, Callable[[Question], Iterator[Check]]] = MappingProxyType(
    {
        "driver": _driver,
        "agent": _agent,
        "ray": _ray,
        "store": _store,
        "nodes": _nodes,
        "clock": _clock,
        "meters": _meters,
        "programmes": _programmes,
        "feeds": _feeds,
        "tls": _tls,
        "keys": _keys,
    }
)
"""Every part, in the order in which it is looked at."""
