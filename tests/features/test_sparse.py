"""A list of numbers comes back exactly, or not at all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.sparse import read_list, write_list

EDGES = (1, 2, 254, 255, 256, 509, 510, 511, 65535, 70_000)


def assert_comes_back(places: np.ndarray, counts: np.ndarray) -> None:
    back = read_list(np.frombuffer(write_list(places, counts), np.uint8))
    np.testing.assert_array_equal(back[0], places)
    np.testing.assert_array_equal(back[1], counts)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from((0, *EDGES)), st.sampled_from(EDGES)), max_size=30))
def test_numbers_of_any_size_and_distance_come_back(pairs: list[tuple[int, int]]) -> None:
    distances, counts = np.array(pairs, np.int64).reshape(-1, 2).T
    assert_comes_back(np.cumsum(distances), counts)


def test_small_numbers_take_a_byte_and_large_ones_more() -> None:
    assert write_list(np.array([0, 3]), np.array([7, 600])) == bytes([0, 3, 7, 255, 255, 90])
    assert write_list(np.array([255]), np.array([1])) == bytes([255, 0, 1])


def test_many_come_back() -> None:
    assert_comes_back(np.arange(70_000), np.arange(1, 70_001))


@pytest.mark.parametrize("stream", [[1], [255], [1, 255], [1, 2, 3], [255, 255]])
def test_a_list_that_is_cut_short_is_refused(stream: list[int]) -> None:
    with pytest.raises(ValueError, match="cut short"):
        read_list(np.array(stream, np.uint8))
