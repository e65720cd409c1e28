"""What a feature becomes in a cache entry comes back exactly, or not at all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features import encoding
from features.encoding import decode, encode


def assert_comes_back(value: np.ndarray, way: str) -> None:
    stored, how = encode(value)
    assert how["as"] == way
    back = decode(stored, how)
    assert (back.dtype, back.shape, back.tobytes()) == (value.dtype, value.shape, value.tobytes())
    assert back.flags.writeable and not np.shares_memory(back, stored)


@given(st.data(), st.sampled_from([np.uint8, np.uint16, np.uint32]))
def test_counts_of_any_size_and_distance_come_back(data: st.DataObject, dtype: type) -> None:
    shape = data.draw(st.tuples(st.integers(0, 40), st.integers(1, 40)))
    value = np.zeros(shape, dtype)
    edges = [number for number in (1, 254, 255, 256, 509, 510, 511, 65535) if number <= np.iinfo(dtype).max]
    if value.size:
        places = data.draw(st.lists(st.integers(0, value.size - 1), max_size=30))
        for place in places:
            value.reshape(-1)[place] = data.draw(st.sampled_from(edges))
    assert_comes_back(value, "sparse")


@pytest.mark.parametrize("place", [0, 1, 253, 254, 255, 256, 509, 510, 511, 999])
def test_a_count_comes_back_to_its_place(place: int) -> None:
    value = np.zeros((2, 500), np.uint8)
    value.reshape(-1)[place] = 7
    assert_comes_back(value, "sparse")


def test_counts_that_are_nowhere_zero_come_back() -> None:
    assert_comes_back(np.arange(1, 70_001, dtype=np.uint32).reshape(70, 1000), "sparse")


def test_other_features_come_back() -> None:
    rng = np.random.default_rng(0)
    assert_comes_back(rng.normal(size=(30, 37)).astype(np.float32), "raw")
    assert_comes_back(rng.integers(22, size=(90, 80)).astype(np.int8), "zstd")
    assert_comes_back(np.array(5, np.int32), "raw")
    assert_comes_back(np.array([b"a name"], np.bytes_), "raw")
    assert_comes_back(np.zeros((0, 9, 37, 3), np.float32), "raw")
    assert_comes_back(np.asfortranarray(rng.integers(22, size=(90, 80)).astype(np.int8)), "zstd")


@pytest.mark.parametrize("shape", [[90, 79], [90, 81], [0, 80]])
def test_a_shape_that_does_not_fit_is_refused(shape: list[int]) -> None:
    for value in (np.zeros((90, 80), np.int8), np.random.default_rng(0).normal(size=(90, 80))):
        stored, how = encode(value)
        with pytest.raises(ValueError, match="does not match its shape"):
            decode(stored, how | {"shape": shape})


def test_places_outside_and_unknown_ways_are_refused() -> None:
    stored, how = encode(np.eye(5, dtype=np.uint8))
    with pytest.raises(IndexError):
        decode(stored, how | {"shape": [5, 4]})
    with pytest.raises(ValueError, match="stored as 'folded'"):
        decode(stored, how | {"as": "folded"})


def test_large_tensors_are_packed_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).integers(22, size=(40, 60)).astype(np.int8)
    value = np.repeat(rows, 40, axis=0)
    value[np.random.default_rng(1).random(value.shape) < 0.2] = 21
    small, _ = encode(value)
    monkeypatch.setattr(encoding, "_LARGE", value.nbytes)
    large, how = encode(value)
    assert large.nbytes > small.nbytes
    assert decode(large, how).tobytes() == value.tobytes()
