"""Which routes the transfers of an engine may take, and what this process has for them."""

from __future__ import annotations

import functools
from typing import NamedTuple

from memfabric_hybrid import _native
from memfabric_hybrid.errors import NotConnected
from memfabric_hybrid.store.protection import plain_data
from memfabric_hybrid.store.protection.data_tls import DataTls
from memfabric_hybrid.transports import nic as nic_choice
from memfabric_hybrid.transports import ucx_offer
from memfabric_hybrid.transports.routes import NONE, UCX, encrypted, route_between, transfer_routes
from memfabric_hybrid.transports.ucx_ends import UcxEnd
from memfabric_hybrid.transports.ucx_offer import UcxOffer


class EngineRoutes(NamedTuple):
    """`kept`: what must live as long as the engine is open. `tls` is closed with it."""

    allowed: _native.RoutesAllowed
    data_place: _native.DataPlace
    ucx: _native.UcxUse
    tls: DataTls
    kept: UcxOffer


def open_routes(op_type: int, nic: str) -> EngineRoutes:
    """InvalidParam for values that mean nothing, NoResources if no route of this machine is allowed."""
    data_place = nic_choice.data_place(nic)
    tls = DataTls()
    try:
        offer = ucx_offer.make(op_type, must_encrypt=tls.is_on, nic=nic)
        end = offer.end
        allowed = transfer_routes(op_type, end)
        choose = functools.partial(network_route, op_type, end, tls.is_on)
        ucx = _native.UcxUse(offer.context, end.version, end.transports, end.devices, end.obstacle, choose)
        return EngineRoutes(_native.RoutesAllowed(*allowed), _native.DataPlace(*data_place), ucx, tls, offer)
    except BaseException:
        tls.close()
        raise


def network_route(
    op_type: int,
    own: UcxEnd,
    is_encrypted: bool,
    version: str,
    transports: str,
    devices: str,
    obstacle: str,
    same_host: bool,
) -> tuple[bool, str]:
    """Whether UCX leads to a peer with this end of it, otherwise TCP does; and why. NotConnected if nothing does."""
    peer = UcxEnd(version, transports, devices, obstacle)
    route = route_between("", "", op_type, {}, same_host=same_host, own_ucx=own, peer_ucx=peer)
    if route.name == NONE:
        raise NotConnected(route.reason)
    if is_encrypted:
        route = encrypted(route)
    elif not same_host:
        plain_data.mention("by UCX" if route.name == UCX else "over TCP")
    return route.name == UCX, route.reason
