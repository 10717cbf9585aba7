"""Environments of Python that have what the package needs, and not the package: tests install it there themselves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import memfabric_hybrid as mf
from memfabric_hybrid import _native

SOURCES = Path(mf.__file__).parent
# Of our own environment: tests do not load packages from anywhere.
DEPENDENCIES = ("msgspec", "numpy", "numpy.libs", "uvloop")
SITE_PACKAGES = f"lib/python3.{sys.version_info.minor}/site-packages"


def new_environment(folder: Path, python: str = sys.executable, *, pip: bool = False) -> Path:
    """Its site-packages. `python` has our version: the dependencies are compiled for it."""
    subprocess.run([python, "-m", "venv", *(() if pip else ("--without-pip",)), str(folder)], check=True)
    link_dependencies(folder / SITE_PACKAGES)
    return folder / SITE_PACKAGES


def install_package(packages: Path, libraries: Path) -> Path:
    """As an installation has it, with these libraries; its folder of libraries."""
    package = packages / "memfabric_hybrid"
    package.mkdir()
    for source in SOURCES.iterdir():
        if source.suffix in (".py", ".pyi", ".typed") or (source / "__init__.py").exists():
            (package / source.name).symlink_to(source)
    shutil.copy(_native.__file__, package)
    (package / "lib").mkdir()
    for library in libraries.glob("*.so*"):
        shutil.copy(library, package / "lib")
    return package / "lib"


def link_dependencies(packages: Path) -> None:
    ours = Path(sys.prefix) / SITE_PACKAGES
    for dependency in DEPENDENCIES:
        for found in (*ours.glob(dependency), *ours.glob(f"{dependency}-*.dist-info")):
            (packages / found.name).symlink_to(found)
