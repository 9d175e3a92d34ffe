"""JSON over HTTP: bounded in time and size, whatever the other side does."""

import contextlib
import socket
import threading
import time

import pytest

from gridaware.clock import SystemClock
from gridaware.devices.jsonhttp import MOST_BYTES, JsonHttp, tcp, unix
from gridaware.domain.errors import InvalidInput, TimedOut, Unavailable
from gridaware.sim.vendors.server import JsonServer, Reply

FULL = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@contextlib.contextmanager
def raw_server(talk):
    """A server that does with each connection what ``talk`` does."""
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve():
        with contextlib.suppress(OSError):
            while not done.is_set():
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    talk(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        done.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def client(port, seconds=5.0):
    return JsonHttp(tcp("127.0.0.1", port), "here", SystemClock(), seconds)


def test_a_request_and_its_answer_keep_one_connection(tmp_path):
    with JsonServer(lambda r: Reply(200, r.body), socket=tmp_path / "s") as server:
        http = JsonHttp(unix(tmp_path / "s"), "localhost", SystemClock(), 5.0)
        for number in range(3):
            answer = http.ask("POST", "/a?b=1", {"n": number}, {"X-Who": "me"})
            assert (answer.status, answer.body) == (200, {"n": number})
        http.close()
    assert [(r.method, r.target, r.headers["x-who"]) for r in server.asked] == [
        ("POST", "/a?b=1", "me")
    ] * 3


def test_a_server_that_drips_meets_the_deadline_of_the_whole_exchange():
    def drip(connection):
        connection.recv(1000)
        for byte in FULL:
            connection.send(bytes([byte]))
            time.sleep(0.02)

    # All of it takes 20 ms x 75 bytes = 1.5 s, and no single wait is over 0.3 s.
    with raw_server(drip) as port, pytest.raises(TimedOut):
        client(port, seconds=0.3).ask("GET", "/")


def test_a_connection_that_the_server_closed_is_made_anew():
    def once(connection):
        connection.recv(1000)
        connection.sendall(FULL)

    with raw_server(once) as port:
        http = client(port)
        assert [http.ask("GET", "/").status for _ in range(3)] == [200] * 3
        http.close()


JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "text",
    [
        b"nonsense\r\n\r\n",
        JSON + b"Content-Length: 3\r\n\r\n{x}",
        JSON + b"Content-Length: 3\r\n\r\nNaN",
        JSON + b"Content-Length: 2\r\n\r\n\xff\xff",
        JSON + b"\r\n" + b"[" * 200_000,
        JSON + b"X: y\r\n" * 200 + b"\r\n",
        JSON + b"Content-Length: 99999999\r\n\r\n" + b" " * (MOST_BYTES + 1),
    ],
    ids=["no-http", "no-json", "nan", "no-utf8", "deep", "headers", "huge"],
)
def test_what_is_no_bounded_json_is_refused(text):
    def answer(connection):
        connection.recv(1000)
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)

    with raw_server(answer) as port, pytest.raises(InvalidInput) as refused:
        client(port).ask("GET", "/")
    assert refused.value.code == "http-answer"


def test_a_redirect_is_not_followed():
    with JsonServer(lambda _: Reply(302, None, {"Location": "http://elsewhere/"})) as server:
        http = client(server.port)
        assert http.ask("GET", "/").status == 302
        http.close()
    assert len(server.asked) == 1


def test_nobody_there_is_unavailable(tmp_path):
    with pytest.raises(Unavailable) as gone:
        JsonHttp(unix(tmp_path / "none"), "localhost", SystemClock(), 1.0).ask("GET", "/")
    assert gone.value.code == "http-unreachable"
