"""What a process offers of UCX: each case in a process of its own, since a process loads one UCX only."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from memfabric_hybrid import settings
from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.transports import rdma_devices, ucx_library, ucx_offer
from memfabric_hybrid.transports.op_types import BmDataOpType

SDMA, SHM, TCP, RDMA = (
    BmDataOpType.SDMA, BmDataOpType.HOST_SHM, BmDataOpType.HOST_TCP, BmDataOpType.HOST_RDMA
)  # fmt: skip
REPORT = """
import json, sys
from memfabric_hybrid.transports import ucx_library, ucx_offer
end, context = ucx_offer.make(int(sys.argv[1]))
print(json.dumps([end.version, end.transports, end.devices, end.obstacle, context is not None,
                  ucx_library.status().loaded]))
"""


def offer(op_type: int, **environment: str) -> tuple[str, str, str, str, bool, bool]:
    """(version, transports, devices, obstacle, whether there is a context, whether UCX was loaded)."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MF_UCX", "UCX_"))}
    command = [sys.executable, "-c", REPORT, str(int(op_type))]
    done = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return tuple(json.loads(done.stdout))


def test_ucx_over_tcp_where_it_is_demanded_and_set() -> None:
    version, transports, devices, obstacle, has_context, _ = offer(RDMA, MF_UCX_DEVICES="tcp:lo")
    assert (transports, devices, obstacle, has_context) == ("tcp", "lo", "", True)
    assert version.startswith("1.")


@pytest.mark.parametrize("op_type", [SDMA, SHM, TCP])
def test_nothing_is_loaded_for_those_who_did_not_ask(op_type: int) -> None:
    *_, obstacle, has_context, was_loaded = offer(op_type, MF_UCX_DEVICES="tcp:lo")
    assert obstacle
    assert not has_context
    assert not was_loaded


def test_without_ucx_the_sentence_says_what_was_tried() -> None:
    *_, obstacle, has_context, _ = offer(RDMA, MF_UCX_DEVICES="tcp:lo", MF_UCX_LIBRARY="/nowhere/libucp.so.0")
    assert "/nowhere/libucp.so.0" in obstacle
    assert not has_context


def test_a_device_that_ucx_does_not_have() -> None:
    *_, obstacle, has_context, _ = offer(RDMA, MF_UCX_DEVICES="tcp:nosuch0")
    assert "nosuch0" in obstacle
    assert "ucx_info -d" in obstacle
    assert not has_context


def test_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MF_UCX_DEVICES", raising=False)
    monkeypatch.setattr(rdma_devices, "ports", list)
    end, context = ucx_offer.make(RDMA)
    assert context is None
    for part in ("no RDMA device", "/sys/class/infiniband", "driver", "allow TCP", "MF_UCX_DEVICES=tcp"):
        assert part in end.obstacle
    assert not ucx_library.status().loaded


@pytest.mark.parametrize(
    ("nic", "setting", "devices"),
    [("mlx5_1", "", "mlx5_1:1"), ("eth0", "", "mlx5_0:1"), ("tcp://10.0.0.1:9000", "", "mlx5_1:1,mlx5_0:1"),
     ("mlx5_1", "mlx5_0", "mlx5_0:1")],
)  # fmt: skip
def test_nic_names_the_devices(monkeypatch: pytest.MonkeyPatch, nic: str, setting: str, devices: str) -> None:
    """The setting comes before it."""
    monkeypatch.setenv(settings.UCX_DEVICES.names[0], setting)
    found = [
        rdma_devices.Port("mlx5_0", 1, "ACTIVE", "Ethernet", 100.0, ("eth0",)),
        rdma_devices.Port("mlx5_1", 1, "ACTIVE", "Ethernet", 200.0, ("eth1",)),
    ]
    monkeypatch.setattr(rdma_devices, "ports", lambda: found)
    monkeypatch.setattr(ucx_library, "load", lambda: ucx_library.UcxStatus(True, version="1.0"))
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(ucx_offer._native, "UcxContext", lambda *said: asked.append(said))
    ucx_offer.make(RDMA, nic=nic)
    assert asked == [("ib", devices)]


def test_nic_that_names_another_machines_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MF_UCX_DEVICES", raising=False)
    found = [rdma_devices.Port("mlx5_0", 1, "ACTIVE", "Ethernet", 100.0)]
    monkeypatch.setattr(rdma_devices, "ports", lambda: found)
    end, context = ucx_offer.make(RDMA, nic="mlx5_7")
    assert context is None
    assert "nic 'mlx5_7' is no RDMA device of this machine, which has mlx5_0:1" in end.obstacle


def test_a_setting_without_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    for said in ("tcp:eth0,mlx5_0", "tcp,tcp:eth0"):
        monkeypatch.setenv(settings.UCX_DEVICES.names[0], said)
        with pytest.raises(InvalidParam, match=f"MF_UCX_DEVICES is '{said}'"):
            ucx_offer.make(RDMA)
