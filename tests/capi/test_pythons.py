"""The Pythons that people have, each with the package installed as they install it: a C program runs in that one, and
in no other that the shell may lead to.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import memfabric_hybrid as mf
from support import environments
from support.c_programs import run

Compile = Callable[..., Path]
PYTHON = f"python3.{sys.version_info.minor}"
LIBRARY = f"lib{PYTHON}.so.1.0"
DEBIANS = Path("/usr/bin") / PYTHON
DEBIANS_PACKAGES = Path("/usr/local/lib") / PYTHON / "dist-packages"
OTHERS_FIRST = os.environ["PATH"]  # the shell of somebody who has another environment

needs_debians = pytest.mark.skipif(
    not DEBIANS.exists() or not DEBIANS_PACKAGES.is_dir(), reason=f"needs Debian's {PYTHON}: it is not the system's"
)


class Found(NamedTuple):
    prefix: str
    base_prefix: str
    package: str
    library: str


def who_runs(
    compiled: Compile, url: str, packages: Path, *, path: str = OTHERS_FIRST, prefix: Sequence[str] = ()
) -> Found:
    """With the library of the package that is installed in `packages`."""
    libraries = packages / "memfabric_hybrid" / "lib"
    said = run(compiled("whose_python.c"), url, prefix=prefix, LD_LIBRARY_PATH=str(libraries), PATH=path)
    return Found(*said.splitlines())


def installed(packages: Path) -> Path:
    environments.install_package(packages, Path(mf.get_lib_path()))
    return packages


def with_dependencies(packages: Path) -> Path:
    packages.mkdir(parents=True)
    environments.link_dependencies(packages)
    return packages


def conda_like(prefix: Path) -> Path:
    """Conda's own is not to be had everywhere; this is its layout: everything of the interpreter below one folder that
    was never the place it was built for. Its site-packages.
    """
    ours = Path(sys.base_prefix)
    library = next(
        place / LIBRARY
        for place in (ours / "lib", Path(sysconfig.get_config_var("LIBDIR")))
        if (place / LIBRARY).exists()
    )
    for folder in ("bin", "conda-meta", "lib"):
        (prefix / folder).mkdir(parents=True)
    (prefix / "conda-meta" / "history").touch()
    shutil.copy(os.path.realpath(sys.executable), prefix / "bin" / PYTHON)
    for name in ("python3", "python"):
        (prefix / "bin" / name).symlink_to(PYTHON)
    shutil.copy(library, prefix / "lib")
    packages = with_dependencies(prefix / environments.SITE_PACKAGES)
    for part in Path(sysconfig.get_path("stdlib")).iterdir():
        if part.name != packages.name:
            (packages.parent / part.name).symlink_to(part)
    return packages


def test_an_interpreter_that_was_moved_with_all_it_has(compiled: Compile, tmp_path: Path, store_url: str) -> None:
    """As conda's."""
    prefix = tmp_path / "conda"
    found = who_runs(compiled, store_url, installed(conda_like(prefix)))
    assert found.prefix == found.base_prefix == str(prefix)
    assert found.library == str(prefix / "lib" / LIBRARY)
    assert found.package.startswith(str(prefix))


@needs_debians
def test_an_environment_of_debians(compiled: Compile, tmp_path: Path, store_url: str) -> None:
    packages = installed(environments.new_environment(tmp_path / "venv", str(DEBIANS)))
    found = who_runs(compiled, store_url, packages)
    assert (found.prefix, found.base_prefix) == (str(tmp_path / "venv"), "/usr")
    assert "/x86_64-linux-gnu/" in found.library or "/aarch64-linux-gnu/" in found.library
    assert found.package.startswith(str(tmp_path / "venv"))


@needs_debians
@pytest.mark.needs_root("it mounts a folder in the place of the system's, for one process")
def test_debians_own(compiled: Compile, tmp_path: Path, store_url: str) -> None:
    """`pip install` of root has it in /usr/local, where no interpreter is."""
    packages = installed(with_dependencies(tmp_path / "packages"))
    mounted = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    prefix = ("unshare", "--mount", "bash", "-c", mounted, "_", str(packages), str(DEBIANS_PACKAGES))
    found = who_runs(compiled, store_url, DEBIANS_PACKAGES, prefix=prefix)
    assert found.prefix == found.base_prefix == "/usr"
    assert found.package == str(DEBIANS_PACKAGES / "memfabric_hybrid")


@needs_debians
@pytest.mark.parametrize("folder", [f".local/lib/{PYTHON}/site-packages", "opt/target"])
def test_folders_that_no_interpreter_owns(compiled: Compile, tmp_path: Path, store_url: str, folder: str) -> None:
    """`pip install --user` and `--target`: the interpreter of the path is used, and looks there last."""
    packages = installed(with_dependencies(tmp_path / folder))
    found = who_runs(compiled, store_url, packages, path="/usr/bin:/bin")
    assert found.prefix == "/usr"
    assert found.package == str(packages / "memfabric_hybrid")
