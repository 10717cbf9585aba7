"""smem.h: what belongs to the process."""

from __future__ import annotations

from collections.abc import Sequence

import memfabric_hybrid as mf
from memfabric_hybrid import process
from memfabric_hybrid.api import boundary, failure_log
from memfabric_hybrid.capi_bridge import bm_calls, c_functions, shm_calls, tls, trans_calls
from memfabric_hybrid.capi_bridge.answers import Answer, c_call
from memfabric_hybrid.errors import NotExist
from memfabric_hybrid.store import parse_url
from memfabric_hybrid.store.server import hosting


@c_call
def init(flags: int) -> Answer:
    return mf.initialize(flags)


@c_call
def uninit() -> Answer:
    for end in (trans_calls.trans_uninit, shm_calls.shm_uninit, bm_calls.bm_uninit):  # their handles end as well
        end(0)
    mf.uninitialize()
    return 0


@c_call
def at_exit() -> Answer:
    process.at_exit()
    return 0


@c_call
def report(call: str, code: int, sentence: str) -> Answer:
    """A call that went straight to the core has failed."""
    failure_log.report(call, code, sentence)
    return 0


@c_call
def set_log_level(level: int) -> Answer:
    return mf.set_log_level(level)


@c_call
def set_extern_logger(address: int) -> Answer:
    return mf.set_extern_logger(c_functions.logger(address) if address else None)


@c_call
def create_config_store(url: str) -> Answer:
    return mf.create_config_store(url)


@c_call
def destroy_config_store(url: str) -> Answer:
    hosting.release(parse_url(url), "create_config_store")
    return 0


@c_call
def config_store_get_cluster_status() -> Answer:
    try:
        return 0, hosting.cluster_status().encode()
    except NotExist as missing:
        return int(boundary.record("smem_config_store_get_cluster_status", missing)), hosting.NO_STORES.encode()


@c_call
def set_conf_store_tls(enable: int, info: str) -> Answer:
    return mf.set_conf_store_tls(bool(enable), info)


@c_call
def set_config_store_tls_key(key: str, passphrase: str, decrypt: int) -> Answer:
    return tls.set_key(key, passphrase, c_functions.decrypting(decrypt) if decrypt else None)


@c_call
def set_ssl_option(enable: int, texts: Sequence[str]) -> Answer:
    return tls.use_option(texts) if enable else mf.set_conf_store_tls(False, "")
