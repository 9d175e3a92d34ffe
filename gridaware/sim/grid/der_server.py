"""An IEEE 2030.5 server to try a device against: mutual TLS, the whole tree, and ways to be wrong.

It lists to each client its own EndDevice alone, known by the certificate that the client shows.
Without TLS (for tests on one machine) every device is shown to everybody.
"""

import hashlib
import re
import ssl
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape, unescape

import requests

from gridaware.clock import Clock, SystemClock
from gridaware.sim.grid.der_quirks import Quirk
from gridaware.sim.grid.served import Served

__all__ = ["DerServer", "Quirk", "TlsFiles"]

NAMESPACE = "urn:ieee:std:2030.5:ns"
MEDIA = "application/sep+xml"
BODY_AT_MOST = 1 << 20
SLOW_SECONDS = 3.0
DRIP_SECONDS = 0.2
PAGE = 255


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The server's certificate and key, and the authority of its clients; PEM."""

    certificate: Path
    key: Path
    clients_ca: Path
    ccm8_alone: bool = False
    """Speak TLS 1.2 with the cipher suite that 2030.5-2018 makes mandatory, and nothing else."""

    def context(self) -> ssl.SSLContext:
        """Mutual TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        context.load_verify_locations(self.clients_ca)
        context.verify_mode = ssl.CERT_REQUIRED
        if self.ccm8_alone:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers("ECDHE-ECDSA-AES128-CCM8:@SECLEVEL=0")
        return context


@dataclass(slots=True)
class _Control:
    mrid: str
    created: int
    start: int
    seconds: int
    body: str
    status: int = 0
    status_at: int = 0
    description: str = ""
    randomize_start: int | None = None
    randomize_seconds: int | None = None
    required: str = "03"


@dataclass(slots=True)
class _Program:
    mrid: str
    primacy: int
    controls: dict[str, _Control] = field(default_factory=dict)
    default: str | None = None


class DerServer(Served):
    """One server on a free port of this machine. Use it as a context manager, or close it.

    Args:
        clock: of its time, and of what it creates.
        tls: speaks mutual TLS where given.
        quirks: may be changed while it runs.
        poll_rate: seconds between polls that it asks for, on its lists of programs.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        tls: TlsFiles | None = None,
        quirks: Iterable[Quirk] = (),
        poll_rate: int | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.quirks: set[Quirk] = set(quirks)
        self.poll_rate = poll_rate
        self.asked: list[tuple[str, str]] = []
        """(method, path with query) of every request, in order."""
        self.responses: list[dict[str, str]] = []
        """What clients answered: mRID, status, LFDI, and the path it came to."""
        self.mirrored: list[tuple[str, str]] = []
        """(path, body) of what clients reported."""
        self.subscriptions: list[tuple[str, str]] = []
        """(resource, URI) of those who want to be notified."""
        self.devices: dict[str, tuple[str, int]] = {}
        """LFDI → number, and when it was registered."""
        self.programs: dict[str, _Program] = {}
        self.lock = threading.RLock()
        self.tls = tls is not None
        super().__init__(
            type("Bound", (_Handler,), {"grid": self}), None if tls is None else tls.context()
        )

    @property
    def url(self) -> str:
        """Of its DeviceCapability."""
        return f"{self.root_url}/dcap"

    @property
    def now(self) -> int:
        """Its own clock."""
        if Quirk.CLOCK_RESET in self.quirks:
            return 3600
        hour = 3600 if Quirk.CLOCK_OFF in self.quirks else 0
        return int(self.clock.wall().timestamp()) + hour

    # What its owner does ----------------------------------------------------------------------

    def add_device(self, lfdi: str) -> None:
        """Register a device."""
        with self.lock:
            self.devices[lfdi.upper()] = (str(len(self.devices) + 1), self.now)

    def forget_devices(self) -> None:
        """Come back from a restart without knowing any device."""
        with self.lock:
            self.devices.clear()

    def add_program(self, mrid: str = "F1", primacy: int = 1) -> str:
        """Create a program, for every device; returns its mRID."""
        with self.lock:
            self.programs[mrid] = _Program(mrid, primacy)
        return mrid

    def add_control(
        self,
        program: str,
        mrid: str,
        *,
        start: int,
        seconds: int = 3600,
        watts: float | None = None,
        body: str | None = None,
        created: int | None = None,
        **more: Any,
    ) -> None:
        """Publish a control: an import limit, or a body of its own; at a time of its own clock."""
        if body is None:
            assert watts is not None
            body = self.power("opModImpLimW", watts)
        at = self.now if created is None else created
        control = _Control(mrid, at, start, seconds, body, status_at=at, **more)
        with self.lock:
            self.programs[program].controls[mrid] = control

    def set_status(self, mrid: str, status: int) -> None:
        """Say what became of a control: 2 cancelled, 3 within its random time, 4 superseded."""
        with self.lock:
            control = self._find(mrid)
            control.status, control.status_at = status, self.now

    def change_control(self, mrid: str, **fields: Any) -> None:
        """Change a control in place."""
        with self.lock:
            control = self._find(mrid)
            for name, value in fields.items():
                setattr(control, name, value)

    def remove_control(self, mrid: str) -> None:
        """List a control no more, which the standard does not allow before it is over."""
        with self.lock:
            for program in self.programs.values():
                program.controls.pop(mrid, None)

    def set_default(self, program: str, watts: float | None) -> None:
        """Set what holds while no control does; None = there is no default control."""
        body = None if watts is None else self.power("opModImpLimW", watts)
        with self.lock:
            self.programs[program].default = body

    def notify(self, resource: str, status: int = 0) -> list[int]:
        """Tell whoever subscribed that a resource has changed; returns what they answered."""
        body = (
            f'<Notification xmlns="{NAMESPACE}"><subscribedResource>{resource}'
            f"</subscribedResource><status>{status}</status>"
            "<subscriptionURI>/edev/1/sub/1</subscriptionURI></Notification>"
        )
        headers = {"Content-Type": MEDIA}
        return [
            requests.post(uri, data=body, headers=headers, timeout=10).status_code
            for subscribed, uri in list(self.subscriptions)
            if subscribed == resource
        ]

    def power(self, mode: str, watts: float) -> str:
        """A mode of CSIP-AUS: a value of 16 bits and its multiplier."""
        multiplier = 0
        while abs(watts) > 32767:
            watts, multiplier = watts / 10, multiplier + 1
        return (
            f"<csipaus:{mode}><multiplier>{multiplier}</multiplier>"
            f"<value>{round(watts)}</value></csipaus:{mode}>"
        )

    def _find(self, mrid: str) -> _Control:
        return next(p.controls[mrid] for p in self.programs.values() if mrid in p.controls)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    grid: ClassVar[DerServer]
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def setup(self) -> None:
        """Shake hands on the connection's own thread: a slow client holds up nobody else."""
        self.request.settimeout(30)
        if self.grid.tls:
            self.request.do_handshake()
        super().setup()

    def do_GET(self) -> None:
        """Serve one."""
        self._serve()

    def do_POST(self) -> None:
        """Serve one."""
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: `DerServer.asked` tells."""

    def _serve(self) -> None:
        self.grid.asked.append((self.command, self.path))
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), BODY_AT_MOST))
        if Quirk.SLOW in self.grid.quirks:
            time.sleep(SLOW_SECONDS)
        if Quirk.HTML in self.grid.quirks:
            self._send(200, "<html><body>502 Bad Gateway</body></html>", {}, "text/html")
            return
        with self.grid.lock:
            status, text, headers = _Site(self.grid, self._lfdi()).answer(
                self.command, self.path, body.decode("utf-8", "replace")
            )
        self._send(status, text, headers, MEDIA)

    def _lfdi(self) -> str | None:
        """Who asks, by the certificate that was shown; None = it cannot be told."""
        if not self.grid.tls:
            return None
        der = self.request.getpeercert(binary_form=True)
        return hashlib.sha256(der).hexdigest()[:40].upper()

    def _send(self, status: int, text: str, headers: dict[str, str], media: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if Quirk.DRIPPING in self.grid.quirks:
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(DRIP_SECONDS)
            return
        self.wfile.write(body)


Answered = tuple[int, str, dict[str, str]]


class _Site:
    """The tree as one client sees it."""

    def __init__(self, grid: DerServer, lfdi: str | None) -> None:
        self._grid = grid
        self._lfdi = lfdi

    def answer(self, method: str, path: str, body: str) -> Answered:
        url = urlsplit(path)
        parts = [part for part in url.path.split("/") if part]
        query = parse_qs(url.query)
        if method == "POST":
            return self._post(parts, body)
        if parts == ["dcap"]:
            return self._page("DeviceCapability", "/dcap", self._capability())
        if parts == ["tm"]:
            content = (
                f"<currentTime>{self._grid.now}</currentTime><dstEndTime>0</dstEndTime>"
                "<dstOffset>0</dstOffset><dstStartTime>0</dstStartTime><quality>4</quality>"
                "<tzOffset>0</tzOffset>"
            )
            return self._page("Time", "/tm", content)
        if parts[:1] == ["edev"]:
            return self._device(parts[1:], query)
        return self._program(parts, query)

    # ------------------------------------------------------------------------------------------

    def _capability(self) -> str:
        time_link = "" if Quirk.NO_TIME in self._grid.quirks else '<TimeLink href="/tm"/>'
        devices = len(self._devices())
        return (
            f'{time_link}<EndDeviceListLink href="/edev" all="{devices}"/>'
            '<MirrorUsagePointListLink href="/mup" all="0"/>'
        )

    def _devices(self) -> dict[str, str]:
        """Number → LFDI of the devices that the client may see."""
        shown = self._grid.devices.items()
        return {number: lfdi for lfdi, (number, _) in shown if self._lfdi in {None, lfdi}}

    def _device(self, parts: list[str], query: dict[str, list[str]]) -> Answered:
        devices = self._devices()
        if not parts:
            items = [self._end_device(number, lfdi) for number, lfdi in devices.items()]
            return self._list("EndDeviceList", "/edev", items, query)
        if parts[0] not in devices:
            return 404, "", {}
        if len(parts) == 1:
            text = self._end_device(parts[0], devices[parts[0]])
            return self._document(text.replace("<EndDevice ", f"<EndDevice {self._spaces()} ", 1))
        if parts[1:] == ["fsa"]:
            here = f"/edev/{parts[0]}/fsa"
            item = (
                f'<FunctionSetAssignments href="{here}/1"><mRID>FA</mRID>'
                f'<DERProgramListLink href="/derp" all="{len(self._grid.programs)}"/>'
                "</FunctionSetAssignments>"
            )
            return self._list("FunctionSetAssignmentsList", here, [item], query)
        if parts[1:] == ["sub"]:
            items = [
                f'<Subscription href="/edev/{parts[0]}/sub/{n}"><subscribedResource>{resource}'
                f"</subscribedResource><encoding>0</encoding><level>+S1</level><limit>1</limit>"
                f"<notificationURI>{escape(uri)}</notificationURI></Subscription>"
                for n, (resource, uri) in enumerate(self._grid.subscriptions)
            ]
            return self._list("SubscriptionList", f"/edev/{parts[0]}/sub", items, query)
        return 404, "", {}

    def _end_device(self, number: str, lfdi: str) -> str:
        here, subscriptions = f"/edev/{number}", ""
        if Quirk.NO_SUBSCRIPTIONS not in self._grid.quirks:
            subscriptions = f'<SubscriptionListLink href="{here}/sub" all="0"/>'
        return (
            f'<EndDevice href="{here}"><lFDI>{lfdi.lower()}</lFDI><sFDI>0</sFDI>'
            f"<changedTime>{self._grid.devices[lfdi][1]}</changedTime><enabled>true</enabled>"
            f'<FunctionSetAssignmentsListLink href="{here}/fsa" all="1"/>'
            f"{subscriptions}</EndDevice>"
        )

    def _program(self, parts: list[str], query: dict[str, list[str]]) -> Answered:
        grid = self._grid
        if parts == ["derp"]:
            items = [self._der_program(each) for each in grid.programs.values()]
            rate = "" if grid.poll_rate is None else f' pollRate="{grid.poll_rate}"'
            return self._list("DERProgramList", "/derp", items, query, rate)
        if len(parts) != 3 or parts[0] != "derp" or parts[1] not in grid.programs:
            return 404, "", {}
        program = grid.programs[parts[1]]
        if parts[2] == "dderc" and program.default is not None:
            base = self._base(program.default)
            return self._page("DefaultDERControl", "", f"<mRID>{program.mrid}DD</mRID>{base}")
        if parts[2] != "derc":
            return 404, "", {}
        if Quirk.ERRORS in grid.quirks:
            return 500, "", {}
        items = [self._control(program, each) for each in program.controls.values()]
        return self._list("DERControlList", f"/derp/{program.mrid}/derc", items, query)

    def _der_program(self, program: _Program) -> str:
        here = f"/derp/{program.mrid}"
        host = "https://elsewhere.invalid" if Quirk.LINKS_ELSEWHERE in self._grid.quirks else ""
        return (
            f'<DERProgram href="{here}"><mRID>{program.mrid}</mRID>'
            f'<DefaultDERControlLink href="{here}/dderc"/>'
            f'<DERControlListLink href="{host}{here}/derc" all="{len(program.controls)}"/>'
            f"<primacy>{program.primacy}</primacy></DERProgram>"
        )

    def _control(self, program: _Program, control: _Control) -> str:
        spread = ""
        for name, value in (
            ("randomizeDuration", control.randomize_seconds),
            ("randomizeStart", control.randomize_start),
        ):
            spread += "" if value is None else f"<{name}>{value}</{name}>"
        return (
            f'<DERControl href="/derp/{program.mrid}/derc/{control.mrid}" replyTo="/rsp"'
            f' responseRequired="{control.required}"><mRID>{control.mrid}</mRID>'
            f"<description>{escape(control.description)}</description>"
            f"<creationTime>{control.created}</creationTime><EventStatus>"
            f"<currentStatus>{control.status}</currentStatus>"
            f"<dateTime>{control.status_at}</dateTime>"
            "<potentiallySuperseded>false</potentiallySuperseded></EventStatus>"
            f"<interval><duration>{control.seconds}</duration><start>{control.start}</start>"
            f"</interval>{spread}{self._base(control.body)}</DERControl>"
        )

    def _base(self, body: str) -> str:
        if Quirk.NO_MULTIPLIER in self._grid.quirks:
            body = re.sub("<multiplier>.*?</multiplier>", "", body)
        return f"<DERControlBase>{body}</DERControlBase>"

    def _post(self, parts: list[str], body: str) -> Answered:
        grid = self._grid
        if parts == ["rsp"]:
            if Quirk.RESPONSES_FAIL in grid.quirks:
                return 500, "", {}
            if Quirk.RESPONSES_REFUSED in grid.quirks:
                return 400, "", {}
            names = ("subject", "status", "endDeviceLFDI", "createdDateTime")
            grid.responses.append({name: _text(body, name) for name in names})
            return 201, "", {"Location": f"/rsp/{len(grid.responses)}"}
        if parts[:1] == ["edev"] and parts[2:] == ["sub"]:
            wanted = (_text(body, "subscribedResource"), unescape(_text(body, "notificationURI")))
            grid.subscriptions.append(wanted)
            return 201, "", {"Location": f"{'/'.join(['', *parts])}/{len(grid.subscriptions)}"}
        if parts[:1] == ["mup"]:
            grid.mirrored.append(("/" + "/".join(parts), body))
            where = "/mup/1" if len(parts) == 1 else f"/mup/1/mr/{len(grid.mirrored)}"
            return 201, "", {"Location": where}
        return 404, "", {}

    def _list(
        self,
        name: str,
        href: str,
        items: list[str],
        query: dict[str, list[str]],
        more: str = "",
    ) -> Answered:
        quirks = self._grid.quirks
        start, size = int(query.get("s", ["0"])[0]), int(query.get("l", ["1"])[0])
        if Quirk.REPEATED_PAGE in quirks:
            start = 0
        if {Quirk.SMALL_PAGES, Quirk.REPEATED_PAGE} & quirks:
            size = min(size, 2)
        there = items[:-1] if Quirk.TRUNCATED in quirks and len(items) > 1 else items
        page = there[start : start + min(size, PAGE)]
        counts = f' all="{len(items)}" results="{len(page)}"{more}'
        return self._page(name, href, "".join(page), counts)

    def _page(self, name: str, href: str, content: str, more: str = "") -> Answered:
        where = f' href="{href}"' if href else ""
        return self._document(f"<{name} {self._spaces()}{where}{more}>{content}</{name}>")

    def _spaces(self) -> str:
        quirks = self._grid.quirks
        sep = "http://zigbee.org/sep" if Quirk.OLD_VOCABULARY in quirks else NAMESPACE
        version = "/v1.3"
        if Quirk.UNVERSIONED in quirks:
            version = ""
        if Quirk.OTHER_VOCABULARY in quirks:
            version = "/v9.9"
        return f'xmlns="{sep}" xmlns:csipaus="https://csipaus.org/ns{version}"'

    def _document(self, text: str) -> Answered:
        return 200, f'<?xml version="1.0" encoding="UTF-8"?>{text}', {}


def _text(body: str, name: str) -> str:
    found = re.search(f"<{name}>(.*?)</{name}>", body)
    return found.group(1) if found else ""
