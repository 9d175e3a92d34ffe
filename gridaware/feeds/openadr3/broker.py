"""The server's MQTT broker: where it is, which topics are ours. Messages only wake a poll.

Topic names are asked for, never built. The topic ``ALL`` is left alone: the reference server
publishes nothing on it. Retained messages are not believed: whoever connects asks for the list.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gridaware.domain.errors import Unavailable
from gridaware.feeds.mqtt import MqttLink, MqttSettings
from gridaware.feeds.openadr3.client import Calls, quoted

__all__ = ["Broker", "broker_of", "topics_of"]

_SCHEMES = {"mqtt": "mqtt", "tcp": "mqtt", "mqtts": "mqtts", "ssl": "mqtts", "tls": "mqtts"}
_VERBS = ("CREATE", "UPDATE", "DELETE")
TOPICS_AT_MOST = 200


class Broker:
    """A broker as the server describes it.

    Attributes:
        url: ``mqtt://`` or ``mqtts://``.
        username: None = none is asked for.
        token: whether the OAuth2 token is the password.
    """

    def __init__(self, url: str, *, username: str | None, token: bool) -> None:
        self.url = url
        self.username = username
        self.token = token

    def link(
        self,
        client_id: str,
        password: Callable[[], str],
        *,
        ca_file: str | None,
        insecure: bool,
    ) -> MqttLink:
        """One connection to it, not yet made.

        Raises:
            ConfigError: it is reached over an open network in the clear, or paho-mqtt is absent.
        """
        settings = MqttSettings(
            url=self.url, username=self.username, ca_file=ca_file, allow_insecure=insecure
        )
        return MqttLink(settings, client_id, password=password if self.token else None)


def broker_of(calls: Calls, client_id: str) -> Broker:
    """Ask the server for its broker.

    Raises:
        Unavailable: it has none that we can use (``openadr3-no-broker``).
    """
    reply = calls.ask("GET", "/notifiers")
    told = reply.value if reply.good and isinstance(reply.value, Mapping) else {}
    mqtt = told.get("MQTT")
    if not isinstance(mqtt, Mapping):
        raise Unavailable("openadr3-no-broker", "the server tells of no MQTT broker")
    urls = [url for each in _texts(mqtt.get("URIS")) if (url := _url(each)) is not None]
    if not urls:
        raise Unavailable("openadr3-no-broker", "the server tells of no address of its broker")
    how = mqtt.get("authentication")
    said: Mapping[str, Any] = how if isinstance(how, Mapping) else {}
    method = said.get("method", "ANONYMOUS")
    if method not in {"ANONYMOUS", "OAUTH2_BEARER_TOKEN"}:
        raise Unavailable("openadr3-no-broker", f"the broker wants {str(method)[:40]}")
    token = method == "OAUTH2_BEARER_TOKEN"
    named = said.get("username")
    username = named.replace("{clientID}", client_id) if isinstance(named, str) else client_id
    # TLS first: a server may name both.
    return Broker(
        min(urls, key=lambda url: not url.startswith("mqtts")),
        username=username if token else None,
        token=token,
    )


def topics_of(calls: Calls, ven_id: str | None) -> list[str]:
    """Ask the server for the topics on which it tells of events and programs, ours first.

    Raises:
        Unavailable: it names none.
    """
    scopes = ["/"] if ven_id is None else [f"/vens/{quoted(ven_id)}/", "/"]
    topics: list[str] = []
    for kind in ("events", "programs"):
        for scope in scopes:
            reply = calls.ask("GET", f"/notifiers/mqtt/topics{scope}{kind}")
            told = reply.value if reply.good and isinstance(reply.value, Mapping) else {}
            named = told.get("topics")
            if not isinstance(named, Mapping):
                continue  # the global ones answer a VEN 403
            topics += _texts([named.get(verb) for verb in _VERBS])
            break
    if not topics:
        raise Unavailable("openadr3-no-broker", "the server names no topic for us")
    return list(dict.fromkeys(topics))[:TOPICS_AT_MOST]


def _url(text: str) -> str | None:
    scheme, found, rest = text.partition("://")
    known = _SCHEMES.get(scheme.lower())
    return f"{known}://{rest}" if found and known else None


def _texts(value: object) -> list[str]:
    each = value if isinstance(value, list) else []
    return [text for text in each if isinstance(text, str) and 0 < len(text) <= 500]
