"""What features become in a cache entry comes back exactly, or not at all."""

from typing import Any

import numpy as np
import pytest

from features.encoding import ALIGNMENT, REST, decode, encode


def some_features(
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
        "turned": np.asfortranarray(rng.integers(22, size=(9, 8)).astype(np.int8)),
    }


def blocks_of(features: dict[str, np.ndarray]) -> tuple[dict[str, memoryview], dict[str, Any]]:
    blocks, layout = encode(features)
    return {name: memoryview(block) for name, block in blocks.items()}, layout


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("columns", [1, 30, 31])
@pytest.mark.parametrize(("largest", "dtype"), [(9, np.uint8), (60_000, np.uint16), (70_000, np.uint32)])
def test_features_come_back(rows: int, columns: int, largest: int, dtype: type) -> None:
    features = some_features(rows, columns, largest, dtype)
    blocks, layout = blocks_of(features)
    back = decode(blocks, layout)
    assert back.keys() == features.keys()
    for name, value in features.items():
        assert (back[name].dtype, back[name].shape) == (value.dtype, value.shape), name
        assert back[name].tobytes() == value.tobytes(), name
        assert back[name].flags.writeable and back[name].flags.aligned, name


def test_no_feature_shares_its_bytes_with_another() -> None:
    back = decode(*blocks_of(some_features()))
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
def test_a_shape_that_does_not_fit_is_refused(name: str, shape: list[int]) -> None:
    blocks, layout = blocks_of(some_features())
    layout["tensors"][name] = [layout["tensors"][name][0], shape]
    with pytest.raises((ValueError, TypeError, IndexError)):
        decode(blocks, layout)


@pytest.mark.parametrize("kind", ["O", "|O8", "<M8[s]", "V8"])
@pytest.mark.parametrize("name", ["doubles", "deletion_matrix"])
def test_bytes_never_become_objects(name: str, kind: str) -> None:
    blocks, layout = blocks_of(some_features())
    layout["tensors"][name] = [kind, layout["tensors"][name][1]]
    with pytest.raises(ValueError, match="the type"):
        decode(blocks, layout)


@pytest.mark.parametrize("name", [ALIGNMENT, REST])
def test_a_block_that_is_cut_short_is_refused(name: str) -> None:
    blocks, layout = blocks_of(some_features())
    with pytest.raises(Exception, match=r"cut short|zstd"):
        decode(blocks | {name: blocks[name][:-1]}, layout)
