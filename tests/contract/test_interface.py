"""The code against the documented interface: every name, parameter, default, value, limit and code."""

from __future__ import annotations

import inspect
import operator
import pydoc
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import _native, bm, errors
from support import interface as documented

pytestmark = pytest.mark.usefixtures("everything_off")

RETURNS_CODES = re.compile(r"(?<![\d-])(0|-\d{4}|-1)\b")


def found(path: str) -> Any:
    return operator.attrgetter(path)(mf)


def parameters_of(function: Any) -> dict[str, Any]:
    """Name → default, of Python functions and of native ones, whose docstrings begin with their signature."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        line = (inspect.getdoc(function) or "").splitlines()[0]
        namespace: dict[str, Any] = {}
        exec(f"from __future__ import annotations\ndef {line}: ...", namespace)
        signature = inspect.signature(namespace[function.__name__])
    return {
        name: documented.REQUIRED if parameter.default is parameter.empty else parameter.default
        for name, parameter in signature.parameters.items()
        if name != "self"
    }


def same_defaults(actual: dict[str, Any], expected: dict[str, Any]) -> bool:
    return list(actual.items()) == list(expected.items())


# ---- names ----------------------------------------------------------------------------------------------------------


def test_public_names_of_the_package() -> None:
    expected = set(documented.TOP_LEVEL_FUNCTIONS) | documented.TOP_LEVEL_OTHERS | documented.BEYOND_THE_DOCUMENTS
    assert set(mf.__all__) == expected
    assert sorted(mf.__all__, key=lambda name: (not name[0].isupper(), name)) == mf.__all__
    for name in mf.__all__:
        assert getattr(mf, name) is not None


def test_public_names_of_big_memory() -> None:
    assert set(bm.__all__) == set(documented.BM_FUNCTIONS) | documented.BM_CLASSES
    for name in bm.__all__:
        assert getattr(bm, name) is not None


def test_nothing_else_looks_public() -> None:
    """Modules of the package are visible by nature; every other public name must be in `__all__`."""
    for module in (mf, bm):
        for name, value in vars(module).items():
            if name.startswith("_") or name in module.__all__ or isinstance(value, types.ModuleType):
                continue
            home = getattr(value, "__module__", None)
            assert home != module.__name__, f"{module.__name__}.{name} is not in __all__"


def test_first_name_of_the_package() -> None:
    import mf_smem

    assert mf_smem is mf
    assert mf_smem.bm is bm


def test_version() -> None:
    assert mf.__version__.startswith("1.3.")


# ---- signatures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", documented.TOP_LEVEL_FUNCTIONS)
def test_signatures_of_the_package(name: str) -> None:
    assert same_defaults(parameters_of(getattr(mf, name)), documented.TOP_LEVEL_FUNCTIONS[name])


@pytest.mark.parametrize("name", documented.BM_FUNCTIONS)
def test_signatures_of_big_memory(name: str) -> None:
    assert same_defaults(parameters_of(getattr(bm, name)), documented.BM_FUNCTIONS[name])


@pytest.mark.parametrize("name", documented.BIG_MEMORY)
def test_signatures_of_the_pool(name: str) -> None:
    expected = dict(documented.BIG_MEMORY[name])
    actual = parameters_of(getattr(bm.BigMemory, name))
    if name == "extend_local_mem":  # in the documents a parameter with a default precedes one without
        assert actual.pop("size") == 0, "0 is refused, so it is required in effect"
        expected.pop("size")
    assert same_defaults(actual, expected)


def test_group_event_handler_takes_one_function() -> None:
    assert len(parameters_of(bm.BigMemory.set_group_event_handler)) == 1


def test_defaults_of_the_configuration() -> None:
    config = bm.BmConfig()
    for name, default in documented.BM_CONFIG.items():
        assert getattr(config, name) == default
        assert type(getattr(config, name)) is type(default)
    fields = {name for name in dir(config) if not name.startswith("_") and not callable(getattr(config, name))}
    assert fields == set(documented.BM_CONFIG)
    assert callable(config.set_nic)


# ---- enums and codes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", documented.ENUMS)
def test_enums(path: str) -> None:
    enum, values, aliases = found(path), documented.ENUMS[path], documented.ALIASES.get(path, {})
    members = dict(enum.__members__)
    assert set(members) == set(values) | set(aliases)
    for name, value in values.items():
        member = members[name]
        assert (member.name, member.value, int(member)) == (name, value, value)
        assert operator.index(member) == value
        assert enum(value) is member
    for alias, name in aliases.items():
        assert members[alias] is members[name]


def test_op_types_are_bits() -> None:
    for enum in (bm.BmDataOpType, mf.TransDataOpType):
        assert int(enum.SDMA | enum.HOST_SHM) == 33
        assert getattr(enum, "NO_SUCH_TYPE", None) is None, "newest clients look names up like this"


def test_codes() -> None:
    assert {code.name: code.value for code in errors.Code} == documented.CODES


@pytest.mark.parametrize(("path", "arguments", "answer"), documented.WITHOUT_INITIALIZE)
def test_answers_without_initialize(path: str, arguments: tuple[Any, ...], answer: Any) -> None:
    assert found(path)(*arguments) == answer
    failed = isinstance(answer, int) and answer != 0
    assert bool(mf.get_last_err_msg()) == failed


def test_tls_that_cannot_be_used_fails_at_the_call() -> None:
    assert mf.set_conf_store_tls(True, "tlsCaPath: /nowhere") == -2000
    assert "tlsCaFile and tlsCert must be given" in mf.get_and_clear_last_err_msg()
    assert mf.set_conf_store_tls(True, "tlsCaPath: /nowhere; tlsCaFile: ca.pem; tlsCert: /nowhere/cert.pem") == -2000
    assert "CA file /nowhere/ca.pem cannot be read" in mf.get_and_clear_last_err_msg()
    assert mf.set_conf_store_tls_key("key", "pass", lambda cipher: cipher) == -2000
    assert "it is no PEM key, or its passphrase is another" in mf.get_and_clear_last_err_msg()


def test_paths() -> None:
    package = Path(_native.__file__).parent  # editable installations keep the Python files elsewhere
    assert mf.get_include_path() == str(package / "include")
    assert mf.get_lib_path() == str(package / "lib")
    assert (package / "include" / "smem" / "device" / "smem_shm_aicore_base_api.h").is_file()


# ---- limits ---------------------------------------------------------------------------------------------------------


def test_limits() -> None:
    from memfabric_hybrid.address_space import layout
    from memfabric_hybrid.store import limits
    from memfabric_hybrid.transports import nic, routes

    assert _native.MAX_RANKS == 1024
    assert layout.MAX_DRAM == 2 << 40
    assert layout.MAX_HBM == 64 << 30
    assert layout.RANGE_TOTAL == 64 << 40
    assert layout.GRANULE == 2 << 20
    assert limits.MAX_KEY_BYTES == 1024
    assert limits.MAX_VALUE_BYTES == 64 << 20
    assert limits.MAX_GATHER_BYTES == 65536
    assert _native.MAX_CONTEXT_BYTES == 65536
    assert _native.MAX_SUBGROUP_NAME_BYTES == 63
    assert _native.DEVICE_OBJECTS == 64
    assert routes.MAX_TAG == 30
    assert routes.MAX_TAG_OP_INFO == 255
    assert nic.MAX_CHARACTERS == 63


# ---- the manual -----------------------------------------------------------------------------------------------------


def public_callables() -> Iterator[tuple[str, Any]]:
    for name in mf.__all__:
        yield name, getattr(mf, name)
    for name in bm.__all__:
        yield f"bm.{name}", getattr(bm, name)
    for owner in (bm.BigMemory, bm.BmConfig, mf.Stream):
        for name in dir(owner):
            if not name.startswith("_"):
                yield f"{owner.__name__}.{name}", inspect.getattr_static(owner, name)


def test_every_public_name_has_a_docstring() -> None:
    fields = {f"BmConfig.{name}" for name in documented.BM_CONFIG}  # described in the docstring of the class
    bare = [path for path, value in public_callables() if path not in fields and not inspect.getdoc(value)]
    assert bare == []
    assert all(name in (bm.BmConfig.__doc__ or "") for name in documented.BM_CONFIG)


def test_functions_that_return_codes_list_them() -> None:
    codes = [
        *(f"{name}" for name in documented.TOP_LEVEL_FUNCTIONS if name not in ("uninitialize",) and "get_" not in name),
        "bm.initialize",
        "bm.update_store_url",
        *(
            f"bm.BigMemory.{name}"
            for name in ("join", "leave", "extend_local_mem", "register", "unregister", "copy_data", "copy_data_batch",
                         "copy_data_2d", "wait")
        ),
        "Stream.wait",
    ]  # fmt: skip
    for path in codes:
        text = inspect.getdoc(found(path)) or ""
        listed = set(RETURNS_CODES.findall(text))
        assert listed, f"{path} does not say which codes it returns"
        assert {int(code) for code in listed} <= set(documented.CODES.values()), path


def test_help_is_a_manual() -> None:
    manual = pydoc.plain(pydoc.render_doc(mf))
    for name in mf.__all__:
        assert name in manual, f"help(memfabric_hybrid) does not mention {name}"
    for name, code in documented.CODES.items():
        assert str(code) in manual
        assert name in manual
    manual = pydoc.plain(pydoc.render_doc(bm))
    for name in (*bm.__all__, *documented.BIG_MEMORY, *documented.BM_CONFIG):
        assert name in manual, f"help(memfabric_hybrid.bm) does not mention {name}"
    for enum in ("BmCopyType", "BmDataOpType", "BmMemType", "BmGroupEvent"):
        for name in getattr(bm, enum).__members__:
            assert name in manual
