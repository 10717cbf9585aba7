"""What a package index shows: no link of README leads nowhere, and the metadata say where the project is."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import memfabric_hybrid as mf

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
HOME = "https://home.example/project"


@pytest.fixture
def for_index() -> ModuleType:
    spec = importlib.util.spec_from_file_location("for_index", ROOT / "packaging" / "for_index.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def targets(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]*)\)", text)


def test_links_lead_to_the_files_of_that_version(for_index: ModuleType) -> None:
    text = for_index.readme((ROOT / "README.md").read_text(encoding="utf-8"), HOME, "1.2.3")
    prefix = f"{HOME}/blob/v1.2.3/"
    assert f"{prefix}docs/quickstart.md" in targets(text)
    for target in targets(text):
        assert target.startswith(prefix), target
        assert (ROOT / target.removeprefix(prefix).partition("#")[0]).exists(), target


def test_without_a_home_there_are_no_links(for_index: ModuleType) -> None:
    text = for_index.readme((ROOT / "README.md").read_text(encoding="utf-8"), "", "1.2.3")
    assert targets(text) == []
    assert "quickstart.md" in text


def test_links_to_elsewhere_stay(for_index: ModuleType) -> None:
    assert for_index.readme("[a](https://b.example/c) [d](e.md#f)", HOME, "1") == (
        f"[a](https://b.example/c) [d]({HOME}/blob/v1/e.md#f)"
    )


@pytest.mark.parametrize("home", ["", HOME + "/"])
def test_the_metadata_name_the_home(for_index: ModuleType, tmp_path: Path, home: str) -> None:
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for_index.main(tmp_path, "1.2.3", home)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project.get("urls", {}).get("Homepage") == (HOME if home else None)
    assert all(url.startswith(HOME) for url in project.get("urls", {}).values())


def test_the_script_finds_the_version() -> None:
    """As it does it itself: links without a version lead nowhere."""
    script = (ROOT / "scripts" / "wheels").read_text(encoding="utf-8")
    (line,) = re.findall(r"^version_of_package=.*$", script, re.MULTILINE)
    line = line.replace(".venv/bin/python", shlex.quote(sys.executable))
    command = ["bash", "-euc", f'{line}; echo "$version_of_package"']
    environment = {name: value for name, value in os.environ.items() if name != "VERSION"}
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == mf.__version__
    environment["VERSION"] = "9.8.7"
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "9.8.7"
