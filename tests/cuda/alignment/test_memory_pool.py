"""The division of segments into blocks, compared with a list of all units of 512 bytes."""

import gc

from hypothesis import given, settings
from hypothesis import strategies as st

from cuda.alignment.memory_pool import Block, _Arena

UNIT = 512
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 12)),
        st.tuples(st.just("return"), st.integers(0, 30)),
        st.tuples(st.just("trim"), st.integers(0, 16)),
    ),
    max_size=60,
)


def longest_free(owners: list[int | None], borders: set[int]) -> int:
    """Return the longest run of free units that contains no segment's start but its own."""
    longest = current = 0
    for unit, owner in enumerate(owners):
        current = 0 if owner is not None else 1 if unit in borders else current + 1
        longest = max(longest, current)
    return longest


@settings(max_examples=100, deadline=None)
@given(ACTIONS)
def test_blocks_never_overlap_and_free_ones_are_as_large_as_possible(actions: list[tuple[str, int]]) -> None:
    arena = _Arena()
    # of every unit of all segments, which lie next to each other: the number of its block, None if it is
    # free, or −1 if its segment has been removed
    owners: list[int | None] = []
    segments: dict[int, int] = {}
    blocks: dict[int, Block] = {}
    for number, (action, amount) in enumerate(actions):
        if action == "take":
            address = arena.take(amount * UNIT)
            if address is None:
                assert longest_free(owners, set(segments)) < amount
                address = len(owners) * UNIT
                segments[len(owners)] = amount + number % 5
                arena.add_segment(address, segments[len(owners)] * UNIT, amount * UNIT)
                owners += [None] * (amount + number % 5)
            first = address // UNIT
            assert owners[first : first + amount] == [None] * amount
            assert sum(first <= start < first + amount for start in segments) == (first in segments)
            owners[first : first + amount] = [number] * amount
            blocks[number] = Block(address, amount * UNIT, arena)
        elif action == "return" and blocks:
            owner = sorted(blocks)[amount % len(blocks)]
            del blocks[owner]
            owners = [None if each == owner else each for each in owners]
        elif action == "trim":
            unused = {
                start
                for start, size in segments.items()
                if size >= amount and owners[start : start + size] == [None] * size
            }
            assert {address // UNIT for address in arena.remove_unused(amount * UNIT)} == unused
            for start in unused:
                size = segments.pop(start)
                owners[start : start + size] = [-1] * size


def test_blocks_return_when_nothing_refers_to_them() -> None:
    arena = _Arena()
    arena.add_segment(2**20, 4 * UNIT, UNIT)
    blocks = [Block(2**20, UNIT, arena)]
    assert arena.take(4 * UNIT) is None
    blocks.clear()
    gc.collect()
    assert arena.take(4 * UNIT) == 2**20
