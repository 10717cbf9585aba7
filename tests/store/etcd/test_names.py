"""Names inside etcd: no instance, group or range is part of another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memfabric_hybrid.store.etcd.gateway.api import end_of
from memfabric_hybrid.store.etcd.names import Names, rank_of

texts = st.text(alphabet="a/%2F5~#é\0", min_size=1, max_size=6)


@given(texts, texts, st.integers(0, 1023))
def test_what_belongs_to_one_name_belongs_to_no_other(one: str, other: str, number: int) -> None:
    names = Names("instance")
    for inside, folder in (
        (names.rank(one, number), names.ranks(other)),
        (names.holder(one, number), names.holders(other)),
        (names.round(one, number), names.rounds),
    ):
        assert inside.startswith(names.root)
        if folder != names.rounds:
            assert inside.startswith(folder) == (one == other)
            assert (folder <= inside < end_of(folder)) == (one == other)
    assert rank_of(names.rank(one, number)) == number
    assert names.range_of(names.holder(one, number)) == one
    assert names.key_of(names.key(one)) == one


def test_instances_are_apart() -> None:
    roots = [Names(instance).root for instance in ("", "a", "a.b", "ab", "-")]
    assert len(set(roots)) == len(roots)
    assert not any(one.startswith(other) for one in roots for other in roots if one != other)
