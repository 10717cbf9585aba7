"""The name of the first release: `import mf_smem` gives the module `memfabric_hybrid` itself, not a copy.

Owns the alias only. Submodules (`import mf_smem.bm`) are the originals too: a second copy of one would have its own
state and would hide the first one behind the package's attribute.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

import memfabric_hybrid

if TYPE_CHECKING:
    from memfabric_hybrid import *  # noqa: F403


class _AliasImporter(MetaPathFinder, Loader):
    """Answers `mf_smem.x.y` with the module `memfabric_hybrid.x.y`."""

    prefix = f"{__name__}."

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.startswith(self.prefix) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        original = importlib.import_module(f"memfabric_hybrid.{spec.name.removeprefix(self.prefix)}")
        spec.loader_state = original.__spec__
        return original

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just put the alias's spec on the original, which has run already.
        alias = module.__spec__
        assert alias is not None
        module.__spec__ = alias.loader_state


sys.meta_path.insert(0, _AliasImporter())
sys.modules[__name__] = memfabric_hybrid
