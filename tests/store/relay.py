"""What stands between clients and a store over tcp: it sees what goes by, and can hold it back."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Way:
    """One connection through the relay."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near = near
        self.far = far
        self.passed = bytearray()  # in both directions
        self.held = b""  # the client has sent it, and the store will see it when the way is open again
        self._is_open = threading.Event()
        self._is_open.set()
        self._up = threading.Thread(target=self._pump_up)
        self._down = threading.Thread(target=self._pump_down)

    def start(self) -> None:
        self._up.start()
        self._down.start()

    def hold(self) -> None:
        """What the client sends from now on, and its end, stay here."""
        self._is_open.clear()

    def release(self) -> None:
        """Returns when the store has had all that was held, or did not want it, and has closed its end."""
        self._is_open.set()
        self._up.join()
        self._down.join()

    def lose(self) -> None:
        """The client hears that its connection is over; the store hears nothing of that."""
        self.near.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._is_open.set()
        for end in (self.near, self.far):
            with suppress(OSError):  # its other end has gone
                end.shutdown(socket.SHUT_RDWR)
        self._up.join()
        self._down.join()
        self.near.close()
        self.far.close()

    def _pump_up(self) -> None:
        with suppress(OSError):  # one of the two has gone
            while data := self.near.recv(65536):
                self.held = b"" if self._is_open.is_set() else data
                self._is_open.wait()
                self.passed.extend(data)
                self.far.sendall(data)
        self._is_open.wait()
        with suppress(OSError):
            self.far.shutdown(socket.SHUT_WR)

    def _pump_down(self) -> None:
        with suppress(OSError):
            while data := self.far.recv(65536):
                self.passed.extend(data)
                self.near.sendall(data)
        with suppress(OSError):
            self.near.shutdown(socket.SHUT_WR)


class Relay:
    """To the store at `port`; as many connections as anybody wants, `ways` in the order in which they came."""

    def __init__(self, port: int) -> None:
        self.ways: list[Way] = []
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    @property
    def passed(self) -> bytes:
        return b"".join(bytes(way.passed) for way in self.ways)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._thread.join()
        for way in self.ways:
            way.close()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                way = Way(near, socket.create_connection(("127.0.0.1", self._port)))
                self.ways.append(way)  # first: whoever has had an answer finds its way here
                way.start()
