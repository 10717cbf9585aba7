"""The wheel in another environment, and .run files: installed, used from C and Python, side by side, removed."""

from __future__ import annotations

import faulthandler
import os
import platform
import subprocess
import zipfile
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from support.c_programs import PROGRAMS, ROOT
from support.environments import new_environment
from support.ports import reserved_port

ARCH = platform.machine()
VERSIONS = (mf.__version__, "1.3.92")
pytestmark = pytest.mark.timeout(600)


def sh(script: str, *, path: Path | None = None, **environment: str) -> str:
    """In a fresh shell, with `path` before all others; its output."""
    clean = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "VERSION")}
    found = f"{path}:{clean['PATH']}" if path is not None else clean["PATH"]
    done = subprocess.run(
        ["bash", "-euc", script], capture_output=True, text=True, timeout=500, cwd=ROOT,
        env={**clean, "PATH": found, **environment},
    )  # fmt: skip
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The .run files of two versions."""
    faulthandler.cancel_dump_traceback_later()  # on a busy machine building takes longer than any test may
    return [ROOT / sh("scripts/package", VERSION=version).splitlines()[-1] for version in VERSIONS]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The folder of an interpreter whose environment has what the package needs, and not the package."""
    new_environment(tmp_path / "venv", pip=True)
    return tmp_path / "venv" / "bin"


def use_c(compile_command: str, python: Path, tmp_path: Path, **environment: str) -> None:
    """`compile_command` makes `$out` of `$src`, which then runs."""
    out = tmp_path / "program"
    script = f"src={PROGRAMS}/threads.c out={out}\n{compile_command}\n"
    with reserved_port() as port:
        assert sh(f"{script}{out} tcp://127.0.0.1:{port}", path=python, **environment).endswith("good\n")


def used_by_python(python: Path) -> str:
    return sh("python -c 'from importlib import metadata; import memfabric_hybrid as mf; "
              'print(metadata.version("memfabric-hybrid"), mf.initialize())\'', path=python)  # fmt: skip


def test_wheel_in_another_environment(packages: list[Path], python: Path, tmp_path: Path) -> None:
    wheel = next(packages[0].parent.glob(f"memfabric_hybrid-{VERSIONS[0]}-*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("include/smem/host/smem_bm.h", "include/smem/device/lowlevel/smem_shm_aicore_base_api.h",
                 "lib/libmf_smem.so", "lib/libmf_smem.so.1", "lib/pkgconfig/mf_smem.pc", "set_env.sh",
                 "lib/cmake/mf_smem/mf_smem-config.cmake"):  # fmt: skip
        assert f"memfabric_hybrid/{name}" in names
    sh(f"pip install --quiet --no-deps --no-index {wheel}", path=python)
    folders = sh(
        "python -c 'import memfabric_hybrid as mf; print(mf.get_include_path(), mf.get_lib_path())'", path=python
    )
    include, lib = folders.split()
    assert include.startswith(str(python.parent))
    plain = f"gcc $src -I{PROGRAMS} -I{include} -L{lib} -lmf_smem -Wl,-rpath,{lib} -o $out"
    use_c(plain, python, tmp_path)
    use_c(
        f"gcc $src -I{PROGRAMS} $(PKG_CONFIG_PATH={lib}/pkgconfig pkg-config --cflags --libs mf_smem) -o $out",
        python, tmp_path,
    )  # fmt: skip
    build = tmp_path / "build"
    use_c(
        f"cmake -S {PROGRAMS}/cmake_user -B {build} -DCMAKE_PREFIX_PATH={Path(lib).parent} >/dev/null\n"
        f"cmake --build {build} >/dev/null\ncp {build}/user $out",
        python, tmp_path,
    )  # fmt: skip


def test_run_files(packages: list[Path], python: Path, tmp_path: Path) -> None:
    place = tmp_path / "installed"
    root = place / "mxc" / "memfabric_hybrid"
    compile_command = (
        f"source {root}/set_env.sh\nhome=$MEMFABRIC_HYBRID_HOME_PATH/{ARCH}-linux\n"
        f"gcc $src -I{PROGRAMS} -I$home/include -I$home/include/smem/host -L$home/lib64 -lmf_smem -o $out"
    )
    for version, package, dashes in zip(VERSIONS, packages, ("", "--"), strict=True):
        said = sh(f"cd {tmp_path} && bash {package} {dashes} --install-path={place.name}", path=python)
        assert f"now: source {root}/set_env.sh" in said
        assert os.readlink(root / "latest") == version
        inside = {path.name for path in (root / version).iterdir()}
        assert inside == {f"{ARCH}-linux", "uninstall.sh", "version.info"}
        assert {path.name for path in (root / version / f"{ARCH}-linux").iterdir()} == {"include", "lib64", "whl"}
        assert f"version={version}\n" in (root / version / "version.info").read_text()
        printed = sh(f"source {root}/set_env.sh; echo $MEMFABRIC_HYBRID_HOME_PATH", path=python)
        assert printed.splitlines()[-1] == str(root / "latest")
        use_c(compile_command, python, tmp_path)
        assert used_by_python(python) == f"{version} 0\n"
    assert {path.name for path in root.iterdir()} == {*VERSIONS, "latest", "set_env.sh"}
    with pytest.raises(AssertionError, match="Python has imported another installation of memfabric_hybrid"):
        sh(f"LD_LIBRARY_PATH={root}/{VERSIONS[0]}/{ARCH}-linux/lib64 {tmp_path}/program tcp://127.0.0.1:1", path=python)
    with pytest.raises(AssertionError, match="is there already"):
        sh(f"bash {packages[0]} -- --install-path={place}", path=python)

    sh(f"{root}/{VERSIONS[1]}/uninstall.sh", path=python)
    assert os.readlink(root / "latest") == VERSIONS[0]
    use_c(compile_command, python, tmp_path)
    assert used_by_python(python) == f"{VERSIONS[0]} 0\n"
    sh(f"{root}/{VERSIONS[0]}/uninstall.sh", path=python)
    assert not list(place.iterdir())
    gone = sh("python -c 'import importlib.util; print(importlib.util.find_spec(\"memfabric_hybrid\"))'", path=python)
    assert gone == "None\n"


def test_a_run_file_that_pip_refuses(packages: list[Path], python: Path, tmp_path: Path) -> None:
    """As that of Debian's and Ubuntu's own Python does: all or nothing, and how to get it."""
    with pytest.raises(AssertionError, match=r"PIP_BREAK_SYSTEM_PACKAGES=1(.|\n)*was not installed"):
        sh(f"bash {packages[0]} --install-path={tmp_path}/nothing", path=python, PIP_REQUIRE_HASHES="1")
    assert not list((tmp_path / "nothing").iterdir())
