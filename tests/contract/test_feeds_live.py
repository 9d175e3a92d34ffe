"""Feeds with real threads and real sockets on loopback: hung, slow and dripping grid sides.

What happens is waited for, never slept for; the time-outs below only bound a failing test.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import uvicorn

from gridaware.clock import ManualClock, SystemClock
from gridaware.control.ports import FeedReport, Receipt
from gridaware.domain.errors import GridawareError, TimedOut, Unavailable
from gridaware.domain.event import Clocks, EventState, GridEvent
from gridaware.domain.programme import FeedSpec
from gridaware.domain.signal import EventRequest, Quantity, Signal, TargetSpec
from gridaware.domain.signing import SIGNATURE_HEADER, TIMESTAMP_HEADER, verify
from gridaware.feeds import FEED_KINDS, Feed, FeedContext, open_feed
from gridaware.feeds.http import exchange
from gridaware.feeds.http_listener import build_app
from gridaware.feeds.kind import PolledSettings, Polls
from gridaware.feeds.runner import FeedRunner
from gridaware.sim.grid import send_signed

NOW = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)
SECRET = b"0123456789abcdef-live"
EVENT = {"id": "dr-1", "start": "now", "duration": "PT45S", "target": {"reduce_percent": 40}}


class Scripted(Feed[PolledSettings]):
    """A kind whose polls do what the test says."""

    settings_model = PolledSettings
    scripts: dict[str, Callable[[], Sequence[Signal]]] = {}  # noqa: RUF012

    def poll(self) -> Sequence[Signal]:
        return self.scripts[self.context.feed_id]()


@pytest.fixture(autouse=True)
def _scripted_kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(FEED_KINDS._things, "scripted", Scripted)
    yield
    Scripted.scripts.clear()


def script(poll: Callable[[], Sequence[Signal]], feed_id: str = "utility") -> None:
    Scripted.scripts[feed_id] = poll


def spec(feed_id: str = "utility", **settings: object) -> FeedSpec:
    return FeedSpec(feed_id, "scripted", "emergency", settings_json=json.dumps(settings))


def signal(number: int, feed_id: str) -> Signal:
    request = EventRequest(NOW, NOW + timedelta(hours=1), TargetSpec(Quantity.LIMIT_WATTS, 1000.0))
    return Signal(feed_id, f"dr-{number}", 0, NOW, 1000.0, request)


def runner_for(
    clock: SystemClock | ManualClock,
    heard: list[Signal],
    untold: Callable[[str, FeedReport, GridawareError], None] = lambda *what: None,
) -> FeedRunner:
    return FeedRunner(clock, heard.append, lambda *what: None, untold)


def test_a_hung_feed_delays_no_other_and_does_not_hold_up_the_end() -> None:
    heard: list[Signal] = []
    hanging, release, polled = threading.Event(), threading.Event(), threading.Semaphore(0)

    def hang() -> Sequence[Signal]:
        hanging.set()
        release.wait(60)
        return [signal(1, "hung")]

    def good() -> Sequence[Signal]:
        polled.release()
        return [signal(1, "good")]

    script(hang, "hung")
    script(good, "good")
    runner = runner_for(SystemClock(), heard)
    runner.start()
    try:
        runner.add(spec("hung", poll_seconds=0.2), NOW)
        assert hanging.wait(10)
        runner.add(spec("good", poll_seconds=0.2), NOW)
        for _ in range(3):
            assert polled.acquire(timeout=10)
        assert runner.get("hung").health.busy
        # Replaced while it hangs: the new one is polled all the same.
        runner.remove("hung")
        again = threading.Event()
        script(lambda: again.set() or [], "hung")  # type: ignore[func-returns-value]
        runner.add(spec("hung", poll_seconds=0.2), NOW)
        assert again.wait(10)
    finally:
        runner.stop()
        release.set()
    assert {s.feed_id for s in heard} == {"good"}


def test_a_test_by_hand_during_a_poll_loses_no_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = {"t_s": 0, "duration": "PT1H", "target": {"limit_kw": 1}}
    path.write_text("\n".join(json.dumps({**row, "id": f"dr-{n}"}) for n in range(500)))
    context = FeedContext("replay", ManualClock(NOW), NOW, lambda *what: None)
    feed = open_feed(
        FeedSpec("replay", "file", "emergency", settings_json=json.dumps({"path": str(path)})),
        context,
    )
    assert isinstance(feed, Polls)
    results: list[int] = []
    start = threading.Barrier(4)

    def ask() -> None:
        start.wait(10)
        results.append(len(feed.poll()))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [500] * 4


def test_a_clock_set_back_does_not_silence_the_polls() -> None:
    # APScheduler goes by the machine's clock; set back by a day, it would wait for a day.
    polled = threading.Semaphore(0)
    script(lambda: polled.release() or [])  # type: ignore[func-returns-value]
    clock = ManualClock(NOW)
    runner = runner_for(clock, [])
    runner.start()
    try:
        runner.add(spec(poll_seconds=3600.0), NOW)
        assert polled.acquire(timeout=10)
        runner._cadence.wake_stalled()
        assert not polled.acquire(timeout=0.2)
        clock.advance(3 * 3600 + 3)
        runner._cadence.wake_stalled()
        assert polled.acquire(timeout=10)
    finally:
        runner.stop()


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/status"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def dripping(every_seconds: float, start: bytes) -> Iterator[str]:
    """A server that sends ``start`` and then a byte now and then, for ever."""
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            try:
                connection.sendall(start)
                while not ended.wait(every_seconds):
                    connection.sendall(b"x")
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize(
    "start",
    [b"", b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"],
    ids=["nothing", "headers", "body"],
)
def test_a_peer_that_drips_is_cut_off_at_the_deadline(start: bytes) -> None:
    # Each byte comes long before the read time-out, so only the total deadline can end this.
    with dripping(0.05, start) as url, pytest.raises(TimedOut) as late:
        exchange("GET", url, deadline_seconds=0.4)
    assert late.value.code == "answer-too-late"


def test_an_answer_without_end_is_cut_off_at_its_size() -> None:
    start = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 300_000
    with dripping(0.01, start) as url, pytest.raises(Unavailable) as large:
        exchange("GET", url, answer_bytes_at_most=100_000)
    assert large.value.code == "answer-too-large"


def test_a_port_where_nobody_listens_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unavailable) as away:
        exchange("GET", f"http://127.0.0.1:{port}/")
    assert away.value.code == "peer-unreachable"
    assert away.value.message == "127.0.0.1: Connection refused"
    for url in ("nonsense", "http://", "http://[::1"):
        with pytest.raises(Unavailable):
            exchange("GET", url)


def test_the_sender_is_told_in_order_and_hears_our_signature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LIVE_SECRET", SECRET.decode())
    clock = SystemClock()
    told: list[str] = []
    failures: list[str] = []
    done = threading.Semaphore(0)

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            stamp, signature = self.headers[TIMESTAMP_HEADER], self.headers[SIGNATURE_HEADER]
            verify([SECRET], stamp, body, signature, clock.wall().timestamp())
            status = json.loads(body)["status"]
            told.append(status)
            self.send_response(404 if status == "active" else 204)
            self.end_headers()
            done.release()

        def log_message(self, *_: object) -> None:
            return

    def untold(feed_id: str, report: FeedReport, error: GridawareError) -> None:
        failures.append(f"{feed_id} {report.status} {error.code}")

    runner = runner_for(clock, [], untold)
    request = EventRequest(NOW, None, TargetSpec(Quantity.LIMIT_WATTS, 1000.0))
    event = GridEvent(
        "utility.dr-1", "utility", "emergency", "dr-1", 0, request, EventState.HOLDING,
        "TargetReached", NOW, NOW, Clocks(0.0),
    )  # fmt: skip
    with served(Receiver) as url:
        settings = {"secrets": ["env:LIVE_SECRET"], "status_url": url}
        runner.add(
            FeedSpec("utility", "webhook", "emergency", settings_json=json.dumps(settings)), NOW
        )
        for status in ("opted-in", "active", "completed"):
            runner.tell("utility", FeedReport(event, status, NOW, 1000.0))
        runner.tell("nobody", FeedReport(event, "active", NOW))
        for _ in range(3):
            assert done.acquire(timeout=10)
    assert told == ["opted-in", "active", "completed"]
    assert failures == ["utility active tell-refused"]
    assert [health.untold for health in runner.health()] == [1]
    runner.stop()


def test_a_signed_webhook_over_a_real_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVE_SECRET", SECRET.decode())
    clock = SystemClock()
    heard: list[Signal] = []

    async def accept(given: Signal) -> Receipt:
        heard.append(given)
        return Receipt(f"{given.feed_id}.{given.source_id}", given.revision, "accepted")

    runner = runner_for(clock, [])
    settings = json.dumps({"secrets": ["env:LIVE_SECRET"]})
    runner.add(FeedSpec("utility", "webhook", "emergency", settings_json=settings), NOW)
    app = build_app(runner, accept, clock)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1/signals/utility"
            sent = send_signed(url, SECRET, EVENT, clock)
            forged = send_signed(url, b"another secret!!", EVENT, clock)
        finally:
            server.should_exit = True
            thread.join()
    assert (sent.status, sent.answer["disposition"]) == (200, "accepted")
    assert (forged.status, forged.answer["code"]) == (401, "signature-bad")
    (signal_,) = heard
    assert sent.sent_seconds <= signal_.received_seconds <= sent.answered_seconds
