"""Which RDMA devices UCX shall use: what the kernel says of them, and a pure decision that always knows its reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from memfabric_hybrid import settings
from memfabric_hybrid.errors import InvalidParam

SYSFS = Path("/sys/class/infiniband")
TCP = "tcp"  # UCX's own, over which it is no faster than ours; only where somebody says so
TRANSPORTS = "ib"  # UCX's word for everything that an RDMA device can do; no TCP: never something slower in silence


class Port(NamedTuple):
    """One port of an RDMA device, as the kernel shows it."""

    device: str
    number: int
    state: str  # ACTIVE, DOWN, INIT, …; "" if the kernel does not say
    link_layer: str  # InfiniBand or Ethernet
    rate_gbit_s: float
    interfaces: tuple[str, ...] = ()  # of the same device, as the network knows it

    @property
    def name(self) -> str:
        """As UCX calls it."""
        return f"{self.device}:{self.number}"

    def is_called(self, name: str) -> bool:
        return name in (self.name, self.device, *self.interfaces)

    def __str__(self) -> str:
        return f"{self.name} ({self.state or 'of unknown state'}, {self.link_layer}, {self.rate_gbit_s:g} Gbit/s)"


class Devices(NamedTuple):
    """What UCX is told: UCX_TLS and UCX_NET_DEVICES; no devices: why there are none."""

    transports: str
    names: str
    obstacle: str = ""


def chosen(found: Iterable[Port], said: str, named_by: str) -> Devices:
    """What somebody said (the setting `named_by`) about UCX's devices: RDMA devices as in `choose`, or "tcp" and
    "tcp:interface". InvalidParam for both at once."""
    names = [name.strip() for name in said.split(",") if name.strip()]
    interfaces = [name.partition(":")[2] for name in names if name == TCP or name.startswith(f"{TCP}:")]
    if not interfaces:
        return choose(found, said, named_by=named_by)
    if len(interfaces) < len(names) or (len(names) > 1 and "" in interfaces):
        raise InvalidParam(
            f"{named_by} is {said!r}: expected RDMA devices, or tcp, or tcp:interface, and not two of these at once"
        )
    return Devices(TCP, ",".join(interfaces) or "all")


def ports(sysfs: Path = SYSFS) -> list[Port]:
    """All ports of this machine; none if the kernel knows no RDMA devices. What cannot be read is left open."""
    found = []
    for device in _entries(sysfs):
        interfaces = tuple(entry.name for entry in _entries(device / "device" / "net"))
        for port in _entries(device / "ports"):
            if port.name.isdecimal():
                found.append(
                    Port(
                        device.name,
                        int(port.name),
                        _text(port / "state").partition(":")[2].strip(),  # "4: ACTIVE"
                        _text(port / "link_layer"),
                        _rate(_text(port / "rate")),
                        interfaces,
                    )
                )
    return sorted(found)


def choose(found: Iterable[Port], nic: str = "", sysfs: Path = SYSFS, named_by: str = "nic") -> Devices:
    """The active ports, fastest first.

    `nic` may name those that are wanted: devices (mlx5_0), ports (mlx5_0:1) or their interfaces (eth2), with commas
    between them. A URL (tcp://…) names an address, not a device: all are wanted.
    """
    every = list(found)
    names = [] if "://" in nic else [name.strip() for name in nic.split(",") if name.strip()]
    if not every:
        return _none(
            f"there is no RDMA device on this machine (looked in {sysfs}); install its driver, allow TCP, or set "
            f"{settings.UCX_DEVICES.names[0]}=tcp for UCX over TCP"
        )
    for name in names:
        if not any(port.is_called(name) for port in every):
            return _none(f"{named_by} {name!r} is no RDMA device of this machine, which has {_listed(every)}")
    wanted = [port for port in every if not names or any(port.is_called(name) for name in names)]
    active = [port for port in wanted if port.state == "ACTIVE"]
    if not active:
        return _none(f"no RDMA port is active: {_listed(wanted)}; connect it and bring it up (rdma link)")
    active.sort(key=lambda port: (-port.rate_gbit_s, port))
    return Devices(TRANSPORTS, ",".join(port.name for port in active))


def _none(obstacle: str) -> Devices:
    return Devices("", "", obstacle)


def _listed(some: Sequence[Port]) -> str:
    return ", ".join(str(port) for port in some)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _rate(text: str) -> float:
    """ "100 Gb/sec (4X EDR)" → 100; 0 if nobody can tell."""
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        return 0.0
