"""Our own objects at a server: VEN, resource and subscription; whether they are still there.

They are the witness of every conclusion. A server that has lost them was restarted, and then the
events that it no longer lists were lost too, not cancelled. Objects are looked for before they are
made: servers were seen that answer 500 to what they have stored.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from gridaware.domain.errors import GridawareError, Refused, Unavailable
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.openadr3.client import Calls, Reply, quoted
from gridaware.feeds.openadr3.objects import (
    Json,
    resource_object,
    resources_path,
    same_object,
    subscription_object,
    ven_object,
)

__all__ = ["Me", "Presence"]

UNWANTED_SECONDS = 300.0
"""Between tries to register where the server does not want it."""


class Me:
    """Who we are at the server, as the settings say it.

    Args:
        version: ``3.0.1`` or ``3.1``.
        ven_name: unique at the server.
        resource_name: None = no resource of its own.
        callback_url: None = no webhook.
        bearer: what calls back must carry.
        targets: of the subscription.
    """

    def __init__(
        self,
        version: str,
        ven_name: str,
        *,
        resource_name: str | None = None,
        callback_url: str | None = None,
        bearer: str = "",
        targets: tuple[str, ...] = (),
    ) -> None:
        self.version = version
        self.ven_name = ven_name
        self.resource_name = resource_name
        self.callback_url = callback_url
        self.bearer = bearer
        self.targets = targets


class Presence:
    """Registers, and checks that the server still knows us. One thread at a time.

    Args:
        me: what is to be there.
        memory: which VEN we were before a restart of ours.
        alarm: hears what a person should know.
    """

    def __init__(self, me: Me, memory: FeedMemory, alarm: Callable[[GridawareError], None]) -> None:
        self._me = me
        self._memory = memory
        self._alarm = alarm
        self._ven: Json | None = None
        self._subscription: Json | None = None
        self._has_resource = False
        self._unwanted_until: dict[str, float] = {}

    @property
    def ven_id(self) -> str | None:
        """Our VEN's id at the server, where it has one."""
        return None if self._ven is None else str(self._ven["id"])

    @property
    def complete(self) -> bool:
        """Whether everything that is wanted is there, as far as we know."""
        me = self._me
        subscribed = me.callback_url is None or self._subscription is not None
        resource = me.resource_name is None or self._has_resource
        return self._ven is not None and resource and subscribed

    def ensure(self, calls: Calls, program_id: str | None = None) -> None:
        """Register whatever is missing.

        Args:
            calls: within the poll's deadline.
            program_id: of 3.0.1, whose subscriptions are each for one program.

        Raises:
            Unavailable: the server did not answer.
        """
        me = self._me
        if self._ven is None:
            self._ven = self._registered(
                calls, "/vens", ven_object(me.version, me.ven_name), "venName"
            )
            self._compare()
        if self._ven is None:
            return
        if me.resource_name is not None and not self._has_resource:
            ven_id = str(self._ven["id"])
            body = resource_object(me.version, me.resource_name, ven_id)
            path = resources_path(me.version, ven_id)
            made = self._registered(calls, path, body, "resourceName", ven_id)
            self._has_resource = made is not None
        if me.callback_url is not None and self._subscription is None:
            self._subscribe(calls, me.callback_url, program_id)

    def witness(self, calls: Calls) -> str | None:
        """A name of the state in which the server knows us, the same as long as it does.

        None = nothing may be concluded now: it does not know us, or knows us anew.

        Raises:
            Unavailable: the server did not answer.
        """
        if self._ven is None:
            return None
        ven = calls.find("/vens", [("venName", self._me.ven_name)], _is(self._ven))
        if ven is None:
            self._lost_ven(calls, self._ven)
            return None
        if self._subscription is not None:
            if calls.find("/subscriptions", (), _is(self._subscription)) is None:
                self._subscription = None
                told = "the server has lost our subscription; it is made anew"
                self._alarm(Unavailable("openadr3-subscription-lost", told))
                return None
        elif (
            self._me.callback_url is not None and self._unwanted_until.get("/subscriptions") is None
        ):
            return None
        parts = [ven.get("id"), ven.get("createdDateTime"), ven.get("targets") or []]
        said = json.dumps([*parts, list(self._me.targets)], sort_keys=True, default=str)
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    # ------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        """Tell where we are another VEN than before, and remember which we are."""
        if self._ven is None:
            return
        before = self._memory.get("ven")
        if isinstance(before, Mapping) and not same_object(before, self._ven):
            told = "the server has lost us, so it was restarted: events that it lost too are held"
            self._alarm(Unavailable("openadr3-server-restarted", told))
        kept = {key: self._ven.get(key) for key in ("id", "createdDateTime")}
        try:
            self._memory.put("ven", kept)
        except GridawareError as error:
            self._alarm(error)

    def _lost_ven(self, calls: Calls, ven: Json) -> None:
        reply = calls.ask("GET", f"/vens/{quoted(str(ven['id']))}")
        if reply.good and isinstance(reply.value, Mapping) and same_object(reply.value, ven):
            told = "the server knows us, and no longer lists us: our scope is lost; events are held"
            self._alarm(Refused("openadr3-scope-lost", told))
            return
        self._ven = self._subscription = None
        self._has_resource = False

    def _registered(
        self, calls: Calls, path: str, body: Json, name: str, ven_id: str | None = None
    ) -> Json | None:
        if self._unwanted(calls, path):
            return None
        found = self._look(calls, path, body, name, ven_id)
        if found is not None:
            return found
        try:
            reply = calls.ask("POST", path, body=body)
        except Unavailable:
            # It may be stored for all that.
            found = self._look(calls, path, body, name, ven_id)
            if found is None:
                raise
            return found
        if reply.good and _is_object(reply.value):
            return dict(reply.value)
        if reply.status == 409:
            found = self._look(calls, path, body, name, ven_id)
        if found is None:
            self._not_wanted(calls, path, reply)
        return found

    def _look(
        self, calls: Calls, path: str, body: Json, name: str, ven_id: str | None
    ) -> Json | None:
        query = [("venName", str(body[name]))] if ven_id is None else [("venID", ven_id)]

        def ours(each: Any) -> bool:
            if not _is_object(each) or each.get(name) != body[name]:
                return False
            return ven_id is None or each.get("venID", ven_id) == ven_id

        try:
            found = calls.find(path, query, ours)
        except Unavailable as error:
            if error.code != "openadr3-refused":
                raise
            return None  # it may be written all the same
        return None if found is None else dict(found)

    def _subscribe(self, calls: Calls, callback_url: str, program_id: str | None) -> None:
        path = "/subscriptions"
        if self._unwanted(calls, path):
            return
        me = self._me
        body = subscription_object(
            me.version, me.ven_name, callback_url, me.bearer, me.targets, program_id=program_id
        )
        for each in calls.whole_list(path):
            if not _is_object(each):
                continue
            operations = each.get("objectOperations")
            calls_back = [o for o in operations or [] if isinstance(o, Mapping)]
            if not any(o.get("callbackUrl") == callback_url for o in calls_back):
                continue
            if any(o.get("bearerToken") == me.bearer for o in calls_back):
                self._subscription = dict(each)
                return
            # Of an earlier life of ours: its calls would be refused.
            calls.ask("DELETE", f"{path}/{quoted(str(each['id']))}")
        reply = calls.ask("POST", path, body=body)
        if reply.good and _is_object(reply.value):
            self._subscription = dict(reply.value)
            self._unwanted_until.pop(path, None)
            return
        self._not_wanted(calls, path, reply)

    def _unwanted(self, calls: Calls, path: str) -> bool:
        until = self._unwanted_until.get(path)
        return until is not None and calls.client.clock.monotonic_seconds() < until

    def _not_wanted(self, calls: Calls, path: str, reply: Reply) -> None:
        first = path not in self._unwanted_until
        now = calls.client.clock.monotonic_seconds()
        self._unwanted_until[path] = now + UNWANTED_SECONDS
        if first:
            told = f"POST {path} was answered {reply.status} {reply.detail}".strip()
            self._alarm(Refused("openadr3-not-registered", told))


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("id"), str | int)


def _is(mine: Json) -> Callable[[Any], bool]:
    return lambda each: _is_object(each) and same_object(each, mine)
