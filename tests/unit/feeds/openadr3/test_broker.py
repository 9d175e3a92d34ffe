"""Which broker and which topics a server means."""

from typing import Any, cast

import pytest

from gridaware.domain.errors import ConfigError, Unavailable
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.openadr3.broker import broker_of, topics_of
from gridaware.feeds.openadr3.callback import bearer_of, notified
from gridaware.feeds.openadr3.client import Calls, Reply


class Server:
    """Answers by path."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {path.replace("__", "/"): value for path, value in answers.items()}

    def ask(self, method: str, path: str, **_: object) -> Reply:
        assert method == "GET"
        value = self.answers.get(path)
        return Reply(403, None) if value is None else Reply(200, value)


def calls(**answers: Any) -> Calls:
    return cast("Calls", Server(**answers))


def told(uris: list[str], **authentication: str) -> Any:
    return calls(
        __notifiers={"WEBHOOK": True, "MQTT": {"URIS": uris, "authentication": authentication}}
    )


def test_tls_goes_first_and_a_token_is_the_password() -> None:
    broker = broker_of(
        told(
            ["mqtt://b.example:1883", "ssl://b.example:8883"],
            method="OAUTH2_BEARER_TOKEN",
            username="{clientID}",
        ),
        "ven-client",
    )
    assert (broker.url, broker.username, broker.token) == (
        "mqtts://b.example:8883",
        "ven-client",
        True,
    )


def test_an_anonymous_broker_gets_neither_name_nor_token() -> None:
    broker = broker_of(told(["mqtts://b.example"], method="ANONYMOUS"), "ven-client")
    assert (broker.username, broker.token) == (None, False)


def test_plain_mqtt_over_a_network_is_refused() -> None:
    broker = broker_of(told(["mqtt://b.example:1883"]), "ven-client")
    with pytest.raises(ConfigError) as caught:
        broker.link("x", str, ca_file=None, insecure=False)
    assert caught.value.code == "mqtt-insecure"


@pytest.mark.parametrize(
    "answer",
    [
        calls(),
        calls(__notifiers={"WEBHOOK": True}),
        told([]),
        told(["ws://b.example"]),
        told(["mqtts://b.example"], method="CERTIFICATE"),
    ],
)
def test_419_a_server_without_a_broker_for_us_says_so(answer: Calls) -> None:
    with pytest.raises(Unavailable) as caught:
        broker_of(answer, "ven-client")
    assert caught.value.code == "openadr3-no-broker"


TOPICS = {
    "topics": {"CREATE": "e/create", "UPDATE": "e/update", "DELETE": "e/delete", "ALL": "e/all"}
}


def test_ri_5_the_topic_all_is_left_alone() -> None:
    asked = calls(__notifiers__mqtt__topics__vens__7__events=TOPICS)
    assert topics_of(asked, "7") == ["e/create", "e/update", "e/delete"]


def test_the_topics_of_our_ven_go_before_those_of_all() -> None:
    mine = {"topics": {"CREATE": "mine/create"}}
    asked = calls(
        __notifiers__mqtt__topics__vens__7__events=mine, __notifiers__mqtt__topics__events=TOPICS
    )
    assert topics_of(asked, "7") == ["mine/create"]
    assert topics_of(asked, None) == ["e/create", "e/update", "e/delete"]
    with pytest.raises(Unavailable):
        topics_of(calls(), "7")


OBJECT = b'{"object_type": "EVENT", "operation": "CREATE", "object": {"program_id": null}}'


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (OBJECT, None),
        (b'"' + OBJECT.replace(b'"', b'\\"') + b'"', None),
        (b'{"objectType": "EVENT", "object": {"programID": "1"}}', None),
        (b"{}", "notification-unknown"),
        (b"[1]", "notification-unknown"),
        (b'"\\"', "event-not-json"),
        (b"[" * 5000, "event-nested"),
        (b"\xff", "event-not-utf8"),
    ],
)
def test_a_notification_is_known_in_each_of_its_shapes(body: bytes, code: str | None) -> None:
    fault = notified(body)
    assert (None if fault is None else fault.code) == code


def test_the_bearer_is_drawn_once_a_feed() -> None:
    memory, other = FeedMemory(), FeedMemory()
    assert bearer_of(memory) == bearer_of(memory) != bearer_of(other)
    assert len(bearer_of(memory).encode()) >= 32
