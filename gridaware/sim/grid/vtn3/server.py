"""The test VTN as a whole: its business logic, its lists, its pushes, its reports."""

import base64
import copy
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gridaware.clock import Clock, SystemClock
from gridaware.sim.grid.served import Served
from gridaware.sim.grid.vtn3.http import Handler
from gridaware.sim.grid.vtn3.objects import Objects, Stored
from gridaware.sim.grid.vtn3.push import Pushes
from gridaware.sim.grid.vtn3.quirks import Quirk

__all__ = ["Publish", "Vtn"]

Json = dict[str, Any]
Publish = Callable[[str, bytes], None]
"""(topic, body): puts one message on a broker."""
TOKEN_SECONDS = 3600


class Vtn(Served):
    """One server on a free port of this machine. Use it as a context manager, or close it.

    Args:
        version: ``3.1.0`` or ``3.0.1``: shapes of paths, targets, verbs.
        clients: client id → secret.
        quirks: may be changed while it runs.
        clock: of its stamps, tokens and Date headers.
        token_seconds: how long a token is good.
        mqtt: publishes notifications where given, to the broker at ``mqtt_uri``.
    """

    def __init__(
        self,
        *,
        version: str = "3.1.0",
        clients: Mapping[str, str] | None = None,
        quirks: Iterable[Quirk] = (),
        clock: Clock | None = None,
        token_seconds: float = TOKEN_SECONDS,
        mqtt: Publish | None = None,
        mqtt_uri: str = "",
    ) -> None:
        self.version = version
        self.clients = dict(clients or {"ven-client": "a-secret-of-the-ven"})
        self.quirks: set[Quirk] = set(quirks)
        self.clock = clock or SystemClock()
        self.token_seconds = token_seconds
        self.mqtt_uri = mqtt_uri
        self.asked: list[tuple[str, str]] = []
        """(method, path with query) of every request, in order."""
        self.tokens: dict[str, tuple[str, float]] = {}
        self.objects = Objects(self.clock, self.quirks)
        self.lock = threading.RLock()
        self.pushes = Pushes(self, mqtt)
        super().__init__(type("Bound", (Handler,), {"vtn": self}))

    @property
    def url(self) -> str:
        """Its base URL."""
        return self.root_url

    @property
    def is_31(self) -> bool:
        """Whether it speaks 3.1."""
        return self.version.startswith("3.1")

    # What its business does -------------------------------------------------------------------

    def add_program(self, name: str, **fields: Any) -> Json:
        """Create a programme."""
        return self._add("programs", {"programName": name, **fields}, "")

    def add_event(self, program: Mapping[str, Any], body: Mapping[str, Any]) -> Json:
        """Publish an event of a programme, and push it to whoever subscribed."""
        return self._add("events", {"programID": program["id"], **body}, "")

    def change_event(self, event_id: str, body: Mapping[str, Any]) -> Json:
        """Replace an event's content, and push it."""
        with self.lock:
            old = self.objects.by_id["events", event_id].body
            made = self.objects.change("events", event_id, {"programID": old["programID"], **body})
            made = copy.deepcopy(made)
        self.pushes.announce("events", "UPDATE", made)
        return made

    def remove_event(self, event_id: str) -> None:
        """Delete an event, and push that."""
        with self.lock:
            gone = self.objects.remove("events", event_id)
        self.pushes.announce("events", "DELETE", gone)

    def restart(self) -> None:
        """Lose what an in-memory server loses; tokens too."""
        with self.lock:
            self.objects.restart()
            self.tokens.clear()

    def expire_tokens(self) -> None:
        """Every token given so far is no longer good."""
        with self.lock:
            self.tokens = {token: (client, 0.0) for token, (client, _) in self.tokens.items()}

    @property
    def reports(self) -> list[Json]:
        """What VENs reported, oldest first."""
        return self.kept("reports")

    def kept(self, kind: str) -> list[Json]:
        """Copies of every object of a kind."""
        with self.lock:
            return [copy.deepcopy(stored.body) for stored in self.objects.of(kind)]

    # What its doors ask -----------------------------------------------------------------------

    def _add(self, kind: str, body: Mapping[str, Any], owner: str) -> Json:
        with self.lock:
            made = copy.deepcopy(self.objects.add(kind, body, owner))
        if kind in {"programs", "events"}:
            self.pushes.announce(kind, "CREATE", made)
        return made

    def add_of_client(self, kind: str, body: Mapping[str, Any], client: str) -> Json:
        """Create what a VEN may create: itself, a resource, a subscription, a report."""
        made = self._add(kind, body, client)
        if kind == "subscriptions":
            if Quirk.NO_ECHO not in self.quirks:
                self.pushes.challenge(made)
            if Quirk.LOSES_SUBSCRIPTIONS in self.quirks:
                with self.lock:
                    self.objects.remove(kind, made["id"])
        return made

    def stored(self, kind: str, object_id: str) -> Stored | None:
        """One object, or None."""
        with self.lock:
            return self.objects.by_id.get((kind, object_id))

    def grant(self, client: str) -> Json:
        """A token for a client, as its endpoint answers it."""
        token = secrets.token_urlsafe(24)
        if Quirk.NO_EXPIRES_IN in self.quirks:
            secret = self.clients[client]
            token = base64.b64encode(f"{client}:{secret}".encode()).decode()
        until = self.clock.monotonic_seconds() + self.token_seconds
        with self.lock:
            self.tokens[token] = (client, until)
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.token_seconds}
        if Quirk.NO_EXPIRES_IN in self.quirks:
            del answer["expires_in"]
        return answer

    def client_of(self, token: str) -> str | None:
        """Whose good token it is; None where it is none, or no longer."""
        with self.lock:
            client, until = self.tokens.get(token, (None, 0.0))
        return client if until > self.clock.monotonic_seconds() else None
