"""smem_trans.h: Transfer. Between smem_trans_init and smem_trans_uninit there may be engines."""

from __future__ import annotations

from collections.abc import Sequence

from memfabric_hybrid import logs
from memfabric_hybrid.api import arguments
from memfabric_hybrid.capi_bridge import c_functions, tls
from memfabric_hybrid.capi_bridge.answers import Answer, c_call, refused, utf8
from memfabric_hybrid.capi_bridge.objects import Objects
from memfabric_hybrid.errors import InvalidParam, NotInit, TimedOut
from memfabric_hybrid.machine import forks
from memfabric_hybrid.transfer import TransferEngine
from memfabric_hybrid.transports.op_types import TransDataOpType

log = logs.get(__name__)
SENDER, BOTH = 1, 3  # roles are 0..BOTH
_engines = Objects[TransferEngine]("transfer engine")
_is_initialised = False


def _in_forked_child() -> None:
    global _is_initialised
    _is_initialised = False


forks.in_child(_in_forked_child)


def _check_initialised() -> None:
    forks.notice()
    if not _is_initialised:
        raise NotInit("Transfer is not initialised in this process: call smem_trans_init() first")


def _engine(handle: int) -> TransferEngine:
    _check_initialised()
    return _engines.get(handle)


def _end(engine: TransferEngine) -> None:
    """Without another call of its callback: the program may free what that works with."""
    try:
        engine.set_peer_down_callback(None)
    except TimedOut as blocked:
        log.warning("%s", blocked)
    engine.destroy()


def _check_config(role: int, init_timeout: int) -> None:
    if not 0 <= role <= BOTH:
        raise InvalidParam(f"role is {role}, expected 0..{BOTH}")
    if init_timeout == 0:
        raise InvalidParam(f"initTimeout is 0 s, expected 1..{arguments.U32_MAX}")


@c_call
def trans_refuse(call: str, handle: int) -> Answer:
    return refused(call, _engine, handle)


@c_call
def trans_config_init() -> Answer:
    return 0, SENDER, 120, arguments.U32_MAX, 0, int(TransDataOpType.SDMA)


@c_call
def trans_init(role: int, init_timeout: int) -> Answer:
    global _is_initialised
    forks.notice()
    _check_config(role, init_timeout)
    _is_initialised = True
    return 0


@c_call
def trans_uninit(flags: int) -> Answer:
    global _is_initialised
    forks.notice()
    _is_initialised = False  # first: a create that comes too late to be in the table sees this
    for engine in _engines.take_all():
        _end(engine)
    return 0


@c_call
def trans_create(
    handle: int,
    store_url: str | None,
    unique_id: str,
    role: int,
    init_timeout: int,
    device_id: int,
    op_type: int,
    nic: str,
    data_tls: Sequence[str],
) -> Answer:
    _check_initialised()
    _check_config(role, init_timeout)
    tls.use_for_data(data_tls)
    if op_type < 0:
        raise InvalidParam(f"dataOpType is {op_type}, expected bits of smem_bm_data_op_type")
    utf8("uniqueId", unique_id)
    engine = TransferEngine()
    # C programs start stores themselves: the role is never the one that does.
    code = engine.initialize(store_url, unique_id, "Prefill", device_id, op_type, store_server_role="Decode", nic=nic)
    if code != 0:
        return code
    _engines.add(handle, engine)
    if not _is_initialised:  # meanwhile, by a thread that did not see this engine
        _engines.remove(handle)
        engine.destroy()
        raise NotInit("Transfer was uninitialised while smem_trans_create() opened an engine")
    return 0, engine


@c_call
def trans_destroy(handle: int, flags: int) -> Answer:
    engine = _engine(handle)
    _engines.remove(handle)
    _end(engine)
    return 0


@c_call
def trans_set_peer_down_callback(handle: int, address: int, user_data: int) -> Answer:
    engine = _engine(handle)
    engine.set_peer_down_callback(c_functions.peer_down_callback(address, user_data) if address else None)
    return 0
