"""An MQTT broker on this machine, for tests and benchmarks: amqtt, which we did not write.

::

    with Broker() as broker:
        broker.url                      # mqtt://127.0.0.1:PORT
        with Sender(broker.url) as sender:
            sender.publish("grid/limit", b"{}", retain=True)
"""

import asyncio
import contextlib
import threading
import time
from typing import Any, Self
from urllib.parse import urlsplit

from gridaware.domain.errors import TimedOut

__all__ = ["Broker", "Sender"]

PATIENCE_SECONDS = 10.0
_ANONYMOUS = "amqtt.plugins.authentication.AnonymousAuthPlugin"


class Broker:
    """Serves on a free port, on a thread of its own, until it is closed.

    Args:
        port: 0 = any; a broker that comes back after an outage takes the one it had.
        anonymous: let those in who give no name. Sessions are kept for those alone who must give
            one, so a broker that keeps them lets nobody else in.
    """

    def __init__(self, port: int = 0, *, anonymous: bool = True) -> None:
        self._anonymous = anonymous
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._broker = asyncio.run_coroutine_threadsafe(self._start(port), self._loop).result(
            PATIENCE_SECONDS
        )
        server = self._broker._servers["default"].instance
        self.port: int = server.sockets[0].getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Its address."""
        return f"mqtt://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Serve no more; it forgets everything. Twice is once."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._broker.shutdown(), self._loop).result(
                PATIENCE_SECONDS
            )
        asyncio.run_coroutine_threadsafe(self._cancel_rest(), self._loop).result(PATIENCE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()

    def wait_left(self, client_id: str) -> None:
        """Return once the broker knows that a client has gone.

        One who comes back under the same name before that is taken by amqtt for the one who went,
        and hears nothing.

        Raises:
            TimedOut: it is still there.
        """
        for _ in range(round(PATIENCE_SECONDS / 0.01)):
            session, _handler = self._broker._sessions.get(client_id, (None, None))
            if session is None or session.transitions.state != "connected":
                return
            time.sleep(0.01)
        raise TimedOut("still-connected", f"{client_id} has not gone")

    async def _start(self, port: int) -> Any:
        from amqtt.broker import Broker as Amqtt

        broker = Amqtt(
            {
                "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
                "plugins": {_ANONYMOUS: {"allow_anonymous": self._anonymous}},
            },
            loop=self._loop,
        )
        await broker.start()
        return broker

    async def _cancel_rest(self) -> None:
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


class Sender:
    """Somebody who publishes, and hears, on a broker."""

    def __init__(
        self,
        url: str,
        *,
        client_id: str = "grid",
        username: str | None = None,
        will: tuple[str, bytes] | None = None,
    ) -> None:
        from paho.mqtt import client as mqtt
        from paho.mqtt.enums import CallbackAPIVersion

        parts = urlsplit(url)
        self.heard: list[tuple[str, bytes]] = []
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv311)
        if username is not None:
            self._client.username_pw_set(username)
        if will is not None:
            self._client.will_set(will[0], will[1], qos=1)
        self._came = threading.Condition()
        self._acknowledged = threading.Event()
        self._client.on_message = self._on_message
        self._client.on_subscribe = lambda *_: self._acknowledged.set()
        self._client.connect(parts.hostname or "", parts.port or 1883, keepalive=20)
        self._client.loop_start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Say something; returns once the broker has it."""
        self._client.publish(topic, payload, qos=1, retain=retain).wait_for_publish(
            PATIENCE_SECONDS
        )

    def subscribe(self, topic: str) -> None:
        """Hear a topic from now on, in :attr:`heard`."""
        self._acknowledged.clear()
        self._client.subscribe(topic, qos=1)
        self._acknowledged.wait(PATIENCE_SECONDS)

    def wait_for(self, count: int) -> list[tuple[str, bytes]]:
        """What was heard, once it is ``count`` messages.

        Raises:
            TimedOut: it never was.
        """
        with self._came:
            if not self._came.wait_for(lambda: len(self.heard) >= count, PATIENCE_SECONDS):
                raise TimedOut("not-heard", f"{len(self.heard)} messages came, not {count}")
            return list(self.heard)

    def vanish(self) -> None:
        """Cut the connection without a word, so that the broker says the last will."""
        self._client.loop_stop()
        sock = self._client.socket()
        if sock is not None:
            sock.close()

    def close(self) -> None:
        """Say goodbye."""
        self._client.disconnect()
        self._client.loop_stop()

    def _on_message(self, _client: Any, _data: Any, said: Any) -> None:
        with self._came:
            self.heard.append((said.topic, bytes(said.payload)))
            self._came.notify_all()
