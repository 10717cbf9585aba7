"""Route decisions: which operation types exist here, what tags allow, and the reason when nothing does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfabric_hybrid.errors import InvalidParam, NoResources
from memfabric_hybrid.transports.op_types import MAPPED, BmDataOpType, ShmDataOpType
from memfabric_hybrid.transports.routes import (
    Route,
    TransferRoutes,
    check_op_type,
    check_tag,
    parse_rules,
    route_between,
    transfer_routes,
)
from memfabric_hybrid.transports.ucx_ends import UcxEnd, obstacle_between

SDMA, SHM, TCP = BmDataOpType.SDMA, BmDataOpType.HOST_SHM, BmDataOpType.HOST_TCP


@given(st.one_of(st.integers(0, 255), st.integers(0, 1 << 32)))
def test_every_op_type_is_accepted_or_refused_with_its_reason(op_type: int) -> None:
    if op_type == 0 or op_type > 255:
        with pytest.raises(InvalidParam, match=f"{op_type:#x}"):
            check_op_type(op_type)
    elif op_type & (MAPPED | TCP):
        check_op_type(op_type)
    else:
        with pytest.raises(NoResources) as caught:
            check_op_type(op_type)
        for bit in BmDataOpType:
            assert ((bit.name or "") in str(caught.value)) == bool(op_type & bit)


@pytest.mark.parametrize("tag", ["", "a", "Z9_", "a" * 30])
def test_good_tags(tag: str) -> None:
    check_tag(tag)


@pytest.mark.parametrize("tag", [" ", "a b", "a-b", "a:b", "é", "a" * 31, "a\n"])
def test_bad_tags(tag: str) -> None:
    with pytest.raises(InvalidParam, match="30"):
        check_tag(tag)


def test_rules_are_symmetric_and_or_ed() -> None:
    rules = parse_rules("a:HOST_TCP:b, b:HOST_SHM:a,a:DEVICE_MTE:a")
    assert rules == {frozenset("ab"): TCP | SHM, frozenset("a"): SDMA}
    assert parse_rules("") == {}


@pytest.mark.parametrize(
    "name",
    ["DEVICE_SDMA", "DEVICE_RDMA", "HOST_RDMA", "HOST_TCP", "HOST_URMA", "HOST_SHM", "DEVICE_MTE", "DEVICE_URMA",
     "DEVICE_UBOE"],
)  # fmt: skip
def test_all_documented_operations_are_known(name: str) -> None:
    assert len(parse_rules(f"x:{name}:y")) == 1


@pytest.mark.parametrize(
    "info",
    ["a", "a:b", "a:HOST_SHM:b:c", "a:NOTHING:b", ":HOST_SHM:b", "a:HOST_SHM:", "a b:HOST_SHM:c", ",", "a:SDMA:b"],
)
def test_malformed_rules_name_the_item(info: str) -> None:
    with pytest.raises(InvalidParam, match="tag_op_info item"):
        parse_rules(info)


BETWEEN_A_AND_B = "tag_op_info between 'a' and 'b'"
ONE_HOST = Route("mapped", "both are on one host")
FAR = Route("tcp", "it is on another host")


@pytest.mark.parametrize(
    ("own", "peer", "op_type", "rules", "near", "far"),
    [
        ("", "", SDMA, "", ONE_HOST, FAR),
        ("a", "b", SDMA, "", ONE_HOST, FAR),
        ("a", "b", SDMA, "a:DEVICE_SDMA:b", ONE_HOST, FAR),
        ("b", "a", SHM, "a:DEVICE_SDMA:b", ONE_HOST, FAR),
        ("a", "a", SDMA, "a:HOST_SHM:b", ONE_HOST, FAR),
        ("a", "", SDMA, "a:HOST_TCP:b", ONE_HOST, FAR),
        ("", "b", SDMA, "a:HOST_TCP:b", ONE_HOST, FAR),
        ("a", "b", SDMA, "a:HOST_TCP:b,a:HOST_SHM:b", ONE_HOST, FAR),
        ("", "", TCP, "", Route("tcp", "data_op_type allows nothing but the network"), FAR),
        ("a", "b", SDMA, "b:HOST_TCP:a", Route("tcp", f"{BETWEEN_A_AND_B} allows nothing but the network"), FAR),
        ("", "", SHM, "", ONE_HOST,
         Route("none", "it is on another host, and data_op_type allows memory of one host only")),
        ("a", "b", SDMA, "a:HOST_SHM:b", ONE_HOST,
         Route("none", f"it is on another host, and {BETWEEN_A_AND_B} allows memory of one host only")),
    ],
)  # fmt: skip
def test_routes(own: str, peer: str, op_type: int, rules: str, near: Route, far: Route) -> None:
    parsed = parse_rules(rules)
    assert route_between(own, peer, op_type, parsed, same_host=True) == near
    assert route_between(own, peer, op_type, parsed, same_host=False) == far


RDMA = BmDataOpType.HOST_RDMA
IB = UcxEnd("1.18.0", "ib", "mlx5_0:1")
OVER_TCP = UcxEnd("1.18.0", "tcp", "eth0")
NO_DEVICE = UcxEnd(obstacle="there is no RDMA device")
BY_IB = Route("ucx", "it is on another host: UCX 1.18.0 over RDMA (mlx5_0:1)")
BY_UCX_OVER_TCP = Route("ucx", "it is on another host: UCX 1.18.0 over tcp (eth0), as MF_UCX_DEVICES says")
ONLY_NETWORK = "data_op_type allows nothing but the network"


@pytest.mark.parametrize(
    ("op_type", "own", "peer", "near", "far"),
    [
        (SDMA, IB, IB, ONE_HOST, BY_IB),
        (SDMA, OVER_TCP, OVER_TCP, ONE_HOST, FAR),
        (SDMA, NO_DEVICE, NO_DEVICE, ONE_HOST, FAR),
        (SDMA, IB, NO_DEVICE, ONE_HOST,
         Route("tcp", "it is on another host; not by RDMA: the other end says: there is no RDMA device")),
        (SDMA, NO_DEVICE, IB, ONE_HOST, Route("tcp", "it is on another host; not by RDMA: there is no RDMA device")),
        (SDMA | RDMA, OVER_TCP, OVER_TCP, ONE_HOST, BY_UCX_OVER_TCP),
        (SDMA | RDMA, NO_DEVICE, NO_DEVICE, ONE_HOST,
         Route("tcp", "it is on another host; not by RDMA: there is no RDMA device")),
        (SHM | RDMA, IB, IB, ONE_HOST, BY_IB),
        (SHM | RDMA, NO_DEVICE, IB, ONE_HOST,
         Route("none", "no route to it by data_op_type 0x22: HOST_RDMA is not possible: there is no RDMA device")),
        (TCP, IB, IB, Route("tcp", ONLY_NETWORK), FAR),
        (TCP | RDMA, IB, IB, Route("ucx", f"{ONLY_NETWORK}: UCX 1.18.0 over RDMA (mlx5_0:1)"), BY_IB),
        (SHM, IB, IB, ONE_HOST,
         Route("none", "it is on another host, and data_op_type allows memory of one host only")),
    ],
)  # fmt: skip
def test_routes_with_ucx(op_type: BmDataOpType, own: UcxEnd, peer: UcxEnd, near: Route, far: Route) -> None:
    assert route_between("", "", op_type, {}, same_host=True, own_ucx=own, peer_ucx=peer) == near
    assert route_between("", "", op_type, {}, same_host=False, own_ucx=own, peer_ucx=peer) == far


@pytest.mark.parametrize(
    ("peer", "named"),
    [
        (NO_DEVICE, "the other end says: there is no RDMA device"),
        (OVER_TCP, "give both the same kind of device"),
        (UcxEnd("1.22.0", "ib", "mlx5_0:1"), "here is UCX 1.18.0, there is UCX 1.22.0"),
    ],
)
@pytest.mark.parametrize("same_host", [True, False])
def test_rdma_that_is_demanded_is_never_replaced(peer: UcxEnd, named: str, same_host: bool) -> None:
    for one, other in ((IB, peer), (peer, IB)):
        route = route_between("", "", RDMA, {}, same_host=same_host, own_ucx=one, peer_ucx=other)
        assert route.name == "none"
        assert "HOST_RDMA is not possible" in route.reason
    assert named in route_between("", "", RDMA, {}, same_host=False, own_ucx=IB, peer_ucx=peer).reason


@pytest.mark.parametrize(
    ("one", "other", "fits"),
    [("1.13.1", "1.13.1", True), ("1.22.0", "1.22.3", True), ("1.13.1", "1.18.0", True), ("1.13.1", "1.22.0", False),
     ("1.19.0", "1.18.1", False), ("1.18.0", "2.18.0", False)],
)  # fmt: skip
def test_which_versions_understand_each_other(one: str, other: str, fits: bool) -> None:
    ends = UcxEnd(one, "ib", "mlx5_0:1"), UcxEnd(other, "ib", "mlx5_1:1")
    for own, peer in (ends, ends[::-1]):
        assert (obstacle_between(own, peer) == "") == fits


def test_what_this_process_offers_decides_at_create() -> None:
    check_op_type(RDMA, IB)
    with pytest.raises(NoResources, match="no route for data_op_type 0x2: HOST_RDMA is not possible: there is no RDMA"):
        check_op_type(RDMA, NO_DEVICE)
    check_op_type(RDMA | TCP, NO_DEVICE)


@pytest.mark.parametrize(("given", "meant"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 3), (7, 3)])
def test_heaps_speak_of_the_same(given: int, meant: int) -> None:
    assert int(ShmDataOpType(given).as_bm()) == meant


@pytest.mark.parametrize("same_host", [True, False])
@pytest.mark.parametrize(
    ("own", "peer", "rules", "named"),
    [
        ("a", "c", "a:HOST_SHM:b", ["'a'", "'c'", "no rule"]),
        ("a", "a", "a:HOST_URMA:a", ["HOST_URMA", "'a'"]),
        ("a", "b", "a:HOST_RDMA:b", ["HOST_RDMA", "'b'"]),
    ],
)
def test_where_nothing_leads(own: str, peer: str, rules: str, named: list[str], same_host: bool) -> None:
    route = route_between(own, peer, SDMA, parse_rules(rules), same_host=same_host)
    assert route.name == "none"
    for part in named:
        assert part in route.reason


tags = st.sampled_from(["", "a", "b", "c"])
operations = st.sampled_from(["HOST_SHM", "HOST_TCP", "DEVICE_SDMA", "HOST_URMA"])
rule_lists = st.lists(st.tuples(st.sampled_from("abc"), operations, st.sampled_from("abc")), max_size=4)


@given(tags, tags, rule_lists)
def test_both_sides_decide_alike(one: str, other: str, items: list[tuple[str, str, str]]) -> None:
    rules = parse_rules(",".join(":".join(item) for item in items))
    for same_host in (True, False):
        there = route_between(one, other, SDMA, rules, same_host=same_host)
        back = route_between(other, one, SDMA, rules, same_host=same_host)
        assert there.name == back.name


@pytest.mark.parametrize(
    ("op_type", "host", "tcp", "rdma"),
    [(SDMA, True, True, True), (SHM, True, False, False), (TCP, False, True, False), (SHM | TCP, True, True, False),
     (BmDataOpType.DEVICE_RDMA, True, True, True), (TCP | BmDataOpType.HOST_RDMA, False, True, True)],
)  # fmt: skip
def test_which_ways_transfers_may_go(op_type: BmDataOpType, host: bool, tcp: bool, rdma: bool) -> None:
    offered = UcxEnd("1.18.0", "ib", "mlx5_0:1")
    assert transfer_routes(op_type, offered) == TransferRoutes(host, tcp, rdma)
    assert transfer_routes(op_type, UcxEnd(obstacle="no device")) == TransferRoutes(host, tcp, False)


@pytest.mark.parametrize("op_type", [BmDataOpType.HOST_RDMA, BmDataOpType.HOST_URMA])
def test_transfers_without_any_way_say_why(op_type: BmDataOpType) -> None:
    with pytest.raises(NoResources, match=op_type.name):
        transfer_routes(op_type)
    with pytest.raises(InvalidParam, match="data_op_type"):
        transfer_routes(0)
