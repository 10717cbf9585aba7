"""The code against the documented interface: every name and parameter, the manual, and the page that lists them."""

from __future__ import annotations

import inspect
import pydoc
import re
from pathlib import Path
from typing import Any

import pytest

from memfabric_hybrid import offload
from memfabric_hybrid.errors import Code
from support.interface import REQUIRED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "interface.md"
FUNCTIONS: dict[str, dict[str, Any]] = {
    "initialize": {"config": REQUIRED},
    "uninitialize": {},
    "malloc": {"size": REQUIRED, "flags": 0},
    "free": {"ptr": REQUIRED, "flags": 0},
    "get_dva": {"ptr": REQUIRED},
    "empty": {"sizes": REQUIRED, "dtype": None, "pin_memory": False},
    "sparse_copy": dict.fromkeys(("src_ptrs", "dst_ptrs", "len_ptrs", "size_ptr", "device"), REQUIRED),
}
ON_ACCELERATORS = {"group_pack_copy", "kv_exchange_copy", "entry_gather", "register_entry_table"}
OTHERS = {"LOCAL", "SHARED", "Scene", "OffloadConfig", "OFFLOAD_FLAG_GIANT_PAGE", "OFFLOAD_FLAG_URMA_POOL"}
FIELDS = {name for name in vars(offload.OffloadConfig) if not name.startswith("_")}


def test_public_names() -> None:
    assert set(offload.__all__) == {*FUNCTIONS, *ON_ACCELERATORS, *OTHERS}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures(name: str) -> None:
    parameters = inspect.signature(getattr(offload, name)).parameters.values()
    found = {one.name: REQUIRED if one.default is one.empty else one.default for one in parameters}
    assert list(found.items()) == list(FUNCTIONS[name].items())


def test_every_name_is_in_the_manual_and_on_the_page() -> None:
    manual = pydoc.plain(pydoc.render_doc(offload))
    words = set(re.findall(r"\w+", PAGE.read_text(encoding="utf-8").partition("\n## 12. Offload\n")[2]))
    for name in {*offload.__all__, *FIELDS}:
        assert name in manual, f"help(memfabric_hybrid.offload) does not mention {name}"
        assert name in words, f"the page does not have {name}"


@pytest.mark.parametrize("name", ["initialize", "free", "sparse_copy", *sorted(ON_ACCELERATORS)])
def test_functions_that_return_codes_list_them(name: str) -> None:
    listed = re.findall(r"(?<![\d-])(-\d{4})\b", inspect.getdoc(getattr(offload, name)) or "")
    assert listed
    assert {int(code) for code in listed} <= {code.value for code in Code}
    assert inspect.signature(getattr(offload, name)).return_annotation == "int"
