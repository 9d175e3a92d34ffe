"""Frequency from a meter on this network or node that sends its samples as datagrams.

A datagram is text: one or more lines ``t_s,f_hz``, seconds on the meter's own clock and hertz, such
as ``1284.020,59.9873``. Lines that are not are passed over. Options:

* ``listen``: ``udp:HOST:PORT`` or ``unix:/path``; the socket of a path is for its owner alone.
* ``peer``: the only address that is listened to, for ``udp``; anybody's where unset.
"""

import contextlib
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from gridaware.domain.errors import ConfigError, Unavailable

__all__ = ["DatagramFrequency", "open_frequency", "samples_in"]

_MOST_BYTES = 1472
"""What an Ethernet frame carries; a longer datagram is none of a meter's."""


def open_frequency(options: Mapping[str, str]) -> "DatagramFrequency":
    """A listener; it listens from the first sample on.

    Raises:
        ConfigError: ``frequency-options``.
    """
    odd = options.keys() - {"listen", "peer"}
    kind, _, place = options.get("listen", "").partition(":")
    if odd:
        raise ConfigError(
            "frequency-options", f"options of frequency_datagram: unknown: {', '.join(sorted(odd))}"
        )
    if kind == "unix" and place.startswith("/") and "peer" not in options:
        return DatagramFrequency(Path(place))
    host, _, port = place.rpartition(":")
    if kind == "udp" and host and port.isascii() and port.isdigit() and int(port) < 65536:
        return DatagramFrequency((host.strip("[]"), int(port)), options.get("peer"))
    raise ConfigError(
        "frequency-options", "frequency_datagram: listen must be udp:HOST:PORT or unix:/path"
    )


class DatagramFrequency:
    """One listening socket. Implements :class:`gridaware.control.ports.FrequencySource`."""

    def __init__(self, place: Path | tuple[str, int], peer: str | None = None) -> None:
        self._place = place
        self._peer = peer
        self._socket: socket.socket | None = None
        self._closed = False

    def samples(self) -> Iterator[tuple[float, float]]:
        """Listen; a meter that says nothing is waited for.

        Raises:
            Unavailable: the address cannot be listened on (``frequency-source``).
        """
        try:
            with self._listen() as listener:
                self._socket = listener
                while not self._closed:
                    data, sender = listener.recvfrom(_MOST_BYTES + 1)
                    if self._peer is None or sender[0] == self._peer:
                        yield from samples_in(data)
        except OSError as error:
            raise Unavailable("frequency-source", f"{self._place}: {error}") from error
        finally:
            self._socket = None

    def close(self) -> None:
        """Stop listening; a call that waits for the meter comes back."""
        self._closed = True
        listener = self._socket
        if listener is not None:
            if isinstance(self._place, Path):
                self._place.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> socket.socket:
        if isinstance(self._place, Path):
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISSOCK(self._place.lstat().st_mode):
                    self._place.unlink()  # of an agent that is gone: the state lock lets one run
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            listener.bind(str(self._place))
            self._place.chmod(0o600)
            return listener
        family, kind, protocol, _, address = socket.getaddrinfo(
            *self._place, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.bind(address)
        return listener


def samples_in(datagram: bytes) -> Iterator[tuple[float, float]]:
    """Every line of a datagram that is a sample."""
    if len(datagram) > _MOST_BYTES:
        return
    for line in datagram.splitlines():
        with contextlib.suppress(ValueError):
            seconds, hz = line.split(b",")
            yield float(seconds), float(hz)
