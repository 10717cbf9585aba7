"""`ip` and `tc` of iproute2, many commands at once, inside a network namespace."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
import subprocess
from collections.abc import Iterable

from support import namespaces

TIMEOUT_S = 30.0
_SIOCETHTOOL, _ETHTOOL_GLINK = 0x8946, 0x0A


def ip(network: int, commands: Iterable[str]) -> None:
    """`link add …`, `addr add …`: all of them in order, or the reason of the first that fails."""
    _run("ip", network, commands)


def tc(network: int, commands: Iterable[str]) -> None:
    """`qdisc replace …`, `filter replace …`, as `ip` does."""
    _run("tc", network, commands)


def has_carrier(network: int, device: str) -> bool:
    """Whether the other end of its cable is up. The answer includes, and this call completes, what the kernel has begun
    and would otherwise do a moment later: a device passes no frames before.
    """
    with namespaces.entered(network), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        value = ctypes.create_string_buffer(struct.pack("=II", _ETHTOOL_GLINK, 0))
        request = struct.pack("16sP16x", device.encode(), ctypes.addressof(value))
        fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
    return bool(struct.unpack("=II", value.raw[:8])[1])


def _run(program: str, network: int, commands: Iterable[str]) -> None:
    batch = "".join(f"{command}\n" for command in commands)
    try:
        with namespaces.entered(network):
            done = subprocess.run(
                [program, "-batch", "-"], input=batch, capture_output=True, text=True, timeout=TIMEOUT_S
            )
    except FileNotFoundError:
        raise RuntimeError(f"hosts of tests need {program}: scripts/install-missing iproute2") from None
    if done.returncode != 0:
        raise RuntimeError(f"{program} failed: {done.stderr.strip()}\nof these commands:\n{batch}")
