"""The API over a store that the tests fill, in front of a stand-in for control."""

import json
import socketserver
import tempfile
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gridaware.clock import ManualClock
from gridaware.service.app import build_app
from gridaware.service.keys import api_key_line
from gridaware.service.settings import WebSettings
from gridaware.store.controller import ControllerStore

with warnings.catch_warnings():
    # Starlette asks for another version of httpx than the one that everything else here uses.
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
KEY = "gw_a-key-for-tests"


class StandIn:
    """Control's socket: keeps what it is asked, and answers what the test says."""

    def __init__(self, path: Path) -> None:
        self.requests: list[dict] = []
        self.answer: dict | bytes = {"ok": True, "result": {"done": True}}
        stand_in = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                request = json.loads(self.rfile.readline())
                stand_in.requests.append(request)
                answer = stand_in.answer
                if isinstance(answer, dict):
                    answer = json.dumps({"id": request["id"], **answer}).encode() + b"\n"
                self.wfile.write(answer)

        self._server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def refuse(self, kind: str, code: str, **facts: object) -> None:
        error = {"code": code, "kind": kind, "message": "no", "facts": facts, "retryable": False}
        self.answer = {"ok": False, "error": error}

    @property
    def last(self) -> tuple[str, dict, str, str | None]:
        request = self.requests[-1]
        return (
            request["command"],
            request["args"],
            request["actor"],
            request["idempotency_key"],
        )

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class SignalListener:
    """Control's signal listener: keeps each request, answers 200 with a body of its own."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 200
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                listener.requests.append((self.path, dict(self.headers), body))
                answer = b'{"disposition":"accepted"}'
                self.send_response(listener.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ControllerStore]:
    store = ControllerStore(str(tmp_path / "s.db"), site_id="dc-1", started_at=NOON)
    yield store
    store.close()


@pytest.fixture
def control() -> Iterator[StandIn]:
    with tempfile.TemporaryDirectory(prefix="gw") as folder:  # a socket's path has 107 bytes
        stand_in = StandIn(Path(folder) / "c")
        stand_in.path = Path(folder) / "c"
        yield stand_in
        stand_in.close()


@pytest.fixture
def listener() -> Iterator[SignalListener]:
    listener = SignalListener()
    yield listener
    listener.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def settings(tmp_path: Path) -> WebSettings:
    keys = tmp_path / "api-keys"
    keys.write_text(f"# who may come in\n{api_key_line('admin', KEY)}\n")
    return WebSettings(
        store=str(tmp_path / "s.db"),
        control_socket=tmp_path / "nobody-listens",
        signals_url="http://127.0.0.1:9",
        api_key_file=keys,
        stream_poll_seconds=0.001,
    )


@pytest.fixture
def client(settings: WebSettings, clock: ManualClock) -> Iterator[TestClient]:
    """A holder of the admin's key."""
    app = build_app(settings, clock)
    headers = {"Authorization": f"Bearer {KEY}"}
    with TestClient(app, headers=headers, raise_server_exceptions=False) as client:
        yield client
