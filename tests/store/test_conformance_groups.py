"""What every Store must do, whatever carries its messages: each test runs in process, over tcp and on etcd.

Ranks, ranges, rendezvous.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import (
    Duplicated,
    InvalidParam,
    NoResources,
    NotConnected,
    NotExist,
    NotStarted,
    TimedOut,
)
from memfabric_hybrid.store import Store
from memfabric_hybrid.store.state.placement import ALIGNMENT_BYTES, REGION_END, REGION_START
from store.worlds import PATIENCE_S, Seen, World, soon

# --- ranks ----------------------------------------------------------------------------------------------------------


def test_lowest_free_rank_is_given(world: World) -> None:
    members = [world.participant() for _ in range(4)]
    ranks = [member.claim_rank("g", 4, b"v%d" % n, deadline=soon()) for n, member in enumerate(members)]
    assert ranks == [0, 1, 2, 3]
    with pytest.raises(NoResources, match="all ranks of group 'g' are taken: capacity 4, 4 claimed"):
        world.participant().claim_rank("g", 4, b"", deadline=soon())
    members[2].release_rank("g", 2, deadline=soon())
    members[1].close()
    assert members[0].prefix("g/", deadline=soon()).entries == {"g/0": b"v0", "g/3": b"v3"}
    assert [members[0].claim_rank("g", 4, b"", deadline=soon()) for _ in range(2)] == [1, 2]


def test_free_ranks_are_told(store: Store, other: Store) -> None:
    assert list(store.free_ranks("g", 4, 16, deadline=soon())) == [0, 1, 2, 3]
    for rank in (0, 1, 3):
        store.claim_rank("g", 8, b"", wanted=rank, deadline=soon())
    assert list(other.free_ranks("g", 8, 3, deadline=soon())) == [2, 4, 5]
    assert list(other.free_ranks("g", 8, 0, deadline=soon())) == []
    assert list(other.free_ranks("other", 2, 9, deadline=soon())) == [0, 1]
    store.release_rank("g", 1, deadline=soon())
    assert list(other.free_ranks("g", 8, 2, deadline=soon())) == [1, 2]
    with pytest.raises(InvalidParam, match="capacity 0 of group 'g'"):
        store.free_ranks("g", 0, 1, deadline=soon())


def test_ranks_of_simultaneous_claims_differ(world: World, pool: ThreadPoolExecutor) -> None:
    members = [world.participant() for _ in range(16)]
    claims = [pool.submit(member.claim_rank, "g", 16, b"", deadline=soon()) for member in members]
    assert sorted(claim.result(PATIENCE_S) for claim in claims) == list(range(16))


def test_wanted_and_excluded_ranks(store: Store, other: Store) -> None:
    assert store.claim_rank("g", 4, b"", wanted=2, deadline=soon()) == 2
    with pytest.raises(Duplicated, match="rank 2 of 'g' is taken by another member"):
        other.claim_rank("g", 4, b"", wanted=2, deadline=soon())
    assert other.claim_rank("g", 4, b"", excluded={0, 1}, deadline=soon()) == 3
    with pytest.raises(NoResources, match="capacity 4, 2 claimed, 2 excluded"):
        other.claim_rank("g", 4, b"", excluded={0, 1}, deadline=soon())


def test_capacity_must_agree_while_the_group_lives(store: Store, other: Store) -> None:
    store.claim_rank("g", 4, b"", deadline=soon())
    with pytest.raises(InvalidParam, match="members of 'g' have a world size of 4, this one says 5"):
        other.claim_rank("g", 5, b"", deadline=soon())
    store.release_rank("g", 0, deadline=soon())
    assert other.claim_rank("g", 5, b"", deadline=soon()) == 0


def test_release_of_what_is_not_held(store: Store, other: Store) -> None:
    store.claim_rank("g", 4, b"", deadline=soon())
    store.hold_range("r", 1, deadline=soon())
    for group, rank in (("g", 0), ("g", 1), ("h", 0)):
        with pytest.raises(NotExist, match=f"rank {rank} of group '{group}' is not held by this member"):
            other.release_rank(group, rank, deadline=soon())
    for name in ("r", "s"):
        with pytest.raises(NotExist, match=f"range '{name}' is not held by this member"):
            other.release_range(name, deadline=soon())


def test_a_claim_is_an_ephemeral_key_of_its_owner(world: World, store: Store, other: Store) -> None:
    other.claim_rank("g", 4, b"1", deadline=soon())
    other.set("g/0", b"2", deadline=soon())
    assert store.get("g/0", deadline=soon()) == b"2"
    with pytest.raises(Duplicated, match="key 'g/0' belongs to another member"):
        store.delete("g/0", deadline=soon())
    seen = Seen()
    store.watch("g/", seen, deadline=soon())
    assert seen.next().entries == {"g/0": b"2"}
    world.kill(other)
    seen.until(lambda view: not view)
    assert store.claim_rank("g", 4, b"", deadline=soon()) == 0
    store.delete("g/0", deadline=soon())
    assert store.claim_rank("g", 8, b"", deadline=soon()) == 0


def test_a_plain_key_in_the_way_of_a_rank(store: Store) -> None:
    store.set("g/0", b"", deadline=soon())
    with pytest.raises(Duplicated, match="key 'g/0' exists and is no rank"):
        store.claim_rank("g", 4, b"", deadline=soon())


# --- ranges ---------------------------------------------------------------------------------------------------------


def test_range_is_shared_by_name(world: World, store: Store, other: Store) -> None:
    base = store.hold_range("r", 5 << 30, deadline=soon())
    assert base % ALIGNMENT_BYTES == 0
    assert REGION_START <= base <= REGION_END - (5 << 30)
    assert other.hold_range("r", 5 << 30, deadline=soon()) == base
    assert store.hold_range("r", 5 << 30, deadline=soon()) == base
    with pytest.raises(InvalidParam, match=f"range 'r' is held with {5 << 30} bytes, this call says {4 << 30} bytes"):
        other.hold_range("r", 4 << 30, deadline=soon())
    store.release_range("r", deadline=soon())
    store.hold_range("s", 1, asked="rank 0 asked for little", deadline=soon())
    with pytest.raises(InvalidParam, match="rank 0 asked for little, but rank 1 asked for much; all ranks must ask"):
        other.hold_range("s", 2, asked="rank 1 asked for much", deadline=soon())
    with pytest.raises(InvalidParam, match="is held with"):
        store.hold_range("r", 1, deadline=soon())
    world.kill(other)
    while True:
        try:
            store.hold_range("r", 1, deadline=soon())
            break
        except InvalidParam:
            continue


def test_the_region_can_be_full(store: Store) -> None:
    whole = REGION_END - REGION_START
    with pytest.raises(NoResources, match=f"range 'r': {whole + 1} bytes, the whole region has {whole}"):
        store.hold_range("r", whole + 1, deadline=soon())
    assert store.hold_range("r", whole, deadline=soon()) == REGION_START
    with pytest.raises(NoResources, match="range 's': no 1 bytes in one piece are free; 1 ranges hold"):
        store.hold_range("s", 1, deadline=soon())
    store.release_range("r", deadline=soon())
    store.hold_range("s", 1, deadline=soon())


# --- rendezvous -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size_bytes", [0, 1, 65536])
def test_gather_gives_everybody_everything_in_rank_order(
    world: World, pool: ThreadPoolExecutor, size_bytes: int
) -> None:
    members = [world.participant() for _ in range(5)]
    for round in range(3):
        data = [bytes([round * 10 + rank]) * size_bytes for rank in range(5)]
        calls = [
            pool.submit(members[rank].gather, "g", round, rank, 5, data[rank], deadline=soon()) for rank in range(5)
        ]
        assert [call.result(PATIENCE_S) for call in calls] == [data] * 5


def test_gather_of_different_sizes(store: Store, other: Store, pool: ThreadPoolExecutor) -> None:
    first = pool.submit(store.gather, "g", 0, 0, 2, b"", deadline=soon())
    assert other.gather("g", 0, 1, 2, b"long", deadline=soon()) == [b"", b"long"]
    assert first.result(PATIENCE_S) == [b"", b"long"]


def test_barrier_holds_until_the_last(store: Store, other: Store, pool: ThreadPoolExecutor) -> None:
    first = pool.submit(store.barrier, "g", 0, 0, 2, deadline=soon())
    for number in range(20):
        other.barrier("other", number, 0, 1, deadline=soon())
    assert not first.done()
    other.barrier("g", 0, 1, 2, deadline=soon())
    assert first.result(PATIENCE_S) is None


def test_gather_in_vain_names_the_missing(world: World, store: Store, other: Store, pool: ThreadPoolExecutor) -> None:
    first = pool.submit(store.gather, "g", 7, 1, 5, b"", deadline=soon())
    world.wait_for_arrivals(1)
    with pytest.raises(TimedOut, match=r"gather 'g' round 7: 3 of 5 ranks did not arrive within 0\.\d\d s: 0, 3, 4$"):
        other.gather("g", 7, 2, 5, b"", deadline=Deadline(0.2))
    with pytest.raises(TimedOut, match=r"2 of 5 .* 0, 4 \(arrived, but gave up before: 2\)"):
        other.gather("g", 7, 3, 5, b"", deadline=Deadline(0.2))
    again = [pool.submit(other.gather, "g", 7, rank, 5, b"", deadline=soon()) for rank in (0, 2, 3, 4)]
    assert [each.result(PATIENCE_S) for each in (first, *again)] == [[b""] * 5] * 5


def test_a_round_can_be_repeated_after_a_timeout(store: Store, other: Store, pool: ThreadPoolExecutor) -> None:
    with pytest.raises(TimedOut):
        store.barrier("g", 0, 0, 2, deadline=Deadline(0.1))
    again = pool.submit(store.barrier, "g", 0, 0, 2, deadline=soon())
    other.barrier("g", 0, 1, 2, deadline=soon())
    again.result(PATIENCE_S)


def test_gather_looks_around_while_it_waits(store: Store, other: Store, pool: ThreadPoolExecutor) -> None:
    """Whatever it sees there, somebody who leaves or the result itself, ends the wait and no other one."""
    seen: list[str] = []

    def look(after_three: Callable[[], list[bytes] | None]) -> Callable[[], list[bytes] | None]:
        looks = count(1)

        def look_around() -> list[bytes] | None:
            seen.append("looked")
            return after_three() if next(looks) > 3 else None

        return look_around

    def gone() -> None:
        raise NotConnected("somebody has left")

    with pytest.raises(NotConnected, match="somebody has left"):
        store.gather("g", 0, 0, 2, b"a", deadline=soon(), look_around=look(gone))
    known = store.gather("g", 0, 0, 2, b"a", deadline=soon(), look_around=look(lambda: [b"x", b"y"]))
    assert known == [b"x", b"y"]
    assert len(seen) == 8
    waiting = pool.submit(store.gather, "g", 0, 0, 2, b"a", deadline=soon(), look_around=lambda: None)
    assert other.gather("g", 0, 1, 2, b"b", deadline=soon(), look_around=lambda: None) == [b"a", b"b"]
    assert waiting.result(PATIENCE_S) == [b"a", b"b"]
    with pytest.raises(TimedOut, match="1 of 2 ranks did not arrive"):
        store.gather("g", 1, 0, 2, b"", deadline=Deadline(1.0), look_around=lambda: None)


def test_gather_refuses_a_second_arrival_and_another_size(
    world: World, store: Store, other: Store, pool: ThreadPoolExecutor
) -> None:
    waiting = [pool.submit(store.gather, "g", 0, rank, 3, b"", deadline=soon()) for rank in (0, 1)]
    world.wait_for_arrivals(2)
    with pytest.raises(InvalidParam, match="rank 1 says 4 ranks, those before it said 3"):
        other.gather("g", 0, 1, 4, b"", deadline=soon())
    for who in (store, other):
        with pytest.raises(Duplicated, match="rank 1 has arrived already"):
            who.gather("g", 0, 1, 3, b"", deadline=soon())
    other.gather("g", 0, 2, 3, b"", deadline=soon())
    assert [each.result(PATIENCE_S) for each in waiting] == [[b""] * 3] * 2


@pytest.mark.parametrize("how", ["kill", "release"])
def test_gather_learns_of_the_death_of_a_missing_rank(
    world: World, store: Store, other: Store, pool: ThreadPoolExecutor, how: str
) -> None:
    assert other.claim_rank("g", 3, b"", wanted=2, deadline=soon()) == 2
    waiting = [pool.submit(store.gather, "g", 4, rank, 3, b"", deadline=soon()) for rank in (0, 1)]
    world.wait_for_arrivals(2)
    if how == "kill":
        world.kill(other)
    else:
        other.release_rank("g", 2, deadline=soon())
    for each in waiting:
        with pytest.raises(NotConnected, match="gather 'g' round 4: rank 2 left or died before all had arrived"):
            each.result(PATIENCE_S)


def test_gather_learns_of_the_death_of_a_rank_that_had_arrived(
    world: World, store: Store, other: Store, pool: ThreadPoolExecutor
) -> None:
    assert other.claim_rank("g", 3, b"", wanted=2, deadline=soon()) == 2
    lost = pool.submit(other.gather, "g", 4, 2, 3, b"", deadline=soon())
    waiting = pool.submit(store.gather, "g", 4, 0, 3, b"", deadline=soon())
    world.wait_for_arrivals(2)
    world.kill(other)
    with pytest.raises(NotConnected, match="gather 'g' round 4: rank 2 left or died before all had arrived"):
        waiting.result(PATIENCE_S)
    with pytest.raises(NotStarted):
        lost.result(PATIENCE_S)


def test_who_vanishes_takes_its_arrival_along(
    world: World, store: Store, other: Store, pool: ThreadPoolExecutor
) -> None:
    lost = pool.submit(other.gather, "g", 0, 0, 2, b"lost", deadline=soon())
    world.wait_for_arrivals(1)
    other.close()
    world.wait_for_arrivals(0)
    again = pool.submit(store.gather, "g", 0, 0, 2, b"again", deadline=soon())
    assert store.gather("g", 0, 1, 2, b"1", deadline=soon()) == [b"again", b"1"]
    again.result(PATIENCE_S)
    with pytest.raises(NotStarted):
        lost.result(PATIENCE_S)
