"""A cut network is silent: nothing arrives, nothing closes, and what was sent comes later."""

import socket
from collections.abc import Iterator

import pytest

from gridaware.sim.proxy import Proxy


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket, Proxy]]:
    """Both ends of a connection through a proxy."""
    with socket.create_server(("127.0.0.1", 0)) as listener, Proxy(_port(listener)) as proxy:
        near = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
        far, _ = listener.accept()
        for end in (near, far):
            end.settimeout(5)
        with near, far:
            yield near, far, proxy


def _port(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def test_what_is_sent_arrives_both_ways(ends):
    near, far, _ = ends
    near.sendall(b"up")
    assert far.recv(10) == b"up"
    far.sendall(b"down")
    assert near.recv(10) == b"down"


def test_while_it_is_cut_nothing_arrives_and_nothing_is_closed(ends):
    near, far, proxy = ends
    near.sendall(b"before")
    assert far.recv(10) == b"before"
    proxy.cut()
    near.sendall(b"late")
    far.settimeout(0.05)
    with pytest.raises(TimeoutError):
        far.recv(10)
    proxy.mend()
    far.settimeout(5)
    assert far.recv(10) == b"late"


def test_an_end_that_closes_during_a_cut_is_heard_of_afterwards(ends):
    near, far, proxy = ends
    proxy.cut()
    near.shutdown(socket.SHUT_RDWR)
    far.settimeout(0.05)
    with pytest.raises(TimeoutError):
        far.recv(10)
    proxy.mend()
    far.settimeout(5)
    assert far.recv(10) == b""
