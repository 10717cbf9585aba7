"""Blocks of a span: none overlap, what is given back is used again, and nothing is lost, whatever the order."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from memfabric_hybrid.offload.blocks import LARGE_BYTES, PAGE_BYTES, Block, Blocks

SIZES = st.one_of(
    st.integers(1, 3 * PAGE_BYTES),
    st.integers(LARGE_BYTES - PAGE_BYTES, 2 * LARGE_BYTES + PAGE_BYTES),
    st.sampled_from([PAGE_BYTES, LARGE_BYTES, 4 * LARGE_BYTES]),
)
GROWTHS = st.integers(1, 4).map(lambda count: count * LARGE_BYTES)


class Model(RuleBasedStateMachine):
    """Beside the blocks, the plainest account of them: a list of those that are out."""

    blocks = Bundle("blocks")

    def __init__(self) -> None:
        super().__init__()
        self.subject = Blocks()
        self.span_bytes = 0
        self.out: list[Block] = []

    @rule(by_bytes=GROWTHS)
    def grow(self, by_bytes: int) -> None:
        self.subject.grow(by_bytes)
        self.span_bytes += by_bytes

    @rule(target=blocks, size_bytes=SIZES)
    def take(self, size_bytes: int) -> Block | None:
        block = self.subject.take(size_bytes)
        if block is None:
            assert not self.has_room(size_bytes)
            return None
        assert size_bytes <= block.size_bytes < size_bytes + PAGE_BYTES
        assert block.start % (LARGE_BYTES if size_bytes >= LARGE_BYTES else PAGE_BYTES) == 0
        assert block.start + block.size_bytes <= self.span_bytes
        for other in self.out:
            assert block.start + block.size_bytes <= other.start or other.start + other.size_bytes <= block.start
        self.out.append(block)
        return block

    @rule(block=consumes(blocks))
    def give_back(self, block: Block | None) -> None:
        if block is not None:
            assert self.subject.give_back(block.start)
            assert not self.subject.give_back(block.start), "a block is given back once"
            self.out.remove(block)

    @rule(size_bytes=SIZES)
    @precondition(lambda self: self.span_bytes < 64 * LARGE_BYTES)
    def grow_by_what_is_missing(self, size_bytes: int) -> None:
        missing = self.subject.missing(size_bytes)
        self.subject.grow(missing)
        self.span_bytes += missing
        assert self.has_room(size_bytes)

    @rule(offset=st.integers(0, 64 * LARGE_BYTES))
    def ask_who_holds(self, offset: int) -> None:
        holders = [block for block in self.out if block.start <= offset < block.start + block.size_bytes]
        assert self.subject.holding(offset) == (holders[0] if holders else None)

    @invariant()
    def every_byte_is_accounted_for(self) -> None:
        usage = self.subject.usage()
        assert usage.span_bytes == self.span_bytes
        assert usage.taken_bytes == sum(block.size_bytes for block in self.out)
        assert usage.blocks == len(self.out)
        assert usage.largest_bytes == max((size for _, size in self.holes()), default=0), "holes that touch are one"
        assert usage.last_bytes == sum(size for start, size in self.holes() if start + size == self.span_bytes)

    def holes(self) -> list[tuple[int, int]]:
        """(start, size) of what lies between the blocks."""
        found, end = [], 0
        for block in [*sorted(self.out), Block(self.span_bytes, 0)]:
            if block.start > end:
                found.append((end, block.start - end))
            end = block.start + block.size_bytes
        return found

    def has_room(self, size_bytes: int) -> bool:
        step = LARGE_BYTES if size_bytes >= LARGE_BYTES else PAGE_BYTES
        rounded = -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
        return any(-(-start // step) * step + rounded <= start + size for start, size in self.holes())


TestModel = Model.TestCase


@given(st.lists(SIZES, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_in_whatever_order_blocks_come_back_the_span_is_one_hole_again(sizes: list[int], random: Random) -> None:
    blocks = Blocks(16 * LARGE_BYTES)
    taken = [block for block in map(blocks.take, sizes) if block is not None]
    random.shuffle(taken)
    for block in taken:
        assert blocks.give_back(block.start)
    assert blocks.usage() == (16 * LARGE_BYTES, 0, 0, 16 * LARGE_BYTES, 16 * LARGE_BYTES)
    assert blocks.take(16 * LARGE_BYTES) == Block(0, 16 * LARGE_BYTES)


def test_a_small_block_comes_from_the_smallest_hole() -> None:
    blocks = Blocks(4 * LARGE_BYTES)
    first, second, third = (blocks.take(size) for size in (2 * PAGE_BYTES, PAGE_BYTES, PAGE_BYTES))
    assert first
    assert second
    assert third
    blocks.give_back(second.start)
    assert blocks.take(1) == second, "and not from the large one behind"


def test_an_empty_span_holds_nothing_and_says_what_it_lacks() -> None:
    blocks = Blocks()
    assert blocks.take(1) is None
    assert blocks.missing(1) == PAGE_BYTES
    assert blocks.missing(LARGE_BYTES + 1) == LARGE_BYTES + PAGE_BYTES
    assert blocks.holding(0) is None
    assert not blocks.give_back(0)
    assert blocks.usage() == (0, 0, 0, 0, 0)
