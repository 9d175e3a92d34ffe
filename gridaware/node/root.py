"""What root may ask of this node's agent over its own socket, also with no controller anywhere.

``release`` gives limits back in the node's slot of the ramp. Breaking into a live lease, or being
faster than the ramp, must be confirmed by typing the node's id, with a reason; the programme is
then told who did it and why (:mod:`gridaware.node.released`). ``uninstall`` lifts standing ceilings
too, takes no limit any more, and ends the agent once everything is back.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from gridaware.clock import Clock
from gridaware.domain.errors import InvalidInput, Refused
from gridaware.domain.wire import Release, Released, Welcome
from gridaware.node.actions import Action
from gridaware.node.holder import LeaseHolder
from gridaware.node.released import Releases

__all__ = ["RootDesk"]

_ARGUMENTS = frozenset({"confirm", "reason", "actor", "at_once"})
_TEXT_AT_MOST = 200
_FAREWELL_SECONDS = 10.0
"""How long an agent that is removed tries to tell a controller of it."""


class Voice(Protocol):
    """The way to a controller."""

    @property
    def connected(self) -> bool:
        """Whether one has welcomed us and is heard."""
        ...

    def greet_again(self) -> None:
        """Say Hello once more."""
        ...


class RootDesk:
    """Releases by a person: who is on the node, or through a controller's stand-in.

    Args:
        node_id: what must be typed to confirm.
        holder: holds the node's lease.
        releases: keeps what was released until a controller knows.
        clock: boot clock of leases, wall clock of what people read.
        carry: carries out the holder's actions.
        voice: says Hello again to a controller that is there.
        facts: what else ``status`` shows.
    """

    def __init__(
        self,
        node_id: str,
        holder: LeaseHolder,
        releases: Releases,
        clock: Clock,
        carry: Callable[[Iterable[Action]], None],
        voice: Voice,
        facts: Callable[[], Mapping[str, object]],
    ) -> None:
        self._node_id = node_id
        self._holder = holder
        self._releases = releases
        self._clock = clock
        self._carry = carry
        self._voice = voice
        self._facts = facts
        self._retired_at: float | None = None
        self._keeps = False
        """Whether who is connected keeps what it is told."""

    def commands(self) -> dict[str, Callable[[Mapping[str, str]], object]]:
        """By the names that the socket knows them by."""
        return {"release": self.release, "uninstall": self.uninstall, "status": self.status}

    def release(self, arguments: Mapping[str, str]) -> object:
        """End the lease; returns the node's status.

        Raises:
            InvalidInput: an argument is unknown or malformed (``release-arguments``), the wrong
                word was typed (``release-confirmation``), or the reason is missing
                (``release-reason``).
            Refused: a live lease (``lease-alive``), or more haste than the ramp allows
                (``release-ramp-unconfirmed``), without a confirmation.
        """
        confirmed, order = self._order(arguments)
        self._release(order, confirmed=confirmed)
        return self.status({})

    def uninstall(self, arguments: Mapping[str, str]) -> object:
        """Release for good: standing ceilings too, and no limit is taken any more.

        Raises:
            InvalidInput: as for :meth:`release`.
            Refused: as for :meth:`release`.
        """
        confirmed, order = self._order(arguments)
        self._release(order, confirmed=confirmed)
        self._releases.retiring = True
        self._carry(self._holder.retire(self._clock.boot_seconds(), at_once=order.at_once))
        return self.status({})

    def ordered(self, order: Release) -> None:
        """A person who releases the whole fleet has confirmed it where the stand-in runs."""
        self._release(order, confirmed=True)

    def on_welcome(self, welcome: Welcome, now: float) -> None:
        """The Hello that says all releases has been taken in."""
        self._keeps = not welcome.stand_in
        if self._keeps:
            self._releases.on_told(now)

    def on_carried(self) -> None:
        """Limits may have come back: whoever released them wants to know."""
        if self._holder.released and self._releases.note_restored():
            self._tell()

    def on_tick(self, now: float) -> bool:
        """Forget releases that are known; whether an agent that is removed may end."""
        if not self._voice.connected:
            self._releases.on_lost()
        self._releases.on_tick(now)
        if not self._releases.retiring or self._holder.holding:
            return False
        self._retired_at = now if self._retired_at is None else self._retired_at
        return self._releases.told or now - self._retired_at > _FAREWELL_SECONDS

    def status(self, arguments: Mapping[str, str]) -> object:
        """What the node holds, and how far the way back has come."""
        del arguments
        now, holder = self._clock.boot_seconds(), self._holder
        lease = holder.lease
        facts = dict(self._facts())
        gpu_ids = facts.pop("gpu_ids", ())
        return {
            "node_id": self._node_id,
            "phase": holder.phase(now),
            "released": holder.released,
            "holding": holder.holding,
            "controller_epoch": holder.epoch,
            "lease_id": None if lease is None else lease.lease_id,
            "event_ids": [] if lease is None else list(lease.event_ids),
            "lease_left_seconds": holder.lease_left_seconds(now),
            "untold_releases": len(self._releases.all()),
            "retiring": self._releases.retiring,
            **facts,
            "gpus": [
                {
                    "gpu_id": gpu_id,
                    "found_watts": holder.found_watts(gpu_id),
                    "target_watts": holder.target_watts(gpu_id, now),
                }
                for gpu_id in (gpu_ids if isinstance(gpu_ids, list) else ())
            ],
        }

    def _order(self, arguments: Mapping[str, str]) -> tuple[bool, Release]:
        unknown = arguments.keys() - _ARGUMENTS
        if unknown or arguments.get("at_once", "true") != "true":
            known = ", ".join(sorted(_ARGUMENTS))
            raise InvalidInput("release-arguments", f"the arguments are {known} (at_once: true)")
        for name, text in arguments.items():
            if len(text) > _TEXT_AT_MOST or not text.isprintable():
                raise InvalidInput(
                    "release-arguments", f"{name} must be {_TEXT_AT_MOST} printable characters"
                )
        confirm, reason = arguments.get("confirm"), arguments.get("reason", "").strip()
        if confirm is not None and confirm != self._node_id:
            raise InvalidInput(
                "release-confirmation", f"{confirm!r} was typed; this node is {self._node_id!r}"
            )
        if confirm is not None and not reason:
            raise InvalidInput("release-reason", "the programme is told why: a reason is missing")
        order = Release(arguments.get("actor") or "root", reason, "at_once" in arguments)
        return confirm is not None, order

    def _release(self, order: Release, *, confirmed: bool) -> None:
        holder, now = self._holder, self._clock.boot_seconds()
        lease, holding = holder.lease, holder.holding
        breaks = lease is not None and holder.phase(now) != "restoring"
        if order.at_once and holding and not confirmed:
            raise Refused(
                "release-ramp-unconfirmed", "found limits at once are faster than the site may rise"
            )
        actions = holder.release(now, force=confirmed, at_once=order.at_once)
        if confirmed or breaks:
            lease_id, event_ids = ("", ()) if lease is None else (lease.lease_id, lease.event_ids)
            at = self._clock.wall()
            self._releases.add(
                Released(
                    f"{self._node_id}-{at.isoformat()}",
                    lease_id,
                    event_ids if breaks or order.at_once else (),
                    order.actor,
                    order.reason,
                    at,
                    order.at_once,
                )
            )
        self._carry(actions)
        self._tell()

    def _tell(self) -> None:
        self._voice.greet_again()
        if self._keeps and self._voice.connected:
            self._releases.on_told(self._clock.boot_seconds())
