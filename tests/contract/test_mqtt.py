"""Our MQTT connection against a broker that we did not write (amqtt), outages among it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridaware.domain.errors import ConfigError, GridawareError, Unavailable
from gridaware.feeds.mqtt import MqttLink, MqttMessage, MqttSettings, check_mqtt_url
from gridaware.sim.grid.broker import Broker, Sender

PATIENCE_SECONDS = 10.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


class Served:
    """A link served on a thread, as the runner does."""

    def __init__(self, broker_url: str, topics: tuple[str, ...], **rest: object) -> None:
        self.link = MqttLink(MqttSettings(url=broker_url), "gridaware-test", **rest)  # type: ignore[arg-type]
        self.messages: list[MqttMessage] = []
        self.error: GridawareError | None = None
        self.connected, self.came = threading.Event(), threading.Semaphore(0)
        self.heard = 0
        self._topics = topics
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self.connected.wait(PATIENCE_SECONDS)

    def _run(self) -> None:
        try:
            self.link.serve(self._topics, self._take, self._note, self.connected.set)
        except GridawareError as error:
            self.error = error

    def _take(self, message: MqttMessage) -> None:
        self.messages.append(message)
        self.came.release()

    def _note(self) -> None:
        self.heard += 1

    def end(self) -> None:
        self.link.close()
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()


def test_what_is_published_is_heard_and_what_was_retained_says_so(broker: Broker) -> None:
    with Sender(broker.url) as sender:
        sender.publish("grid/limit", b"old", retain=True)
        served = Served(broker.url, ("grid/#",))
        assert served.came.acquire(timeout=PATIENCE_SECONDS)
        sender.publish("grid/limit", b"new")
        assert served.came.acquire(timeout=PATIENCE_SECONDS)
        served.end()
    said = [(m.topic, m.payload, m.retained) for m in served.messages]
    assert said == [("grid/limit", b"old", True), ("grid/limit", b"new", False)]
    assert served.heard > 0
    assert served.error is None


def test_what_we_say_is_acknowledged_by_the_broker(broker: Broker) -> None:
    with Sender(broker.url) as listener:
        listener.subscribe("site/status")
        served = Served(broker.url, ())
        served.link.publish("site/status", b"capped")
        assert listener.wait_for(1) == [("site/status", b"capped")]
        served.end()
    with pytest.raises(Unavailable):
        served.link.publish("site/status", b"nobody hears")


def test_a_broker_that_goes_away_is_a_lost_connection(broker: Broker) -> None:
    served = Served(broker.url, ("grid/#",))
    broker.close()
    served.thread.join(2 * PATIENCE_SECONDS)
    assert served.error is not None
    assert served.error.code in {"mqtt-connection-lost", "mqtt-unreachable"}
    again = MqttLink(MqttSettings(url=broker.url), "gridaware-test")
    with pytest.raises(Unavailable) as caught:
        again.serve(("grid/#",), lambda _: None, lambda: None)
    assert caught.value.code == "mqtt-unreachable"


def test_the_password_is_asked_for_at_each_connection(broker: Broker) -> None:
    asked = []

    def password() -> str:
        asked.append(len(asked))
        return "a-token-that-expires"

    for _ in range(2):
        Served(broker.url, ("grid/#",), password=password).end()
    assert asked == [0, 1]


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://127.0.0.1", "mqtt-url"),
        ("mqtt://", "mqtt-url"),
        ("mqtt://127.0.0.1:99999", "mqtt-url"),
        ("mqtt://broker.example", "mqtt-insecure"),
    ],
)
def test_an_address_that_will_not_do_is_refused(url: str, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_mqtt_url(MqttSettings(url=url))
    assert caught.value.code == code


def test_plain_mqtt_over_a_network_only_where_a_person_says_so() -> None:
    check_mqtt_url(MqttSettings(url="mqtt://broker.example", allow_insecure=True))
    check_mqtt_url(MqttSettings(url="mqtts://broker.example"))


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path, broker: Broker) -> None:
    url = broker.url.replace("mqtt:", "mqtts:")
    with pytest.raises(ConfigError) as caught:
        MqttLink(MqttSettings(url=url, ca_file=str(tmp_path / "ca.pem")), "x")
    assert caught.value.code == "mqtt-certificate"
