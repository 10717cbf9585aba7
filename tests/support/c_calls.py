"""The programs that call every function of the C interface and check what it does: how each of them is run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import memfabric_hybrid as mf
from support.c_programs import PROGRAMS
from support.certificates import Authority
from support.ports import reserved_port

NAMES = ("process_calls", "bm_calls", "shm_calls", "trans_calls", "tls_calls")
PASSPHRASE = "a passphrase of the test suite"
Compile = Callable[..., Path]
Arguments = list[tuple[object, ...]]  # of each process that takes part


def compiled_program(compiled: Compile, name: str, **options: object) -> Path:
    parts = (PROGRAMS / "kernel_view.cpp",) if name == "shm_calls" else ()
    return compiled(f"{name}.c", with_sources=parts, **options)


@contextmanager
def prepared(name: str, folder: Path) -> Iterator[Arguments]:
    """What the program needs is there inside the block. `folder` is for files."""
    with ExitStack() as ports:
        addresses = [f"127.0.0.1:{ports.enter_context(reserved_port())}" for _ in range(2)]
        urls = [f"tcp://{address}" for address in addresses]
        if name == "process_calls":
            yield [(urls[0],)]
        elif name == "bm_calls":
            yield [(urls[0], urls[1])]
        elif name == "shm_calls":
            yield [(urls[0], rank) for rank in range(2)]
        elif name == "trans_calls":
            yield [(addresses[0], addresses[1])]
        else:
            assert name == "tls_calls"
            with _tls_store(urls[0], folder) as arguments:
                yield [arguments]


@contextmanager
def _tls_store(url: str, folder: Path) -> Iterator[tuple[object, ...]]:
    authority = Authority(folder)
    member = authority.issue("member", passphrase=PASSPHRASE)
    (folder / "backwards").write_text(PASSPHRASE[::-1])
    authorities = folder / "authorities"  # files of other kinds are none
    authorities.mkdir(exist_ok=True)
    (authorities / authority.file.name).write_bytes(authority.file.read_bytes())
    decrypter = folder / "decrypter.so"
    subprocess.run(["gcc", "-shared", "-fPIC", str(PROGRAMS / "decrypter.c"), "-o", str(decrypter)], check=True)
    assert mf.set_conf_store_tls(True, authority.info(authority.issue("store"))) == 0, mf.get_last_err_msg()
    try:
        assert mf.create_config_store(url) == 0, mf.get_last_err_msg()
        yield (
            url, authorities, authority.file.name, authority.crl, member.certificate, member.key,
            folder / "backwards", decrypter,
        )  # fmt: skip
    finally:
        mf.uninitialize()
        assert mf.set_conf_store_tls(False, "") == 0
