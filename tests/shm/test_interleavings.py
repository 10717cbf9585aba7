"""Collectives, subgroups and deaths in any order: nothing hangs, and no rank gets the data of another round."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from support.ports import reserved_port
from support.workers import Cluster

Step = tuple[str, int]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("barrier"), st.just(0)),
        st.tuples(st.just("gather"), st.sampled_from([1, 100, 65536])),
        st.tuples(st.just("pair"), st.integers(0, 1)),
        st.tuples(st.just("kill"), st.integers(1, 3)),
        st.tuples(st.just("kill in a barrier"), st.integers(1, 3)),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=max(4, settings.get_profile(settings._current_profile or "default").max_examples // 25))
@given(plan=steps)
def test_interleavings_never_hang_and_never_mix(plan: list[Step]) -> None:
    """Barriers, all-gathers, pairs (0, 1) and (2, 3) as subgroups, and deaths in between, in any order.

    What a subgroup has begun to do goes on while its members live; everything else fails after the first death.
    """
    count = 4
    pairs = {0: (0, 1), 1: (2, 3)}
    with reserved_port() as port, Cluster(count, "support.heap_worker") as cluster:
        cluster.call_all("take_part", f"tcp://127.0.0.1:{port}", count)
        dead: set[int] = set()
        established: set[int] = set()
        for number, (kind, value) in enumerate(plan):
            living = [rank for rank in range(count) if rank not in dead]
            if kind.startswith("kill"):
                others = [rank for rank in living if rank != value] if "barrier" in kind else []
                waiting = [cluster.begin(rank, "timed", "barrier") for rank in others]
                if value not in dead:
                    cluster.kill(value)
                    dead.add(value)
                for call in waiting:
                    _, result, why = call.result(10)
                    assert result == -2014
                    assert any(f"rank {rank} " in why for rank in dead), why
                continue
            if kind == "pair":
                members = [rank for rank in pairs[value] if rank in living]
                works = not dead & set(pairs[value]) and (not dead or value in established)
                said = {rank: f"{number}:{rank}".encode() for rank in pairs[value]}
                pending = [
                    cluster.begin(r, "timed", "subgroup_all_gather", f"pair {value}", 2, pairs[value].index(r), said[r])
                    for r in members
                ]
                expected: object = b"".join(said[rank] for rank in pairs[value])
                if works:
                    established.add(value)
            elif kind == "gather":
                works = not dead
                letters = [bytes([rank, number % 256]) * value for rank in range(count)]
                pending = [cluster.begin(rank, "timed", "all_gather", letters[rank][:value]) for rank in living]
                expected = b"".join(letter[:value] for letter in letters)
            else:
                works = not dead
                pending = [cluster.begin(rank, "timed", "barrier") for rank in living]
                expected = 0
            for call in pending:
                _, result, why = call.result(10)
                if works:
                    assert result == expected, why
                else:
                    assert any(f"rank {rank} " in why for rank in dead), why
        for rank in range(count):
            if rank not in dead:
                cluster.call(rank, "destroy")
