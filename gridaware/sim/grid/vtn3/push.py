"""How the test VTN tells of changes: webhooks with a challenge first, and topics of a broker."""

import json
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import requests

from gridaware.sim.grid.vtn3.objects import KINDS, snake_cased
from gridaware.sim.grid.vtn3.quirks import Quirk

if TYPE_CHECKING:
    from gridaware.sim.grid.vtn3.server import Vtn

__all__ = ["Delivery", "Pushes"]

TIMEOUT_SECONDS = 5.0
_WORDS_OF_301 = {"CREATE": "POST", "UPDATE": "PUT", "DELETE": "DELETE"}
_ECHO = "test_echo"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One notification that was sent."""

    url: str
    """Of the webhook; or the topic."""
    object_id: str
    sent_seconds: float
    """Monotonic, just before it was sent."""
    status: int
    """Of the answer; 0 where there was none, or a broker took it."""


class Pushes:
    """Sends notifications, apart from the answers: a dead subscriber delays none of those."""

    def __init__(self, vtn: "Vtn", publish: Callable[[str, bytes], None] | None) -> None:
        self._vtn = vtn
        self._publish = publish
        self._session = requests.Session()
        self._session.trust_env = False
        self._sending = threading.Lock()
        self.deliveries: list[Delivery] = []

    def announce(self, kind: str, operation: str, body: Mapping[str, Any]) -> None:
        """Tell everybody who subscribed."""
        threading.Thread(target=self._announce, args=(kind, operation, body), daemon=True).start()

    def challenge(self, subscription: Mapping[str, Any]) -> bool:
        """Ask each call-back for an echo; a subscription that fails is taken away."""
        word = secrets.token_hex(8)
        for each in subscription.get("objectOperations") or []:
            url, params = str(each.get("callbackUrl")), {"echo": word}
            if Quirk.ECHO_PATH in self._vtn.quirks:
                url, params = f"{url}/echo", {"echo": _ECHO}
            try:
                answer = requests.get(url, params=params, timeout=TIMEOUT_SECONDS)
            except requests.RequestException:
                continue  # the reference server takes that for success
            if answer.status_code != 200 or params["echo"] not in answer.text:
                with self._vtn.lock:
                    self._vtn.objects.remove("subscriptions", subscription["id"])
                return False
        return True

    def _announce(self, kind: str, operation: str, body: Mapping[str, Any]) -> None:
        vtn = self._vtn
        verb = operation if vtn.is_31 else _WORDS_OF_301[operation]
        said: Any = {"objectType": KINDS[kind], "operation": verb, "object": dict(body)}
        if Quirk.SNAKE_CASE in vtn.quirks:
            said = snake_cased(said | {"targets": None})
        text = json.dumps(said)
        if self._publish is not None:
            topic = f"{kind}/{operation.lower()}"
            self._note(topic, body, partial(self._to_broker, topic, text))
        if Quirk.DOUBLE_ENCODED in vtn.quirks:
            text = json.dumps(text)
        with self._sending:
            for subscription in vtn.kept("subscriptions"):
                for each in subscription.get("objectOperations") or []:
                    if self._wants(subscription, each, kind, verb, body):
                        self._note(each["callbackUrl"], body, partial(self._post, each, text))

    def _wants(
        self,
        subscription: Mapping[str, Any],
        each: Mapping[str, Any],
        kind: str,
        verb: str,
        body: Mapping[str, Any],
    ) -> bool:
        program = subscription.get("programID")
        scoped = program is None or body.get("programID", body["id"]) == program
        scoped = scoped or Quirk.IGNORES_PROGRAM in self._vtn.quirks
        return (
            KINDS[kind] in each.get("objects", []) and verb in each.get("operations", []) and scoped
        )

    def _note(self, url: str, body: Mapping[str, Any], send: Callable[[], int]) -> None:
        sent = self._vtn.clock.monotonic_seconds()
        status = send()
        self.deliveries.append(Delivery(url, str(body["id"]), sent, status))

    def _to_broker(self, topic: str, text: str) -> int:
        assert self._publish is not None
        self._publish(topic, text.encode())
        return 0

    def _post(self, to: Mapping[str, Any], text: str) -> int:
        headers = {"Content-Type": "application/json"}
        if to.get("bearerToken"):
            headers["Authorization"] = f"Bearer {to['bearerToken']}"
        try:
            answer = self._session.post(
                to["callbackUrl"], data=text.encode(), headers=headers, timeout=TIMEOUT_SECONDS
            )
        except requests.RequestException:
            return 0
        return answer.status_code
