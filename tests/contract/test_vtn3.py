"""The test VTN itself: what a well-behaved server does, and that each quirk is what it says."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from email.utils import parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
import requests

from gridaware.sim.grid.vtn3 import Quirk, Vtn

CLIENT, SECRET = "ven-client", "a-secret-of-the-ven"
BEARER = "b" * 32


@pytest.fixture
def vtn() -> Iterator[Vtn]:
    with Vtn() as made:
        yield made


def token_of(vtn: Vtn) -> str:
    form = {"grant_type": "client_credentials", "client_id": CLIENT, "client_secret": SECRET}
    token: str = requests.post(f"{vtn.url}/auth/token", data=form, timeout=5).json()["access_token"]
    return token


def ask(vtn: Vtn, path: str, method: str = "GET", **rest: Any) -> requests.Response:
    headers = {"Authorization": f"Bearer {token_of(vtn)}"}
    return requests.request(method, vtn.url + path, headers=headers, timeout=5, **rest)


class Subscriber:
    """A call-back of a VEN."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any, str]] = []
        outer = self

        class Door(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.heard.append(("GET", self.path, ""))
                self._answer(self.path.partition("echo=")[2].encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.heard.append(("POST", json.loads(body), self.headers["Authorization"]))
                self._answer(b"{}")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Door)
        Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    def pushes(self, count: int = 1) -> list[tuple[Any, str]]:
        for _ in range(1000):
            found = [(body, bearer) for verb, body, bearer in self.heard if verb == "POST"]
            if len(found) >= count:
                break
            time.sleep(0.01)
        return found


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    made = Subscriber()
    yield made
    made.server.shutdown()
    made.server.server_close()


def subscribe(vtn: Vtn, subscriber: Subscriber, program: str | None = None) -> requests.Response:
    operation = {
        "objects": ["EVENT"], "operations": ["CREATE", "UPDATE", "DELETE"],
        "callbackUrl": subscriber.url, "bearerToken": BEARER,
    }  # fmt: skip
    body: dict[str, Any] = {"clientName": "us", "objectOperations": [operation]}
    if program is not None:
        body["programID"] = program
    return ask(vtn, "/subscriptions", "POST", json=body)


def test_a_client_gets_a_token_and_only_it_opens_the_lists(vtn: Vtn) -> None:
    assert requests.get(f"{vtn.url}/events", timeout=5).status_code == 401
    wrong = {"client_id": CLIENT, "client_secret": "wrong"}
    assert requests.post(f"{vtn.url}/auth/token", data=wrong, timeout=5).status_code == 401
    assert ask(vtn, "/events").json() == []
    where = ask(vtn, "/auth/server").json()
    assert where == {"tokenURL": f"{vtn.url}/auth/token"}


def test_lists_come_in_pages_and_by_target(vtn: Vtn) -> None:
    program = vtn.add_program("dr")
    for number in range(120):
        targets = ["north"] if number % 2 else ["south"]
        vtn.add_event(program, {"eventName": str(number), "targets": targets, "intervals": []})
    sizes = [len(ask(vtn, f"/events?skip={skip}&limit=50").json()) for skip in (0, 50, 100, 150)]
    assert sizes == [50, 50, 20, 0]
    north = ask(vtn, "/events?targets=north&limit=50").json()
    assert {event["targets"][0] for event in north} == {"north"}
    assert ask(vtn, "/events?targets=nobody").json() == []


def test_a_subscriber_is_challenged_and_then_told_of_each_change(
    vtn: Vtn, subscriber: Subscriber
) -> None:
    program, other = vtn.add_program("dr"), vtn.add_program("other")
    assert subscribe(vtn, subscriber, program["id"]).status_code == 201
    assert subscriber.heard[0][0] == "GET"
    vtn.add_event(other, {"intervals": []})
    event = vtn.add_event(program, {"intervals": []})
    ((body, bearer),) = subscriber.pushes()
    assert (body["objectType"], body["operation"]) == ("EVENT", "CREATE")
    assert body["object"]["id"] == event["id"]
    assert bearer == f"Bearer {BEARER}"
    vtn.remove_event(event["id"])
    assert [b["operation"] for b, _ in subscriber.pushes(2)] == ["CREATE", "DELETE"]
    assert all(delivery.status == 200 for delivery in vtn.pushes.deliveries)


def test_a_subscriber_that_fails_its_challenge_gets_nothing(vtn: Vtn) -> None:
    operation = {
        "objects": ["EVENT"], "operations": ["CREATE"],
        "callbackUrl": f"{vtn.url}/auth/server", "bearerToken": BEARER,
    }  # fmt: skip
    ask(vtn, "/subscriptions", "POST", json={"clientName": "us", "objectOperations": [operation]})
    assert vtn.kept("subscriptions") == []


def test_a_push_of_the_reference_server_is_json_within_json_in_snake_case(
    vtn: Vtn, subscriber: Subscriber
) -> None:
    program = vtn.add_program("dr")
    subscribe(vtn, subscriber)
    vtn.quirks |= {Quirk.DOUBLE_ENCODED, Quirk.SNAKE_CASE}
    vtn.add_event(program, {"intervals": []})
    ((text, _),) = subscriber.pushes()
    said = json.loads(text)
    assert said["object_type"] == "EVENT"
    assert said["object"]["program_id"] == program["id"]


def test_a_restart_in_memory_reuses_ids_and_loses_subscriptions(
    vtn: Vtn, subscriber: Subscriber
) -> None:
    vtn.quirks |= {Quirk.REUSED_IDS, Quirk.NAIVE_TIMES}
    first = vtn.add_event(vtn.add_program("dr"), {"eventName": "a", "intervals": []})
    subscribe(vtn, subscriber)
    vtn.restart()
    assert ask(vtn, "/events").json() == []
    assert ask(vtn, "/subscriptions").json() == []
    second = vtn.add_event(vtn.add_program("dr"), {"eventName": "b", "intervals": []})
    assert (first["id"], second["id"]) == ("1", "1")
    assert "T" not in second["createdDateTime"]
    assert "+" not in second["createdDateTime"]


ANSWERS: dict[Quirk, Callable[[Vtn], bool]] = {
    Quirk.SCOPE_LOST: lambda vtn: ask(vtn, "/events").json() == [],
    Quirk.ONE_BAD_EVENT: lambda vtn: ask(vtn, "/events").json()[0]["id"] == "bad",
    Quirk.TRUNCATES_PAGES: lambda vtn: len(ask(vtn, "/events?limit=50").json()) == 10,
    Quirk.BROKEN_PAGE: lambda vtn: ask(vtn, "/events?skip=10").status_code == 500,
    Quirk.HTML_ERRORS: lambda vtn: "<html>" in requests.get(vtn.url, timeout=5).text,
    Quirk.ANONYMOUS: lambda vtn: requests.get(f"{vtn.url}/events", timeout=5).status_code == 200,
    Quirk.NO_AUTH_SERVER: lambda vtn: ask(vtn, "/auth/server").status_code == 404,
    Quirk.STORES_THEN_500: lambda vtn: (
        ask(vtn, "/vens", "POST", json={"venName": "us"}).status_code == 500
        and [ven["venName"] for ven in vtn.kept("vens")] == ["us"]
    ),
    Quirk.REFUSES_NULLS: lambda vtn: (
        ask(vtn, "/vens", "POST", json={"venName": "us", "targets": None}).status_code == 400
    ),
    Quirk.STRINGS_FOR_NUMBERS: lambda vtn: (
        ask(vtn, "/events").json()[0]["intervals"][0]["payloads"][0]["values"] == ["2.5"]
    ),
    Quirk.CLOCK_OFF: lambda vtn: (
        abs(parsedate_to_datetime(ask(vtn, "/events").headers["Date"]) - vtn.clock.wall())
        > timedelta(minutes=14)
    ),
}


@pytest.mark.parametrize("quirk", sorted(ANSWERS))
def test_a_quirk_is_what_it_says(vtn: Vtn, quirk: Quirk) -> None:
    program = vtn.add_program("dr")
    payload = {"type": "SIMPLE", "values": [2.5]}
    for _ in range(12):
        vtn.add_event(program, {"intervals": [{"id": 0, "payloads": [payload]}]})
    vtn.quirks.add(quirk)
    assert ANSWERS[quirk](vtn)


def test_a_token_that_has_expired_is_refused_as_each_server_does(vtn: Vtn) -> None:
    headers = {"Authorization": f"Bearer {token_of(vtn)}"}
    vtn.expire_tokens()
    assert requests.get(f"{vtn.url}/events", headers=headers, timeout=5).status_code == 401
    vtn.quirks.add(Quirk.EXPIRED_IS_403)
    assert requests.get(f"{vtn.url}/events", headers=headers, timeout=5).status_code == 403


def test_a_ven_is_known_once_and_owns_what_it_made(vtn: Vtn) -> None:
    vtn.clients["other"] = "another-secret-entirely"
    made = ask(vtn, "/vens", "POST", json={"venName": "us"})
    assert made.status_code == 201
    assert ask(vtn, "/vens", "POST", json={"venName": "us"}).status_code == 409
    path = f"/vens/{made.json()['id']}"
    assert ask(vtn, path, "PUT", json={"venName": "we"}).json()["venName"] == "we"
    form = {"client_id": "other", "client_secret": "another-secret-entirely"}
    token = requests.post(f"{vtn.url}/auth/token", data=form, timeout=5).json()["access_token"]
    theirs = {"Authorization": f"Bearer {token}"}
    assert requests.get(vtn.url + path, headers=theirs, timeout=5).status_code == 404
    assert ask(vtn, path, "DELETE").status_code == 200
    program = ask(vtn, "/programs", "POST", json={"programName": "ours"})
    assert program.status_code == 403  # business alone writes those
