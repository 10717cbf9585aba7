"""A program that runs a store and nothing else; the target of `Cluster`."""

from __future__ import annotations

import memfabric_hybrid as mf


def serve(url: str) -> None:
    code = mf.create_config_store(url)
    assert code == 0, mf.get_and_clear_last_err_msg()
