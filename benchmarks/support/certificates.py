"""Certificates for a run: an authority and a member, made with the system's `openssl`."""

from __future__ import annotations

import subprocess
from pathlib import Path


def info(folder: Path) -> str:
    """The text for `MF_CONFIG_STORE_TLS_INFO`; all files are in the folder."""
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    _openssl(folder, "req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=benchmark")
    _openssl(folder, "req", *new_key, "-keyout", "member.key", "-out", "member.csr", "-subj", "/CN=member")
    _openssl(
        folder, "x509", "-req", "-in", "member.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out",
        "member.pem",
    )  # fmt: skip
    key, certificate = folder / "member.key", folder / "member.pem"
    return f"tlsCaPath: {folder}; tlsCaFile: ca.pem; tlsCert: {certificate}; tlsPk: {key}"


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)
