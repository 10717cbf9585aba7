"""A reserved port: a server that may reuse addresses gets it, and nobody else by chance."""

from __future__ import annotations

import socket

import pytest

from support.ports import reserved_port


def test_server_can_listen_on_a_reserved_port_and_restart() -> None:
    with reserved_port() as port:
        for _ in range(2):
            with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)):
                accepted, _address = server.accept()
                accepted.close()  # the server's side closes first: its port is in TIME_WAIT for the second round


def test_two_listeners_still_exclude_each_other() -> None:
    with (
        reserved_port() as port,
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(OSError, match="Address already in use"),
    ):
        socket.create_server(("127.0.0.1", port))


def test_reserved_ports_differ() -> None:
    with reserved_port() as first, reserved_port() as second:
        assert first != second
