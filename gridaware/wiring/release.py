"""The whole fleet released while control is down: a stand-in listens in control's place.

It takes the store's lock, so it is refused while a controller lives and refuses one that would
start meanwhile, and a new epoch, so that the agents obey it. Each agent that dials in is told who
releases it and why, gives its limits back in its own slot of the ramp (or at once), and keeps the
fact for the next controller, which tells the programmes. It works on a full disk and without a
store, too; then the epoch that the agents obeyed last must be given.
"""

import asyncio
import contextlib
import errno
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import func, select

from gridaware.clock import Clock
from gridaware.domain.errors import ConfigError, GridawareError, Refused, Unavailable
from gridaware.domain.moment import Moment
from gridaware.domain.wire import Fenced, Hello, NodeFault, Release, Released, Welcome
from gridaware.node.link import AgentMessage, LinkServer
from gridaware.node.tls import controller_context
from gridaware.store.controller import ControllerStore
from gridaware.store.database import database_file, open_engine, translated
from gridaware.store.lock import ControllerLock
from gridaware.store.reader import StoreReader
from gridaware.store.schema import controller
from gridaware.wiring.config import Settings
from gridaware.wiring.identity import voucher

__all__ = ["NodeRelease", "release_fleet"]

NODES_AT_MOST = 1000


@dataclass(frozen=True, slots=True)
class NodeRelease:
    """How far one node has come."""

    node_id: str
    state: str
    """``waiting`` (has not dialled in), ``releasing``, ``released``, ``refused``."""
    detail: str = ""


Say = Callable[[NodeRelease], None]


def release_fleet(
    settings: Settings,
    clock: Clock,
    order: Release,
    *,
    wait_seconds: float,
    say: Say,
    after_epoch: int = 0,
) -> list[NodeRelease]:
    """Release every agent that dials in, until all known nodes are back or the time is over.

    Args:
        settings: the site's; the listener's address and its certificate are control's.
        clock: of heartbeats and of what is written.
        order: who releases, why, and whether at once.
        wait_seconds: how long to wait for nodes; those still missing are in the answer.
        after_epoch: what the agents obeyed last, where the store is lost.
        say: hears of each node whenever it has come further.

    Raises:
        Refused: a controller lives on this store (``store-locked``), or something else listens
            at its address (``agents-port-taken``).
        ConfigError: certificates are missing, or the epoch is not known (``epoch-unknown``).
    """
    with _in_controls_place(settings, clock.wall(), after_epoch) as epoch:
        fleet = _Fleet(order, _known_nodes(settings), say)
        return asyncio.run(_listen(settings, clock, epoch, fleet, wait_seconds))


class _StandIn(LinkServer):
    """Control's end of the streams, for one message."""

    def welcome(self) -> Welcome:
        """Agents go on keeping what the next controller must know."""
        return replace(super().welcome(), stand_in=True)


class _Fleet:
    """Every node and how far it has come; implements :class:`gridaware.node.link.LinkHandler`."""

    def __init__(self, order: Release, known: list[str], say: Say) -> None:
        self._order = order
        self._say = say
        self.link: LinkServer | None = None
        self.nodes = {node_id: NodeRelease(node_id, "waiting") for node_id in known}
        self.done = asyncio.Event()
        """Nobody is left to wait for."""

    def on_hello(self, hello: Hello, moment: Moment) -> None:
        """An agent is there, perhaps with news of its way back."""
        del moment
        mine = [r for r in hello.releases if self._is_mine(r)]
        if "release" not in hello.capabilities:
            self._note(hello.node_id, "refused", "its agent is too old to be released from here")
        elif mine and mine[-1].restored:
            self._note(hello.node_id, "released")
        else:
            self._note(hello.node_id, "releasing")
            if not mine and self.link is not None:
                self.link.send(hello.node_id, self._order)

    def on_message(self, node_id: str, message: AgentMessage, moment: Moment) -> None:
        """Faults are worth showing; nothing else is asked for."""
        del moment
        if isinstance(message, Fenced):
            self._note(node_id, "refused", f"{message.code}: {message.message}")
        elif isinstance(message, NodeFault) and message.code != "released-by-person":
            told = f"{message.code}: {message.message}"
            self._note(node_id, self.nodes[node_id].state, told)

    def on_lost(self, node_id: str, moment: Moment) -> None:
        """It goes on by itself."""

    def _is_mine(self, released: Released) -> bool:
        return (released.actor, released.reason) == (self._order.actor, self._order.reason)

    def _note(self, node_id: str, state: str, detail: str = "") -> None:
        before = self.nodes.get(node_id)
        node = NodeRelease(node_id, state, detail or (before.detail if before else ""))
        if self.nodes.get(node_id) != node:
            self.nodes[node_id] = node
            self._say(node)
        if all(node.state in {"released", "refused"} for node in self.nodes.values()):
            self.done.set()


async def _listen(
    settings: Settings, clock: Clock, epoch: int, fleet: _Fleet, wait_seconds: float
) -> list[NodeRelease]:
    control, tls = settings.control, settings.tls_dir
    context = controller_context(tls / "ca.pem", tls / "controller.pem", tls / "controller.key")
    link = _StandIn(clock, silence_seconds=control.silence_seconds)
    fleet.link = link
    try:
        vouch = voucher(tls / "ca.pem", clock)
        await link.start(control.agents_host, control.agents_port, context, epoch, fleet, vouch)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise ConfigError("agents-address", f"cannot listen for agents: {error}") from error
        at = f"{control.agents_host}:{control.agents_port}"
        raise Refused("agents-port-taken", f"something else listens for agents at {at}") from error
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                await fleet.done.wait()
    finally:
        await link.stop()
    return list(fleet.nodes.values())


@contextmanager
def _in_controls_place(settings: Settings, at: datetime, after_epoch: int) -> Iterator[int]:
    """The store's lock and an epoch of our own; on a store that takes no writes, the next one."""
    url = settings.store_url
    try:
        store = ControllerStore(
            url, site_id=settings.site.name, started_at=at, after_epoch=after_epoch
        )
    except (ConfigError, Unavailable) as error:
        path = database_file(url)
        if path is None:
            raise
        lock = ControllerLock(path)
        try:
            yield max(_last_epoch(url, error, after_epoch), after_epoch) + 1
        finally:
            lock.release()
        return
    try:
        yield store.epoch
    finally:
        with contextlib.suppress(Unavailable):
            store.close()


def _last_epoch(url: str, trouble: GridawareError, after_epoch: int) -> int:
    try:
        engine = open_engine(url, writing=False)
        try:
            with translated("read the epoch"), engine.connect() as connection:
                return int(connection.execute(select(func.max(controller.c.epoch))).scalar() or 0)
        finally:
            engine.dispose()
    except GridawareError:
        if after_epoch:
            return 0
        raise ConfigError(
            "epoch-unknown", f"the store cannot be used ({trouble.message}), nor its epoch read"
        ) from trouble


def _known_nodes(settings: Settings) -> list[str]:
    """Nodes that ever reported, as the store has them; none where it cannot be read."""
    try:
        reader = StoreReader(settings.store_url)
        try:
            page = reader.list("node", limit=NODES_AT_MOST)
        finally:
            reader.close()
    except GridawareError:
        return []
    return [str(json.loads(body)["node_id"]) for body in page.bodies]
