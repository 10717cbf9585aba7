"""UCX, which is found at run time: where it may be, and which one this process has."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NamedTuple

from memfabric_hybrid import _native, settings
from memfabric_hybrid.errors import FabricError

PACKAGE = "libucx"  # what the wheels libucx-cu12, libucx-cu13 … install; they run without CUDA, and have no RDMA


class UcxStatus(NamedTuple):
    """Which UCX is loaded, or the sentence why none is and what to install."""

    loaded: bool
    path: str = ""
    version: str = ""
    obstacle: str = ""


def load() -> UcxStatus:
    """Load UCX unless this process has it. Never raises: whoever needs it says what for."""
    try:
        path, version = _native._load_ucx(settings.text(settings.UCX_LIBRARY), wheel_library())
    except FabricError as error:
        return UcxStatus(False, obstacle=str(error))
    return UcxStatus(True, path, version)


def status() -> UcxStatus:
    """What this process has of UCX by now; loads nothing."""
    found = _native._ucx()
    return UcxStatus(False, obstacle="UCX was not needed yet") if found is None else UcxStatus(True, *found)


def wheel_library() -> str:
    """The libucp of the Python package; "" if it is not installed. Does not import it."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        library = Path(folder, "lib", "libucp.so.0")
        if library.exists():
            return str(library)
    return ""
