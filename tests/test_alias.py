"""`mf_smem`, the name of the first release, is the package itself: one module object, one state."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import pytest

import memfabric_hybrid


def test_alias_is_the_same_module_object() -> None:
    import mf_smem

    assert mf_smem is memfabric_hybrid
    assert sys.modules["mf_smem"] is memfabric_hybrid


def test_submodules_are_the_originals_and_keep_their_names() -> None:
    for found in pkgutil.iter_modules(memfabric_hybrid.__path__):
        if found.name.startswith("launch_"):
            continue  # programs, not modules to import
        original = importlib.import_module(f"memfabric_hybrid.{found.name}")
        assert importlib.import_module(f"mf_smem.{found.name}") is original
        assert original.__name__ == f"memfabric_hybrid.{found.name}"
        assert original.__spec__ is not None
        assert original.__spec__.name == f"memfabric_hybrid.{found.name}"
        assert getattr(memfabric_hybrid, found.name) is original


def test_unknown_submodule_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("mf_smem.no_such_module")
