"""What the kernel says of a connection, on real sockets."""

from __future__ import annotations

import socket

import pytest

from ncdiag.reach import wire


@pytest.fixture
def closed() -> int:
    """A port of 127.0.0.1 on which nobody listens."""
    with socket.socket() as stream:
        stream.bind(("127.0.0.1", 0))
        return int(stream.getsockname()[1])


def test_a_port_where_nobody_listens_refuses(closed: int) -> None:
    assert wire.knock("127.0.0.1", "127.0.0.1", closed) == ("refused", "")


def test_an_address_that_is_not_here_is_the_nodes_own_error(closed: int) -> None:
    assert wire.knock("192.0.2.1", "127.0.0.1", closed) == ("local", "EADDRNOTAVAIL")
    assert wire.connect("token", "192.0.2.1", "127.0.0.1", closed, 1) == ("local", "EADDRNOTAVAIL")


def test_what_the_routes_do_not_allow_is_the_nodes_own_error(closed: int) -> None:
    """The kernel lets nothing go from a loopback address to another machine."""
    assert wire.connect("token", "127.0.0.1", "192.0.2.1", closed, 1) == ("local", "EINVAL")


def test_one_that_answers(closed: int) -> None:
    server = wire.Server("token", 3, "127.0.0.1", lambda connection, number: None)
    assert server.listen(closed)
    try:
        assert wire.connect("token", "127.0.0.1", "127.0.0.1", closed, 3)[0] == "ok"
        assert wire.connect("token", "127.0.0.1", "127.0.0.1", closed, 4) == ("stranger", "3")
        assert wire.knock("127.0.0.1", "127.0.0.1", closed) == ("ok", "")
    finally:
        server.stop()


def test_a_port_whose_datagrams_another_program_takes_costs_the_mtu_alone() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        server = wire.Server("token", 7, "127.0.0.1", lambda connection, number: None)
        try:
            assert server.listen(port)
            server.answer_datagrams(port)
            assert wire.connect("token", "127.0.0.1", "127.0.0.1", port, 7)[0] == "ok"
            assert wire.path_mtu("token", "127.0.0.1", "127.0.0.1", port, 1500) is None
        finally:
            server.stop()
