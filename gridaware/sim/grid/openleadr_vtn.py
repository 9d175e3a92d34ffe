"""openleadr's own VTN of OpenADR 2.0b, on a thread: a server that we did not write.

Needs ``gridaware[openadr2]``. The library keeps parts of a server's configuration on a class, so
one process has one at a time.
"""

import asyncio
import logging
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

__all__ = ["OpenleadrVtn", "ServerFiles"]

VEN_ID, REGISTRATION_ID, VTN_ID = "ven-1", "registration-1", "OPENLEADR_VTN"
HOST, PREFIX = "127.0.0.1", "/OpenADR2/Simple/2.0b"


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """Paths of PEM files: of TLS, with the authority of clients, and of signatures."""

    tls_certificate: str | None = None
    tls_key: str | None = None
    client_authority: str | None = None
    signing_certificate: str | None = None
    signing_key: str | None = None
    verify: bool = False
    """Take only messages that clients sign with the certificate they show to TLS."""


class OpenleadrVtn:
    """One server on a free port of this machine. Use it as a context manager, or close it.

    Args:
        poll_seconds: between two polls, as it tells clients.
        files: of TLS and signatures.
        fingerprint: of the client's certificate, where it is looked at.
        sampling: what it asks to be reported, and how often; None = nothing.

    Attributes:
        answers: (event id, opt type) in order.
        reports: rID → (time, value) of what was reported, in order.
    """

    def __init__(
        self,
        *,
        poll_seconds: float = 1.0,
        files: ServerFiles | None = None,
        fingerprint: str | None = None,
        sampling: timedelta | None = None,
    ) -> None:
        self._files = files or ServerFiles()
        self._poll_seconds = poll_seconds
        self._fingerprint = fingerprint
        self._sampling = sampling
        self._registered = False
        self.answers: list[tuple[str, str]] = []
        self.answered = threading.Event()
        self.reports: dict[str, list[tuple[datetime, float]]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="openleadr-vtn", daemon=True)
        self._thread.start()
        self._port = 0
        self._server: Any = None
        self._runner: Any = None
        self._call(self._serve())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """What the names of services are appended to."""
        scheme = "http" if self._files.tls_certificate is None else "https"
        return f"{scheme}://{HOST}:{self._port}{PREFIX}"

    def add_event(
        self,
        start: datetime,
        duration: timedelta,
        value: float,
        *,
        name: str = "SIMPLE",
        kind: str = "level",
        **rest: Any,
    ) -> str:
        """List an event of one interval; returns its id."""
        interval = {"dtstart": start, "duration": duration, "signal_payload": value}

        async def add() -> str:
            return str(
                self._server.add_event(
                    ven_id=VEN_ID,
                    signal_name=name,
                    signal_type=kind,
                    intervals=[interval],
                    callback=self._answered,
                    **rest,
                )
            )

        return str(self._call(add()))

    def cancel_event(self, event_id: str) -> None:
        """Cancel one."""
        self.call(lambda server: server.cancel_event(VEN_ID, event_id))

    def call(self, act: Callable[[Any], object]) -> None:
        """Do something with the library's server, on its own thread."""

        async def done() -> None:
            act(self._server)

        self._call(done())

    def restart(self) -> None:
        """Lose everything, at the same address."""
        self._call(self._stop())
        self._registered = False
        self._call(self._serve())

    def close(self) -> None:
        """End it."""
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, task: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(task, self._loop).result(timeout=30)

    async def _serve(self) -> None:
        from aiohttp import web
        from openleadr.server import OpenADRServer

        logging.getLogger("openleadr").setLevel(logging.CRITICAL)
        files = self._files
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library stores itself under a plain name
            server = OpenADRServer(
                vtn_id=VTN_ID,
                cert=files.signing_certificate,
                key=files.signing_key,
                http_cert=files.tls_certificate,
                http_key=files.tls_key,
                http_ca_file=files.client_authority,
                requested_poll_freq=timedelta(seconds=self._poll_seconds),
                ven_lookup=self._looked_up,
                verify_message_signatures=files.verify,
                show_fingerprint=False,
            )
        server.add_handler("on_create_party_registration", self._register)
        server.add_handler("on_register_report", self._offered)
        server.add_handler("on_created_report", self._created)
        self._server = server
        # Not its own run(), which prints to stdout and knows no free port.
        self._runner = web.AppRunner(server.app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, self._port, ssl_context=server.ssl_context)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        await self._runner.cleanup()

    def _looked_up(self, ven_id: str) -> dict[str, Any] | None:
        if ven_id != VEN_ID or not self._registered:
            return None
        return {
            "ven_id": VEN_ID,
            "registration_id": REGISTRATION_ID,
            "fingerprint": self._fingerprint,
        }

    async def _register(self, asked: dict[str, Any]) -> tuple[str, str]:
        del asked
        self._registered = True
        return VEN_ID, REGISTRATION_ID

    async def _offered(
        self,
        ven_id: str,
        resource_id: str,
        measurement: str,
        unit: str | None,
        scale: str | None,
        min_sampling_interval: timedelta,
        max_sampling_interval: timedelta,
    ) -> tuple[Callable[[list[tuple[datetime, float]]], None], timedelta] | None:
        del ven_id, resource_id, unit, scale, min_sampling_interval, max_sampling_interval
        if self._sampling is None or measurement == "Status":
            return None
        kept = self.reports.setdefault(measurement, [])
        return kept.extend, self._sampling

    async def _created(self, payload: dict[str, Any]) -> None:
        del payload

    async def _answered(self, ven_id: str, event_id: str, opt_type: str) -> None:
        del ven_id
        self.answers.append((event_id, opt_type))
        self.answered.set()
