"""Which route leads to a rank: a pure decision that always knows its reason.

There is no silent fall-back: where the allowed operation types name no route that exists, the sentence says so, at
create when no rank could ever be reached and at the copy when one rank cannot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from memfabric_hybrid.errors import InvalidParam, NoResources
from memfabric_hybrid.transports.op_types import ALL_BITS, MAPPED, RDMA, TCP, BmDataOpType
from memfabric_hybrid.transports.ucx_ends import NOT_OFFERED, UcxEnd, obstacle_between

MAX_TAG = 30
MAX_TAG_OP_INFO = 255
_TAG = re.compile(r"[A-Za-z0-9_]{1,30}")
# The documents' names for rules between tags; MTE has no bit of its own and is one more "best route".
_RULE_OPS: Mapping[str, BmDataOpType] = {
    "DEVICE_SDMA": BmDataOpType.SDMA,
    "DEVICE_MTE": BmDataOpType.SDMA,
    "DEVICE_RDMA": BmDataOpType.DEVICE_RDMA,
    "HOST_RDMA": BmDataOpType.HOST_RDMA,
    "HOST_TCP": BmDataOpType.HOST_TCP,
    "HOST_URMA": BmDataOpType.HOST_URMA,
    "HOST_SHM": BmDataOpType.HOST_SHM,
    "DEVICE_URMA": BmDataOpType.DEVICE_URMA,
    "DEVICE_UBOE": BmDataOpType.DEVICE_UBOE,
}
MAPPED_MEMORY, NETWORK, UCX, NONE = "mapped", "tcp", "ucx", "none"  # names of routes

Rules = Mapping[frozenset[str], BmDataOpType]


class TransferRoutes(NamedTuple):
    """Which ways the transfers of an engine may go."""

    host: bool  # memory of this host, mapped or through the kernel
    tcp: bool
    rdma: bool  # by UCX


class Route(NamedTuple):
    """Which way leads to a peer (mapped, peer_process, tcp or ucx, or none), and why that one."""

    name: str
    reason: str


def encrypted(route: Route) -> Route:
    """The same way with TLS."""
    return Route(route.name, f"{route.reason}; with TLS")


def check_op_type(op_type: int, ucx: UcxEnd = NOT_OFFERED) -> None:
    """InvalidParam for bits nobody knows, NoResources when no route of this machine is among them.

    `ucx` is what this process offers.
    """
    _check_bits(op_type)
    if op_type & (MAPPED | TCP) or (op_type & RDMA and not ucx.obstacle):
        return
    raise NoResources(f"no route for data_op_type {op_type:#x}: {_obstacle(BmDataOpType(op_type), ucx.obstacle)}")


def is_rdma_demanded(op_type: int) -> bool:
    """Nothing else is allowed to other hosts, nor on this one."""
    return bool(op_type & BmDataOpType.HOST_RDMA) and not op_type & (MAPPED | TCP)


def transfer_routes(op_type: int, ucx: UcxEnd = NOT_OFFERED) -> TransferRoutes:
    """The routes that the bits allow and this process has; raises what `check_op_type` does."""
    check_op_type(op_type, ucx)
    return TransferRoutes(bool(op_type & MAPPED), bool(op_type & TCP), bool(op_type & RDMA) and not ucx.obstacle)


def _check_bits(op_type: int) -> None:
    if op_type == 0 or op_type & ~ALL_BITS:
        raise InvalidParam(f"data_op_type is {op_type:#x}, expected one or more of the bits {ALL_BITS:#x}")


def check_tag(tag: str) -> None:
    if tag and not _TAG.fullmatch(tag):
        raise InvalidParam(f"tag {tag!r} may have letters, digits and underscores only, 1 to {MAX_TAG} of them")


def parse_rules(tag_op_info: str) -> Rules:
    """`tagA:OP:tagB,…` → allowed types between two tags. Symmetric; several rules for a pair are or-ed."""
    rules: dict[frozenset[str], BmDataOpType] = {}
    for item in tag_op_info.split(",") if tag_op_info else []:
        parts = item.strip().split(":")
        if len(parts) != 3 or not _TAG.fullmatch(parts[0]) or not _TAG.fullmatch(parts[2]):
            raise InvalidParam(f"tag_op_info item {item!r} is not of the form tag:OP:tag")
        if parts[1] not in _RULE_OPS:
            raise InvalidParam(f"tag_op_info item {item!r}: {parts[1]!r} is none of {', '.join(_RULE_OPS)}")
        pair = frozenset((parts[0], parts[2]))
        rules[pair] = rules.get(pair, BmDataOpType(0)) | _RULE_OPS[parts[1]]
    return rules


def route_between(
    own_tag: str,
    peer_tag: str,
    op_type: int,
    rules: Rules,
    *,
    same_host: bool,
    own_ucx: UcxEnd = NOT_OFFERED,
    peer_ucx: UcxEnd = NOT_OFFERED,
) -> Route:
    """Which way leads from one rank to another.

    Rules speak about pairs of tags. Ranks without a tag, and ranks of the same tag without a rule, use `op_type`. UCX
    comes before TCP where both ends have RDMA devices, and where HOST_RDMA is allowed.
    """
    allowed, among = BmDataOpType(op_type), "data_op_type"
    if rules and own_tag and peer_tag:
        rule = rules.get(frozenset((own_tag, peer_tag)))
        if rule is None and own_tag != peer_tag:
            sentence = f"no route between tag {own_tag!r} and tag {peer_tag!r}: tag_op_info has no rule for them"
            return Route(NONE, sentence)
        if rule is not None:
            allowed, among = rule, f"tag_op_info between {own_tag!r} and {peer_tag!r}"
    if same_host and allowed & MAPPED:
        return Route(MAPPED_MEMORY, "both are on one host")
    where = f"{among} allows nothing but the network" if same_host else "it is on another host"
    is_named = bool(allowed & BmDataOpType.HOST_RDMA)
    obstacle = obstacle_between(own_ucx, peer_ucx)
    if not obstacle and (is_named or (allowed & RDMA and own_ucx.is_rdma)):
        return Route(UCX, f"{where}: {own_ucx}")
    if allowed & TCP:
        is_missed = is_named or (allowed & RDMA and (own_ucx.is_rdma or peer_ucx.is_rdma))
        return Route(NETWORK, f"{where}; not by RDMA: {obstacle}" if is_missed else where)
    if allowed & MAPPED and not is_named:
        return Route(NONE, f"it is on another host, and {among} allows memory of one host only")
    return Route(NONE, f"no route to it by {among} {int(allowed):#x}: {_obstacle(allowed, obstacle)}")


def _obstacle(allowed: BmDataOpType, no_rdma: str) -> str:
    sentences = []
    if allowed & BmDataOpType.HOST_RDMA:
        sentences.append(f"HOST_RDMA is not possible: {no_rdma}")
    if allowed & BmDataOpType.HOST_URMA:
        sentences.append("HOST_URMA is not available on this machine")
    return "; ".join(sentences)
