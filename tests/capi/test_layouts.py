"""What programs were compiled with is what the library has: structs field by field, and numbers."""

from __future__ import annotations

import re
import shutil
import subprocess
from enum import IntEnum, IntFlag
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import _native, bm, shm
from memfabric_hybrid.errors import Code
from memfabric_hybrid.transports import nic
from support.c_programs import ROOT

HEADERS = ROOT / "include" / "smem" / "host"
STRUCT = re.compile(r"^typedef struct \{\n(.*?)\n\} (\w+);", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^    [a-z][^;]*?(\w+)(?:\[\w+\])?;", re.MULTILINE)
INCLUDES = "".join(f"#include <smem/host/{name}.h>\n" for name in ("smem", "smem_bm", "smem_shm", "smem_trans"))


def complaints(include: Path, text: str = INCLUDES) -> str:
    """Of a compiler that reads the headers there; "" if it is content."""
    return subprocess.run(
        ["gcc", "-std=c11", "-fsyntax-only", f"-I{include}", "-x", "c", "-"], input=text, capture_output=True, text=True
    ).stderr


def test_every_field_is_pinned(tmp_path: Path) -> None:
    """Something that comes in before any field of any struct is noticed by whoever compiles the headers."""
    shutil.copytree(ROOT / "include", tmp_path / "include")
    assert complaints(tmp_path / "include") == ""
    count = 0
    for header in HEADERS.glob("*.h"):
        text = header.read_text(encoding="utf-8")
        copy = tmp_path / "include" / "smem" / "host" / header.name
        for struct in STRUCT.finditer(text):
            moved = FIELD.sub(r"char before_\1[8]; \g<0>", struct[1])
            copy.write_text(text.replace(struct[1], moved))
            said = complaints(tmp_path / "include")
            for name in (struct[2], *(f"{struct[2]}.{field[1]}" for field in FIELD.finditer(struct[1]))):
                assert f"{name} is part of the binary interface" in said
                count += 1
        copy.write_text(text)
    assert count == 9 + 75  # structs, and their fields


NUMBERS: list[tuple[str, type[IntEnum] | type[IntFlag], dict[str, str]]] = [
    ("SMEM_", Code, {}),
    ("SMEMB_COPY_", bm.BmCopyType, {}),
    ("SMEMB_DATA_OP_", bm.BmDataOpType, {}),
    ("SMEMB_DATA_OP_", mf.TransDataOpType, {}),
    ("SMEM_MEM_TYPE_", bm.BmMemType, {}),
    ("SMEM_GROUP_EVENT_", bm.BmGroupEvent, {"JOIN_EVENT": "JOIN", "LEAVE_EVENT": "LEAVE"}),
    ("SMEMS_DATA_OP_", shm.ShmDataOpType, {}),
]


@pytest.mark.parametrize(("prefix", "numbers", "names"), NUMBERS, ids=[numbers.__name__ for _, numbers, _ in NUMBERS])
def test_numbers_are_the_same_in_both_languages(
    prefix: str, numbers: type[IntEnum] | type[IntFlag], names: dict[str, str]
) -> None:
    claims = "".join(
        f'_Static_assert({prefix}{names.get(name, name)} == {int(member)}, "{name}");\n'
        for name, member in numbers.__members__.items()
        if int(member) > -3000  # of external stores, which C knows nothing of
    )
    assert claims.count("\n") >= 2
    assert complaints(ROOT / "include", INCLUDES + claims) == ""


def test_limits_are_the_same_in_both_languages() -> None:
    limits = {
        "SMEM_SHM_GATHER_MAX": _native.MAX_GATHER_BYTES,
        "SMEM_SHM_CONTEXT_MAX": _native.MAX_CONTEXT_BYTES,
        "SMEM_TRANS_NIC_SIZE": nic.MAX_CHARACTERS + 1,  # with the 0 at the end
    }
    claims = "".join(f'_Static_assert({name} == {limit}, "{name}");\n' for name, limit in limits.items())
    assert complaints(ROOT / "include", INCLUDES + claims) == ""


def test_a_c_file_may_include_both_interfaces() -> None:
    """Of host and kernels, which share some names: those are the host's, whichever comes first."""
    kernels = "#include <smem/device/smem_shm_aicore_base_api.h>\n"
    use = "uint32_t use(smem_shm_t heap) { return smem_shm_get_global_rank(heap) + (uint32_t)smem_shm_get_gva(0); }\n"
    for text in (INCLUDES + kernels, kernels + INCLUDES):
        assert complaints(ROOT / "include", text + use) == ""
        assert "smem_shm_get_global_rank" in complaints(ROOT / "include", text + use.replace("(heap)", "(heap, 1)"))
