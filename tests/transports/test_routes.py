"""Route decisions: which operation types exist here, what tags allow, and the reason when nothing does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfabric_hybrid.errors import InvalidParam, NoResources
from memfabric_hybrid.transports.op_types import MAPPED, BmDataOpType
from memfabric_hybrid.transports.routes import (
    TransferRoutes,
    check_op_type,
    check_tag,
    obstacle_between,
    parse_rules,
    transfer_routes,
)

SDMA, SHM, TCP = BmDataOpType.SDMA, BmDataOpType.HOST_SHM, BmDataOpType.HOST_TCP


@given(st.one_of(st.integers(0, 255), st.integers(0, 1 << 32)))
def test_every_op_type_is_accepted_or_refused_with_its_reason(op_type: int) -> None:
    if op_type == 0 or op_type > 255:
        with pytest.raises(InvalidParam, match=f"{op_type:#x}"):
            check_op_type(op_type)
    elif op_type & MAPPED:
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


@pytest.mark.parametrize(
    ("own", "peer", "op_type", "rules", "named"),
    [
        ("", "", SDMA, "", None),
        ("a", "b", SDMA, "", None),
        ("a", "b", SDMA, "a:HOST_SHM:b", None),
        ("b", "a", SDMA, "a:HOST_SHM:b", None),
        ("a", "a", SDMA, "a:HOST_SHM:b", None),
        ("a", "", SDMA, "a:HOST_TCP:b", None),
        ("", "b", SDMA, "a:HOST_TCP:b", None),
        ("a", "b", SDMA, "a:HOST_TCP:b,a:DEVICE_SDMA:b", None),
        ("a", "c", SDMA, "a:HOST_SHM:b", ["'a'", "'c'", "no rule"]),
        ("a", "b", SDMA, "a:HOST_TCP:b", ["'b'", "HOST_TCP"]),
        ("a", "a", SDMA, "a:HOST_URMA:a", ["HOST_URMA"]),
        ("", "", TCP, "", ["HOST_TCP"]),
    ],
)
def test_obstacles(own: str, peer: str, op_type: int, rules: str, named: list[str] | None) -> None:
    obstacle = obstacle_between(own, peer, op_type, parse_rules(rules))
    if named is None:
        assert obstacle is None
    else:
        assert obstacle is not None
        for part in named:
            assert part in obstacle


tags = st.sampled_from(["", "a", "b", "c"])
operations = st.sampled_from(["HOST_SHM", "HOST_TCP", "DEVICE_SDMA", "HOST_URMA"])
rule_lists = st.lists(st.tuples(st.sampled_from("abc"), operations, st.sampled_from("abc")), max_size=4)


@given(tags, tags, rule_lists)
def test_both_sides_decide_alike(one: str, other: str, items: list[tuple[str, str, str]]) -> None:
    rules = parse_rules(",".join(":".join(item) for item in items))
    assert (obstacle_between(one, other, SDMA, rules) is None) == (obstacle_between(other, one, SDMA, rules) is None)


@pytest.mark.parametrize(
    ("op_type", "host", "network"),
    [(SDMA, True, True), (SHM, True, False), (TCP, False, True), (SHM | TCP, True, True),
     (BmDataOpType.DEVICE_RDMA, True, True), (TCP | BmDataOpType.HOST_RDMA, False, True)],
)  # fmt: skip
def test_which_ways_transfers_may_go(op_type: BmDataOpType, host: bool, network: bool) -> None:
    assert transfer_routes(op_type) == TransferRoutes(host, network)


@pytest.mark.parametrize("op_type", [BmDataOpType.HOST_RDMA, BmDataOpType.HOST_URMA])
def test_transfers_without_any_way_say_why(op_type: BmDataOpType) -> None:
    with pytest.raises(NoResources, match=op_type.name):
        transfer_routes(op_type)
    with pytest.raises(InvalidParam, match="data_op_type"):
        transfer_routes(0)
