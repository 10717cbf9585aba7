"""What a user sees without running anything: help(), inspect, dir(), type checkers, names in logs."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

import memfabric_hybrid as mf
import mf_adapter
from memfabric_hybrid import bm, logs, offload, shm
from memfabric_hybrid.api import boundary
from memfabric_hybrid.transfer.ticket import Ticket

SOURCES = Path(__file__).resolve().parents[2] / "src"
OWNERS = (mf, bm, offload, shm, bm.BigMemory, shm.ShareMemory, mf.TransferEngine)
CHECKED_S = 300.0


def functions(owner: Any) -> list[Any]:
    names = owner.__all__ if inspect.ismodule(owner) else [name for name in dir(owner) if not name.startswith("_")]
    return [getattr(owner, name) for name in names if inspect.isfunction(getattr(owner, name))]


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: owner.__name__)
def test_calls_that_return_codes_say_so(owner: Any) -> None:
    returning = [function for function in functions(owner) if "Codes: " in (function.__doc__ or "")]
    assert returning
    for function in returning:
        assert inspect.signature(function).return_annotation == "int", function.__name__
        assert typing.get_type_hints(function)["return"] is int
        assert "-> 'int'" in pydoc.plain(pydoc.render_doc(function)).splitlines()[2], function.__name__


def test_boundary_keeps_other_annotations() -> None:
    @boundary.returns_code
    def act(number: int) -> None:
        pass

    assert str(inspect.signature(act)) == "(number: 'int') -> 'int'"


@pytest.mark.parametrize("module", [mf, bm, offload, shm], ids=lambda module: module.__name__)
def test_completion_shows_the_public_names_only(module: Any) -> None:
    assert {name for name in dir(module) if not name.startswith("_")} == set(module.__all__)


USER_PROGRAM = """
import mf_adapter
import mf_smem
import memfabric_hybrid as mf
from memfabric_hybrid import bm, device, offload, shm

config = bm.BmConfig(init_timeout=3, auto_ranking=False, rank_id=1)
other = shm.ShmConfig(operation_timeout=3, start_store=False)
memory = offload.OffloadConfig(scene=offload.Scene.SHARED)
memory.scene, memory.size = offload.LOCAL, 1 << 30
scene: offload.Scene = memory.scene
address: int = offload.malloc(memory.size) + offload.get_dva(0)
copied: int = offload.sparse_copy(address, address, address, address, 0) + offload.free(address)
engine = mf_adapter.TransferEngine()
code: int = engine.initialize(None, "127.0.0.1:0", "Prefill", 0)
opcode: mf.TransferOpcode = engine.TransferOpcode.Read
rank: int = mf_smem.bm.bm_rank_id()
kernel_rank: int = device.rank()
moved: bool = device.put(0, 0, None)
lines: list[str] = []
mf.set_extern_logger(lambda level, text: lines.append(text))
mf.set_extern_logger(None)
stream = mf.Stream()
both: int = stream.wait(timeout=1) + stream.wait(timeout_s=1)
ticket = engine.submit_read("127.0.0.1:1", 0, 0, 0)
both = ticket.wait(timeout=1) + ticket.wait(timeout_s=1)
"""
WRONG_PROGRAM = """
from memfabric_hybrid import bm
bm.BmConfig(init_time_out=3)
"""


@pytest.mark.timeout(CHECKED_S)
def test_programs_are_checked_strictly(tmp_path: Path) -> None:
    """As for a user: mypy finds the installed packages by their markers."""
    (tmp_path / "right.py").write_text(USER_PROGRAM)
    (tmp_path / "wrong.py").write_text(WRONG_PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "right.py", "wrong.py"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=CHECKED_S).stdout
    complaints = [line for line in said.splitlines() if ": error: " in line]
    assert len(complaints) == 1, said
    assert "init_time_out" in complaints[0]
    for package in ("memfabric_hybrid", "mf_adapter", "mf_smem"):
        assert (SOURCES / package / "py.typed").is_file()


def test_configurations_take_their_fields_as_arguments() -> None:
    config = bm.BmConfig(init_timeout=3, start_store=False)
    assert (config.init_timeout, config.start_store, config.create_timeout) == (3, False, 120)
    assert shm.ShmConfig(create_timeout=5).create_timeout == 5
    wrong: Any = "3"
    with pytest.raises(TypeError, match="init_timeout"):
        bm.BmConfig(init_timeout=wrong)


def test_extern_logger_can_be_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    assert mf.set_extern_logger(lambda level, text: lines.append(text)) == 0
    assert mf.set_extern_logger(None) == 0
    logs.get("memfabric_hybrid.test").warning("to standard error again")
    assert "to standard error again" in capsys.readouterr().err
    assert not lines


def test_waits_have_one_spelling_and_an_alias() -> None:
    with mf.Stream() as stream:
        assert stream.wait(0.5) == stream.wait(timeout=0.5) == stream.wait(timeout_s=0.5) == 0
    assert list(inspect.signature(Ticket.wait).parameters) == ["self", "timeout", "timeout_s"]


# ---- enums -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "text"),
    [
        (bm.BmCopyType.H2G, "BmCopyType.H2G"),
        (bm.BmMemType.HOST, "BmMemType.HOST"),
        (bm.BmGroupEvent.LEAVE_EVENT, "BmGroupEvent.LEAVE_EVENT"),
        (bm.BmDataOpType.HOST_TCP, "BmDataOpType.HOST_TCP"),
        (shm.ShmDataOpType.MTE, "ShmDataOpType.MTE"),
        (mf.TransDataOpType.DEVICE_RDMA, "TransDataOpType.DEVICE_RDMA"),
        (mf.TransferOpcode.Read, "TransferOpcode.Read"),
        (mf.TransferOpcode.WRITE, "TransferOpcode.Write"),
    ],
)
def test_enums_print_as_in_client_logs(member: Any, text: str) -> None:
    assert str(member) == f"{member}" == "{}".format(member) == text  # noqa: UP032
    assert member.name == text.partition(".")[2]
    assert f"{member:d}" == str(int(member))


def test_opcodes_are_found_at_the_engine() -> None:
    assert mf.TransferEngine.TransferOpcode is mf.TransferOpcode
    assert mf_adapter.TransferEngine.TransferOpcode.READ == 0


# ---- what clients compare --------------------------------------------------------------------------------------------


def test_store_without_a_url_is_a_code(everything_off: None) -> None:
    assert mf.create_config_store(None) == -2000
    assert "store_url is None" in mf.get_and_clear_last_err_msg()


def test_supported_operation_is_the_one_clients_compare_with(store_url: str, everything_off: None) -> None:
    assert shm.initialize(store_url, 1, 0, 0, shm.ShmConfig()) == 0, mf.get_last_err_msg()
    with shm.create(0, 1, 0, 2 << 20) as heap:
        assert heap.query_support_data_operation() == shm.ShmDataOpType.MTE == 1
        assert heap.reach(0) == shm.ShmDataOpType.MTE | shm.ShmDataOpType.SDMA
