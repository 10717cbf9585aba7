"""C and C++ programs: compiled as a user would compile them, against what is installed."""

from __future__ import annotations

import hashlib
import os
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import memfabric_hybrid as mf

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "capi" / "programs"
EXAMPLES = ROOT / "examples" / "c"
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic")
LANGUAGES = {"c11": ("-x", "c", "-std=c11", "-D_POSIX_C_SOURCE=200809L"), "c++17": ("-x", "c++", "-std=c++17")}
DRIVERS = {"gcc": {"c11": "gcc", "c++17": "g++"}, "clang": {"c11": "clang", "c++17": "clang++"}}
BUILDS = [(compiler, language) for compiler in DRIVERS for language in LANGUAGES]
DEADLINE_S = 60.0


def library() -> Path:
    return Path(mf.get_lib_path()) / "libmf_smem.so"


def has(compiler: str) -> bool:
    return shutil.which(DRIVERS[compiler]["c++17"]) is not None


def compile_program(
    source: Path, folder: Path, language: str = "c11", compiler: str = "gcc", flags: Sequence[str] = (), *,
    linked: bool = True, with_sources: Sequence[Path] = (),
) -> Path:  # fmt: skip
    """The program's path. One that was compiled there before, in the same way, is used again.

    `with_sources` are of C++, whatever the language of the program.
    """
    key = hashlib.sha256(repr((source, language, compiler, flags, linked)).encode()).hexdigest()[:8]
    target = folder / f"{source.stem}-{key}"
    if target.exists():
        return target
    parts = [str(_compiled_part(each, folder, key, compiler, flags)) for each in with_sources]
    folders = f"-L{mf.get_lib_path()}", f"-Wl,-rpath,{mf.get_lib_path()}"
    command = [
        DRIVERS[compiler][language], *LANGUAGES[language], *WARNINGS, "-g", *flags, f"-I{mf.get_include_path()}",
        f"-I{PROGRAMS}", str(source), "-x", "none", *parts, "-o", str(target), *folders,
        *(("-lmf_smem",) if linked else ()), "-lpthread", "-ldl",
    ]  # fmt: skip
    _run_compiler(command)
    return target


def _compiled_part(source: Path, folder: Path, key: str, compiler: str, flags: Sequence[str]) -> Path:
    target = folder / f"{source.stem}-{key}.o"
    language = "c++17"
    _run_compiler([
        DRIVERS[compiler][language], *LANGUAGES[language], *WARNINGS, "-g", *flags, f"-I{mf.get_include_path()}", "-c",
        str(source), "-o", str(target),
    ])  # fmt: skip
    return target


def _run_compiler(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


R = TypeVar("R", bound="Running")


class Running:
    """One process of a program; `end()` says what it did. Killed at the end of the block if it still runs."""

    def __init__(self, program: Path, *arguments: object, prefix: Sequence[str] = (), **environment: str) -> None:
        self.process = subprocess.Popen(
            [*prefix, str(program), *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
        )  # fmt: skip

    def __enter__(self: R) -> R:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=DEADLINE_S)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, timeout_s: float = DEADLINE_S) -> str:
        """Its standard output; fails with all it said if it did not end with 0."""
        output, errors = self.process.communicate(timeout=timeout_s)
        assert self.process.returncode == 0, (
            f"{self.process.args} ended with {self.process.returncode}\n{output}{errors}"
        )
        return output


def run(program: Path, *arguments: object, prefix: Sequence[str] = (), **environment: str) -> str:
    with Running(program, *arguments, prefix=prefix, **environment) as running:
        return running.end()


def run_together(
    *runs: tuple[Path, Sequence[object]], prefix: Sequence[str] = (), timeout_s: float = DEADLINE_S, **environment: str
) -> list[str]:
    """All at the same time: what each of them said."""
    started = [Running(program, *given, prefix=prefix, **environment) for program, given in runs]
    return finish_together(started, timeout_s)


def finish_together(started: Sequence[Running], timeout_s: float = DEADLINE_S) -> list[str]:
    """What each of them said, when all have ended. The first one that fails is not waited for by the others."""
    try:
        ends = [os.pidfd_open(each.process.pid) for each in started]
        try:
            deadline = time.monotonic() + timeout_s
            running = ends
            while running and not any(each.process.poll() for each in started):
                ended, _, _ = select.select(running, [], [], max(0.0, deadline - time.monotonic()))
                if not ended:
                    break
                running = [end for end in running if end not in ended]
        finally:
            for end in ends:
                os.close(end)
        failed = [each for each in started if each.process.poll()]
        return [each.end(timeout_s if each in failed else 1) for each in failed or started]
    finally:
        for each in started:
            each.__exit__()
