"""The cable between a host and the switch of its network, and what can be wrong with it.

Every fault counts for both directions, in each of them once: a round trip takes two delays. Nothing changes on the host
itself but the rate and the loss of what it sends: its device and its addresses stay, as when a real cable is bad.
"""

from __future__ import annotations

import contextlib
from types import TracebackType

from support import frame_filter, iproute
from support.places import Place
from support.workers import Cluster

DEVICE = "eth0"  # of every host
SWITCH = "switch"
BURST = "burst 64kb latency 100ms"  # how much may come at once, how long a frame may wait before it is lost


class DelayLines:
    """The worker that runs `support.delay_line` in the switch's namespace; it starts when it is first needed."""

    def __init__(self, switch: int) -> None:
        self._switch = switch
        self._worker = contextlib.ExitStack()
        self._cluster: Cluster | None = None

    def start(self) -> Cluster:
        """Returns at once if it has started already."""
        if self._cluster is None:
            cluster = Cluster(1, "support.delay_line", places=[Place(self._switch)])
            self._cluster = self._worker.enter_context(cluster)
        return self._cluster

    def call(self, function: str, *args: str | float) -> None:
        self.start().call(0, function, *args)

    def __enter__(self) -> DelayLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster = None
        self._worker.__exit__(kind, error, trace)


class Link:
    """One cable. `host` and `switch` are network namespaces that the network owns; used by one thread."""

    def __init__(self, index: int, host: int, switch: int, mac: bytes, delay_lines: DelayLines) -> None:
        self.mac = mac
        self.port = f"port{index}"
        self._host = host
        self._switch = switch
        self._delay_lines = delay_lines
        self._far_end, self._near_end = f"far{index}", f"near{index}"  # of the cable that a delay adds
        self._has_filters = self._has_line = False
        self._refused: set[bytes] = set()
        self._loss_percent = 0.0

    def down(self) -> None:
        """The cable is pulled: the host sees that it has no carrier, everybody else sees nothing."""
        iproute.ip(self._switch, [f"link set {self.port} down"])

    def up(self) -> None:
        """Frames pass when this returns."""
        iproute.ip(self._switch, [f"link set {self.port} up"])
        self.settle()

    def settle(self) -> None:
        """Returns when the kernel has done what it has to do after both ends came up; frames were lost before."""
        _settle((self._host, DEVICE), (self._switch, self.port))

    def delay(self, delay_ms: float, jitter_ms: float) -> None:
        """Frames that are on their way while the delay begins or ends may be lost; TCP sends them again."""
        if not 0 <= jitter_ms <= delay_ms:
            raise ValueError(f"a delay of {delay_ms} ± {jitter_ms} ms: nothing arrives before it was sent")
        if delay_ms > 0 and not self._has_line:
            self._lay_line()
        if self._has_line:
            self._delay_lines.call("set_delay", self.port, delay_ms, jitter_ms)
        if delay_ms == 0 and self._has_line:
            self._remove_line()

    def rate(self, mbit: float | None) -> None:
        """None: as fast as the machine can."""
        for network, device in ((self._host, DEVICE), (self._switch, self.port)):
            shape = "noqueue" if mbit is None else f"tbf rate {mbit * 1e6:.0f}bit {BURST}"
            iproute.tc(network, [f"qdisc replace dev {device} root {shape}"])

    def loss(self, percent: float) -> None:
        self._loss_percent = percent
        self._filter_frames()

    def refuse(self, senders: set[bytes]) -> None:
        """No frame of these senders reaches the host."""
        self._refused = set(senders)
        self._filter_frames()

    def heal(self) -> None:
        """All but what it refuses, which concerns others as well."""
        self.up()
        self.rate(None)
        self.loss(0)
        self.delay(0, 0)

    def _filter_frames(self) -> None:
        if not (self._has_filters or self._refused or self._loss_percent):
            return
        to_host = frame_filter.bytecode(sorted(self._refused), self._loss_percent)
        from_host = frame_filter.bytecode((), self._loss_percent)
        for network, device, program in ((self._switch, self.port, to_host), (self._host, DEVICE, from_host)):
            hook = [] if self._has_filters else [f"qdisc add dev {device} clsact"]
            place = f"dev {device} egress protocol all prio 1 handle 1"
            iproute.tc(network, [*hook, f"filter replace {place} bpf direct-action bytecode '{program}'"])
        self._has_filters = True

    def _lay_line(self) -> None:
        """The port leaves the switch; the delay line joins it to another cable, whose far end takes its place."""
        self._delay_lines.start()  # a process: nothing passes between the two steps
        iproute.ip(
            self._switch,
            [
                f"link set {self.port} nomaster",
                f"link add {self._near_end} type veth peer name {self._far_end}",
                f"link set {self._near_end} addrgenmode none up",
                f"link set {self._far_end} addrgenmode none master {SWITCH} up",
            ],
        )
        _settle((self._switch, self._near_end), (self._switch, self._far_end))
        self._delay_lines.call("lay", self.port, self._near_end)
        self._has_line = True

    def _remove_line(self) -> None:
        self._delay_lines.call("remove", self.port)
        iproute.ip(self._switch, [f"link del {self._near_end}", f"link set {self.port} master {SWITCH}"])
        self._has_line = False


def _settle(*ends: tuple[int, str]) -> None:
    for network, device in ends:
        if not iproute.has_carrier(network, device):
            raise RuntimeError(f"{device} has no carrier although both ends of its cable are up")
