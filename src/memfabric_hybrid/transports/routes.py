"""Which route leads to a rank: a pure decision that always knows its reason.

There is no silent fall-back: where the allowed operation types name no route that exists, the sentence says so, at
create when no rank could ever be reached and at the copy when one rank cannot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from memfabric_hybrid.errors import InvalidParam, NoResources
from memfabric_hybrid.transports.op_types import ALL_BITS, MAPPED, TCP, BmDataOpType

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
_MISSING: Mapping[BmDataOpType, str] = {
    BmDataOpType.HOST_RDMA: "HOST_RDMA needs an RDMA device and this version has no RDMA engine",
    BmDataOpType.HOST_URMA: "HOST_URMA is not available on this machine",
}

MAPPED_MEMORY, NETWORK, NONE = "mapped", "tcp", "none"  # names of routes

Rules = Mapping[frozenset[str], BmDataOpType]


class TransferRoutes(NamedTuple):
    """Which ways the transfers of an engine may go."""

    host: bool  # memory of this host, mapped or through the kernel
    network: bool  # TCP


class Route(NamedTuple):
    """Which way leads to a peer (mapped, peer_process or tcp, or none), and why that one."""

    name: str
    reason: str


def check_op_type(op_type: int) -> None:
    """InvalidParam for bits nobody knows, NoResources when no route of this machine is among them."""
    _check_bits(op_type)
    if not op_type & (MAPPED | TCP):
        raise NoResources(f"no route for data_op_type {op_type:#x}: {_obstacle(BmDataOpType(op_type))}")


def transfer_routes(op_type: int) -> TransferRoutes:
    """The routes that the bits allow. InvalidParam for bits nobody knows, NoResources when there is no such route."""
    _check_bits(op_type)
    allowed = TransferRoutes(bool(op_type & MAPPED), bool(op_type & TCP))
    if not any(allowed):
        raise NoResources(f"no route for data_op_type {op_type:#x}: {_obstacle(BmDataOpType(op_type))}")
    return allowed


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


def route_between(own_tag: str, peer_tag: str, op_type: int, rules: Rules, *, same_host: bool) -> Route:
    """Which way leads from one rank to another.

    Rules speak about pairs of tags. Ranks without a tag, and ranks of the same tag without a rule, use `op_type`.
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
    if allowed & TCP:
        return Route(NETWORK, f"{among} allows nothing but the network" if same_host else "it is on another host")
    if allowed & MAPPED:
        return Route(NONE, f"it is on another host, and {among} allows memory of one host only")
    return Route(NONE, f"no route to it by {among} {int(allowed):#x}: {_obstacle(allowed)}")


def _obstacle(allowed: BmDataOpType) -> str:
    return "; ".join(sentence for bit, sentence in _MISSING.items() if allowed & bit)
