"""Tests of the compression of features: round trips, and errors for damaged data."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.cache import encoding
from features.cache.encoding import (
    ALIGNMENT,
    REST,
    decode,
    decode_sparse,
    encode,
    encode_sparse,
    rank_residues,
    unrank_residues,
)


def random_features(
    rows: int = 40, columns: int = 31, largest: int = 9, dtype: type = np.uint8
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    deletions = rng.integers(1, largest + 1, size=(rows, columns)) * (rng.random((rows, columns)) < 0.1)
    return {
        "msa": rng.integers(22, size=(rows, columns)).astype(np.int8),
        "deletion_matrix": deletions.astype(dtype),
        "hhblits_profile": rng.random((columns, 22), np.float32),
        "number": np.array(5, np.int32),
        "name": np.array([b"a name"], np.bytes_),
        "nothing": np.zeros((0, 9, 37, 3), np.float32),
        "doubles": rng.normal(size=(3, 5)),
        "fortran_order": np.asfortranarray(rng.integers(22, size=(9, 8)).astype(np.int8)),
    }


def encoded(features: dict[str, np.ndarray]) -> tuple[dict[str, memoryview], dict[str, Any]]:
    blocks, layout = encode(features)
    return {name: memoryview(block) for name, block in blocks.items()}, layout


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("columns", [1, 30, 31])
@pytest.mark.parametrize(("largest", "dtype"), [(9, np.uint8), (60_000, np.uint16), (70_000, np.uint32)])
def test_features_round_trip(rows: int, columns: int, largest: int, dtype: type) -> None:
    features = random_features(rows, columns, largest, dtype)
    blocks, layout = encoded(features)
    back = decode(blocks, layout)
    assert back.keys() == features.keys()
    for name, value in features.items():
        assert (back[name].dtype, back[name].shape) == (value.dtype, value.shape), name
        assert back[name].tobytes() == value.tobytes(), name
        assert back[name].flags.writeable and back[name].flags.aligned, name


def test_decoded_features_share_no_memory() -> None:
    back = decode(*encoded(random_features()))
    before = {name: value.tobytes() for name, value in back.items()}
    for name, value in back.items():
        value[...] = np.zeros((), value.dtype)
        for other in back.keys() - {name}:
            assert back[other].tobytes() == before[other]
        value[...] = np.frombuffer(before[name], value.dtype).reshape(value.shape)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("msa", [40, 30]),
        ("msa", [39, 31]),
        ("deletion_matrix", [40, 30]),
        ("doubles", [300, 500]),
        ("doubles", [2, 5]),
    ],
)
def test_mismatched_shapes_are_an_error(name: str, shape: list[int]) -> None:
    blocks, layout = encoded(random_features())
    layout["tensors"][name] = [layout["tensors"][name][0], shape]
    with pytest.raises((ValueError, TypeError, IndexError)):
        decode(blocks, layout)


@pytest.mark.parametrize("kind", ["O", "|O8", "<M8[s]", "V8"])
@pytest.mark.parametrize("name", ["doubles", "deletion_matrix"])
def test_object_types_are_an_error(name: str, kind: str) -> None:
    blocks, layout = encoded(random_features())
    layout["tensors"][name] = [kind, layout["tensors"][name][1]]
    with pytest.raises(ValueError, match="the type"):
        decode(blocks, layout)


@pytest.mark.parametrize("name", [ALIGNMENT, REST])
def test_truncated_block_is_an_error(name: str) -> None:
    blocks, layout = encoded(random_features())
    with pytest.raises(Exception, match=r"truncated|zstd"):
        decode(blocks | {name: blocks[name][:-1]}, layout)


def column_profile(msa: np.ndarray) -> np.ndarray:
    return np.stack([np.bincount(column, minlength=22) for column in msa.T]).astype(np.float32) / len(msa)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 23), st.integers(0, 2**32 - 1), st.booleans())
def test_ranks_round_trip(rows: int, columns: int, seed: int, own: bool) -> None:
    rng = np.random.default_rng(seed)
    msa = rng.integers(22, size=(rows, columns), dtype=np.int8)
    profile = column_profile(msa) if own else rng.random((columns, 22), np.float32)
    packed, escaped = rank_residues(msa, profile)
    assert packed.shape == (rows, (columns + 1) // 2)
    back = unrank_residues(packed, escaped, profile)
    assert back.dtype == np.int8
    np.testing.assert_array_equal(back, msa)


def test_blocks_of_rows_do_not_change_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    msa = np.random.default_rng(0).integers(22, size=(50, 13), dtype=np.int8)
    whole = rank_residues(msa, column_profile(msa))
    monkeypatch.setattr(encoding, "_BLOCK", 40)
    for one, other in zip(whole, rank_residues(msa, column_profile(msa)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_most_common_residue_of_a_column_has_rank_zero() -> None:
    msa = np.array([[5, 21, 3], [5, 2, 3], [5, 21, 1]], np.int8)
    packed, escaped = rank_residues(msa, column_profile(msa))
    assert packed.tolist() == [[0, 0], [1 << 4, 0], [0, 1]]
    assert len(escaped) == 0


def test_high_ranks_are_escaped_in_order() -> None:
    profile = np.arange(22, 0, -1, dtype=np.float32)[None].repeat(3, axis=0)
    packed, escaped = rank_residues(np.array([[21, 14, 15], [0, 16, 2]], np.int8), profile)
    assert packed.tolist() == [[15 | 14 << 4, 15], [15 << 4, 2]]
    assert escaped.tolist() == [21, 15, 16]


def test_mismatched_ranks_and_profiles_are_an_error() -> None:
    msa = np.arange(22, dtype=np.int8).repeat(2).reshape(4, 11)
    profile = np.ones((11, 22), np.float32)
    packed, escaped = rank_residues(msa, profile)
    assert len(escaped)
    for other in (escaped[:-1], np.append(escaped, escaped[-1:])):
        with pytest.raises(ValueError, match="list of high ranks"):
            unrank_residues(packed, other, profile)
    with pytest.raises(ValueError, match="list of high ranks"):
        unrank_residues(packed, np.full_like(escaped, 22), profile)
    for other in (profile[:10], profile[:, :21], np.ones((13, 22), np.float32)):
        with pytest.raises(ValueError, match="does not match its profile"):
            unrank_residues(packed, escaped, other)


EDGES = (1, 2, 254, 255, 256, 509, 510, 511, 65535, 70_000)


def assert_round_trip(positions: np.ndarray, counts: np.ndarray) -> None:
    back = decode_sparse(np.frombuffer(encode_sparse(positions, counts), np.uint8))
    np.testing.assert_array_equal(back[0], positions)
    np.testing.assert_array_equal(back[1], counts)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from((0, *EDGES)), st.sampled_from(EDGES)), max_size=30))
def test_sparse_numbers_round_trip(pairs: list[tuple[int, int]]) -> None:
    distances, counts = np.array(pairs, np.int64).reshape(-1, 2).T
    assert_round_trip(np.cumsum(distances), counts)


def test_sparse_numbers_below_255_take_one_byte() -> None:
    assert encode_sparse(np.array([0, 3]), np.array([7, 600])) == bytes([0, 3, 7, 255, 255, 90])
    assert encode_sparse(np.array([255]), np.array([1])) == bytes([255, 0, 1])


def test_long_sparse_lists_round_trip() -> None:
    assert_round_trip(np.arange(70_000), np.arange(1, 70_001))


@pytest.mark.parametrize("stream", [[1], [255], [1, 255], [1, 2, 3], [255, 255]])
def test_truncated_sparse_list_is_an_error(stream: list[int]) -> None:
    with pytest.raises(ValueError, match="truncated"):
        decode_sparse(np.array(stream, np.uint8))
