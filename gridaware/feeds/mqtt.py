"""One connection to an MQTT 3.1.1 broker, for every feed kind that speaks MQTT.

QoS 1 is asked for, so duplicates come and nothing acknowledged is lost. Whoever connects again asks
again for what stands: neither retained messages nor a session kept by the broker are relied on, but
for what is said once a session is asked for.
"""

import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field

from gridaware.domain.errors import ConfigError, Refused, TimedOut, Unavailable
from gridaware.feeds.http import is_loopback
from gridaware.feeds.kind import FeedSettings

__all__ = ["MqttLink", "MqttMessage", "MqttSettings", "check_mqtt_url"]

CONNECT_SECONDS = 5.0
KEEPALIVE_SECONDS = 20
LOOP_SECONDS = 0.5
PUBLISH_SECONDS = 5.0
PAYLOAD_BYTES_AT_MOST = 64 * 1024
_PORTS = {"mqtt": 1883, "mqtts": 8883}


class MqttSettings(FeedSettings):
    """Where a broker is, and how it is trusted."""

    url: str = Field(max_length=500)
    """``mqtts://host:8883``; plain ``mqtt`` only to this machine, or with ``allow_insecure``."""
    client_id: str | None = Field(default=None, max_length=64)
    """Made from the feed's id where unset; two clients of one id push each other out."""
    username: str | None = Field(default=None, max_length=500)
    ca_file: str | None = Field(default=None, max_length=1000)
    """Authorities to trust in place of the system's."""
    certificate_file: str | None = Field(default=None, max_length=1000)
    key_file: str | None = Field(default=None, max_length=1000)
    """Ours, where the broker asks for one."""
    allow_insecure: bool = False
    """Speak plain MQTT over a network: anybody on it can then move the site's power."""


@dataclass(frozen=True, slots=True)
class MqttMessage:
    """One message of a topic."""

    topic: str
    payload: bytes
    retained: bool
    """Kept by the broker from before: it may be old."""


def check_mqtt_url(settings: MqttSettings) -> None:
    """Refuse a URL that is none, or that would carry orders over an open network in the clear.

    Raises:
        ConfigError: ``mqtt-url`` or ``mqtt-insecure``.
    """
    parts = urlsplit(settings.url)
    try:
        known = parts.scheme in _PORTS and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known:
        raise ConfigError("mqtt-url", f"{settings.url!r} is no mqtt:// or mqtts:// address")
    plain = parts.scheme == "mqtt"
    if plain and not (is_loopback(settings.url) or settings.allow_insecure):
        raise ConfigError("mqtt-insecure", f"{settings.url} is plain MQTT over a network")


class MqttLink:
    """One client. :meth:`serve` lives until the connection is lost or :meth:`close` is called.

    Args:
        settings: the broker.
        client_id: ours, where the settings name none.
        password: asked at each connection, since a token in its place expires.
        will: (topic, payload) that the broker says for us when we are gone.
        keep_session: have the broker keep what is said while we are gone: for messages that are
            said once and not retained.

    Raises:
        ConfigError: the URL is wrong, a certificate cannot be used (``mqtt-certificate``), or
            paho-mqtt is not installed (``extra-missing``).
    """

    def __init__(
        self,
        settings: MqttSettings,
        client_id: str,
        *,
        password: Callable[[], str] | None = None,
        will: tuple[str, bytes] | None = None,
        keep_session: bool = False,
    ) -> None:
        check_mqtt_url(settings)
        _paho()
        if urlsplit(settings.url).scheme == "mqtts":
            _tls(settings)  # what cannot be trusted is told at once
        self._settings = settings
        self._client_id = settings.client_id or client_id
        self._password = password
        self._will = will
        self._keep_session = keep_session
        self._closing = threading.Event()
        self._client: Any = None

    def serve(
        self,
        topics: Sequence[str],
        on_message: Callable[[MqttMessage], None],
        heard: Callable[[], None],
        on_connected: Callable[[], None] = lambda: None,
    ) -> None:
        """Connect, subscribe and take messages, on the caller's thread.

        Args:
            topics: what to subscribe to.
            on_message: takes one message; the broker is acknowledged once it returns.
            heard: called while the broker answers.
            on_connected: called once every subscription is acknowledged.

        Raises:
            Unavailable: the broker is not there, or no longer (``mqtt-unreachable``,
                ``mqtt-connection-lost``).
            Refused: it does not want us, or not on a topic (``mqtt-refused``).
        """
        state = _State()
        client = self._make(state, topics, on_message, on_connected)
        try:
            parts = urlsplit(self._settings.url)
            client.connect(
                parts.hostname or "", parts.port or _PORTS[parts.scheme], KEEPALIVE_SECONDS
            )
            self._client = client
            while not self._closing.is_set():
                code = client.loop(LOOP_SECONDS)
                if state.refusal is not None:
                    raise state.refusal
                if code != 0:
                    raise Unavailable("mqtt-connection-lost", f"the broker is gone ({code!r})")
                if state.subscribed:
                    heard()
        except (OSError, ValueError) as error:
            raise Unavailable("mqtt-unreachable", f"{type(error).__name__}: {error}") from error
        finally:
            self._client = None
            client.disconnect()
            client.loop(0.05)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Say something, and wait until the broker has taken it; any other thread.

        Raises:
            Unavailable: there is no connection, or it was not acknowledged in time.
        """
        client = self._client
        if client is None:
            raise Unavailable("mqtt-unreachable", "there is no connection to the broker")
        told = client.publish(topic, payload, qos=1, retain=retain)
        try:
            told.wait_for_publish(PUBLISH_SECONDS)
        except (RuntimeError, ValueError) as error:
            raise Unavailable("mqtt-connection-lost", str(error)) from error
        if not told.is_published():
            raise TimedOut("mqtt-unacknowledged", f"{topic} was not acknowledged in time")

    def close(self) -> None:
        """Let :meth:`serve` return soon; any thread."""
        self._closing.set()

    def _make(
        self,
        state: "_State",
        topics: Sequence[str],
        on_message: Callable[[MqttMessage], None],
        on_connected: Callable[[], None],
    ) -> Any:
        mqtt = _paho()
        client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            self._client_id,
            clean_session=not self._keep_session,
            protocol=mqtt.MQTTv311,
        )
        client.connect_timeout = CONNECT_SECONDS
        if self._settings.username is not None or self._password is not None:
            password = None if self._password is None else self._password()
            client.username_pw_set(self._settings.username or "", password)
        if urlsplit(self._settings.url).scheme == "mqtts":
            client.tls_set_context(_tls(self._settings))
        if self._will is not None:
            client.will_set(self._will[0], self._will[1], qos=1)

        def connected(_client: Any, _data: Any, _flags: Any, reason: Any, _more: Any) -> None:
            if reason.is_failure:
                state.refusal = Refused("mqtt-refused", f"the broker says: {reason}")
            elif topics:
                client.subscribe([(topic, 1) for topic in topics])
            else:
                state.subscribed = True
                on_connected()

        def subscribed(_client: Any, _data: Any, _mid: Any, reasons: Any, _more: Any) -> None:
            refused = [t for t, r in zip(topics, reasons, strict=False) if r.is_failure]
            if refused:
                state.refusal = Refused("mqtt-refused", f"the broker refuses {refused[0]!r}")
                return
            state.subscribed = True
            on_connected()

        def message(_client: Any, _data: Any, said: Any) -> None:
            # One byte more than is allowed shows the feed that it was too long.
            payload = bytes(said.payload[: PAYLOAD_BYTES_AT_MOST + 1])
            on_message(MqttMessage(said.topic, payload, bool(said.retain)))

        client.on_connect, client.on_subscribe, client.on_message = connected, subscribed, message
        return client


@dataclass(slots=True)
class _State:
    subscribed: bool = False
    refusal: Refused | None = None


def _paho() -> Any:
    try:
        from paho.mqtt import client
    except ImportError:
        raise ConfigError("extra-missing", "this needs gridaware[mqtt], which is absent") from None
    return client


def _tls(settings: MqttSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.certificate_file is not None:
            context.load_cert_chain(settings.certificate_file, settings.key_file)
    except (OSError, ssl.SSLError) as error:
        named = settings.certificate_file or settings.ca_file or ""
        raise ConfigError("mqtt-certificate", f"{Path(named).name}: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
