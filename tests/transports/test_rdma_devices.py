"""Which RDMA devices are used: folders as the kernel makes them, and the reason when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.transports import rdma_devices
from memfabric_hybrid.transports.rdma_devices import SYSFS, Devices, Port, choose, ports


def add_port(
    sysfs: Path,
    device: str,
    number: int = 1,
    state: str = "4: ACTIVE",
    link_layer: str = "Ethernet",
    rate: str = "100 Gb/sec (4X EDR)",
    interface: str = "",
) -> None:
    folder = sysfs / device / "ports" / str(number)
    folder.mkdir(parents=True)
    for name, text in (("state", state), ("link_layer", link_layer), ("rate", rate)):
        (folder / name).write_text(text + "\n")
    if interface:
        (sysfs / device / "device" / "net" / interface).mkdir(parents=True)


def test_reads_what_the_kernel_shows(tmp_path: Path) -> None:
    add_port(tmp_path, "mlx5_1", state="1: DOWN", link_layer="InfiniBand", rate="2.5 Gb/sec (1X SDR)")
    add_port(tmp_path, "mlx5_0", 2)
    add_port(tmp_path, "mlx5_0", 1, interface="eth2")
    assert ports(tmp_path) == [
        Port("mlx5_0", 1, "ACTIVE", "Ethernet", 100.0, ("eth2",)),
        Port("mlx5_0", 2, "ACTIVE", "Ethernet", 100.0, ("eth2",)),
        Port("mlx5_1", 1, "DOWN", "InfiniBand", 2.5),
    ]


def test_what_cannot_be_read_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "odd_0" / "ports" / "1").mkdir(parents=True)
    (tmp_path / "odd_0" / "ports" / "notes").mkdir()
    (tmp_path / "a_file").write_text("")
    assert ports(tmp_path) == [Port("odd_0", 1, "", "", 0.0)]
    assert "odd_0:1 (of unknown state, , 0 Gbit/s)" in choose(ports(tmp_path)).obstacle


def test_active_ports_are_used_fastest_first(tmp_path: Path) -> None:
    add_port(tmp_path, "mlx5_0", rate="25 Gb/sec (1X EDR)")
    add_port(tmp_path, "mlx5_1", rate="200 Gb/sec (4X HDR)", link_layer="InfiniBand")
    add_port(tmp_path, "mlx5_2", state="1: DOWN", rate="400 Gb/sec (4X NDR)")
    assert choose(ports(tmp_path)) == ("ib", "mlx5_1:1,mlx5_0:1", "")


@pytest.mark.parametrize(
    ("nic", "names"),
    [
        ("mlx5_0", "mlx5_0:1,mlx5_0:2"),
        ("mlx5_0:2", "mlx5_0:2"),
        ("eth7", "mlx5_1:1"),
        (" mlx5_1 , mlx5_0:1,", "mlx5_0:1,mlx5_1:1"),
        ("", "mlx5_0:1,mlx5_0:2,mlx5_1:1"),
        ("tcp://10.0.0.0/24:12345", "mlx5_0:1,mlx5_0:2,mlx5_1:1"),
    ],
)
def test_nic_names_devices_ports_or_interfaces(tmp_path: Path, nic: str, names: str) -> None:
    add_port(tmp_path, "mlx5_0", 1)
    add_port(tmp_path, "mlx5_0", 2)
    add_port(tmp_path, "mlx5_1", interface="eth7")
    assert choose(ports(tmp_path), nic).names == names


def test_no_device_says_where_it_looked(tmp_path: Path) -> None:
    for sysfs in (tmp_path, tmp_path / "nothing"):
        chosen = choose(ports(sysfs), "", sysfs)
        assert (chosen.transports, chosen.names) == ("", "")
        assert f"no RDMA device on this machine (looked in {sysfs})" in chosen.obstacle


def test_unknown_and_inactive_devices_are_named(tmp_path: Path) -> None:
    add_port(tmp_path, "mlx5_0")
    add_port(tmp_path, "mlx5_1", state="1: DOWN")
    unknown = choose(ports(tmp_path), "mlx5_0,mlx5_7").obstacle
    assert "nic 'mlx5_7' is no RDMA device" in unknown
    assert "mlx5_0:1 (ACTIVE, Ethernet, 100 Gbit/s)" in unknown
    assert "no RDMA port is active: mlx5_1:1 (DOWN" in choose(ports(tmp_path), "mlx5_1").obstacle


PORTS = st.lists(
    st.builds(
        Port,
        st.sampled_from(["mlx5_0", "mlx5_1", "rxe0"]),
        st.integers(1, 2),
        st.sampled_from(["ACTIVE", "DOWN", "INIT", ""]),
        st.sampled_from(["InfiniBand", "Ethernet"]),
        st.sampled_from([0.0, 25.0, 100.0, 400.0]),
    ),
    unique_by=lambda port: port.name,
)


@given(PORTS, st.sampled_from(["", "mlx5_0", "mlx5_1:1", "rxe0,mlx5_0", "eth9"]))
def test_there_are_devices_or_a_reason(found: list[Port], nic: str) -> None:
    chosen = choose(found, nic)
    assert bool(chosen.names) == bool(chosen.transports) != bool(chosen.obstacle)
    by_name = {port.name: port for port in found}
    assert all(by_name[name].state == "ACTIVE" for name in chosen.names.split(",") if name)


def test_this_machine_can_be_asked() -> None:
    assert choose(ports()) == choose(ports(SYSFS))


def test_what_a_setting_says_of_devices() -> None:
    port = Port("mlx5_0", 1, "ACTIVE", "InfiniBand", 100)
    assert rdma_devices.chosen([port], "", "MF_X") == Devices("ib", "mlx5_0:1")
    assert rdma_devices.chosen([port], "mlx5_0", "MF_X") == Devices("ib", "mlx5_0:1")
    assert rdma_devices.chosen([], "tcp", "MF_X") == Devices("tcp", "all")
    assert rdma_devices.chosen([port], "tcp:eth0, tcp:eth1", "MF_X") == Devices("tcp", "eth0,eth1")
    assert rdma_devices.chosen([port], "mlx5_1", "MF_X").obstacle.startswith(
        "MF_X 'mlx5_1' is no RDMA device of this machine"
    )
    for said in ("tcp,mlx5_0", "tcp,tcp:eth0"):
        with pytest.raises(InvalidParam, match="MF_X"):
            rdma_devices.chosen([port], said, "MF_X")
