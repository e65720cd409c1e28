"""Coordinates come back from the codec on the grid, whatever atoms are missing."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.templates.library.chains import complete_atoms
from features.templates.library.coordinate_codec import decode_coordinates, encode_coordinates
from features.templates.library.structure_files import read_chains


@pytest.mark.parametrize("units", [1000, 100, 25])
def test_error_is_at_most_half_a_grid_step(structures: Path, units: int) -> None:
    (chain,) = read_chains(structures / "2ofg.cif.gz")
    complete = complete_atoms(chain.sequence)
    data = encode_coordinates(chain.positions, chain.mask, complete, units)
    positions, mask = decode_coordinates(data, complete, units)
    np.testing.assert_array_equal(mask, chain.mask)
    assert positions.dtype == np.float32
    assert np.abs(positions - chain.positions)[mask].max() <= 0.5 / units + 1e-5
    if units == 1000:
        np.testing.assert_array_equal(positions, chain.positions)


def test_backbone_takes_at_most_twelve_bytes_a_residue(structures: Path) -> None:
    (chain,) = read_chains(structures / "1gbt.cif.gz")
    backbone = chain.backbone()
    complete = complete_atoms(chain.sequence, backbone_only=True)
    data = encode_coordinates(backbone.positions, backbone.mask, complete, 25)
    assert len(data) < 12 * len(chain.sequence)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), residues=st.integers(1, 12), share=st.floats(0, 1))
def test_any_mask_and_any_positions_are_restored(seed: int, residues: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random((residues, 37)) < share
    grid = rng.integers(-9_999_999, 9_999_999, (residues, 37, 3)) * mask[..., None]
    complete = rng.random((residues, 37)) < 0.5
    data = encode_coordinates(grid / 1000, mask, complete, 1000)
    positions, decoded_mask = decode_coordinates(data, complete, 1000)
    np.testing.assert_array_equal(decoded_mask, mask)
    np.testing.assert_array_equal(positions, (grid / 1000).astype(np.float32))


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "residues"])
def test_damaged_data_raise_value_error(structures: Path, damage: str) -> None:
    (chain,) = read_chains(structures / "1a7g.cif.gz")
    complete = complete_atoms(chain.sequence)
    data = encode_coordinates(chain.positions, chain.mask, complete, 100)
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "flip":
        data = bytes([data[0] ^ 0xFF]) + data[1:]
    elif damage == "empty":
        data = b""
    else:
        complete = complete[:-1]
    with pytest.raises(ValueError, match="damaged coordinates"):
        decode_coordinates(data, complete, 100)
