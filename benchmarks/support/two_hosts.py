"""Two hosts on this machine: network namespaces with a cable between them, for as long as the block lasts.

They belong to two processes that do nothing else and die with this one, so nothing is ever left behind. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

INITIATOR, TARGET = "10.78.0.1", "10.78.0.2"
_HOLD = "import ctypes, signal; ctypes.CDLL(None).prctl(1, signal.SIGKILL); print(flush=True); signal.pause()"
# The kernel says a moment later that a cable is plugged in, and UCX takes no device that has none.
_UNTIL_UP = 'until [ "$(cat /sys/class/net/cable/operstate)" = up ]; do sleep 0.01; done'


class TwoHosts:
    def __init__(self, holders: dict[str, int]) -> None:
        self._holders = holders

    def on(self, address: str, *command: str) -> list[str]:
        """The command line that runs it on that host."""
        return [*_entered(self._holders[address]), *command]


@contextlib.contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    if os.geteuid() != 0:
        raise SystemExit("hosts are network namespaces, and only root can make them")
    with contextlib.ExitStack() as stack:
        holders = {}
        for address in (INITIATOR, TARGET):
            # With a /sys of its own: UCX looks there for the devices that it has.
            command = [
                "unshare",
                "--net",
                "--mount",
                "sh",
                "-c",
                f"mount -t sysfs sysfs /sys && exec python3 -c '{_HOLD}'",
            ]
            holder = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(holder.kill)
            assert holder.stdout is not None
            holder.stdout.readline()
            holders[address] = holder.pid
        first, second = holders.values()
        _ip(f"link add cable netns {first} type veth peer name cable netns {second}")
        for address, pid in holders.items():
            inside = _entered(pid)
            _ip("link set lo up", *inside)
            _ip(f"address add {address}/24 dev cable", *inside)
            _ip("link set cable up", *inside)
        for pid in holders.values():
            subprocess.run([*_entered(pid), "sh", "-c", _UNTIL_UP], check=True, timeout=10)
        yield TwoHosts(holders)


def _entered(pid: int) -> tuple[str, ...]:
    return "nsenter", f"--net=/proc/{pid}/ns/net", f"--mount=/proc/{pid}/ns/mnt"


def _ip(arguments: str, *inside: str) -> None:
    subprocess.run([*inside, "ip", *arguments.split()], check=True)
