"""Tests of the choice of chains and residues to train on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from features.chemistry.residues import decode_query
from features.templates.library.build import write_library
from features.templates.library.chains import TemplateChain
from features.templates.library.library import StructureLibrary
from foldcli.training_data.chains import (
    MAX_LENGTH,
    MIN_LENGTH,
    select_chains,
    training_chain,
)
from msa.base.residues import ATOM37

# atoms of cysteine, in atom14 order
N, CA, C, OXYGEN, CB, SG = ATOMS = [ATOM37.index(name) for name in ("N", "CA", "C", "O", "CB", "SG")]


def cysteines(length: int, name: str = "model_A") -> TemplateChain:
    """Return a straight chain of cysteines whose atoms are all different and on the grid of libraries."""
    positions = np.zeros((length, 37, 3), np.float32)
    mask = np.zeros((length, 37), bool)
    for number, atom in enumerate(ATOMS):
        positions[:, atom] = np.arange(length)[:, None] * [0.5, 0, 0] + [0, number, 1]
        mask[:, atom] = True
    return TemplateChain(name, "C" * length, positions, mask, None, "model.pdb")


@pytest.mark.parametrize("missing", [N, CA, C])
def test_residues_without_backbone_or_of_unknown_type_are_left_out(missing: int) -> None:
    chain = cysteines(6)
    chain.mask[1, missing] = False
    chain.mask[3, [OXYGEN, SG]] = False
    result = training_chain(replace(chain, sequence="CCCCXC"))
    assert (result.id, result.source, decode_query(result.aatype)) == ("model_A", "model.pdb", "CCCC")
    kept = [0, 2, 3, 5]
    present = result.mask[:, :6]
    assert (present == chain.mask[kept][:, ATOMS]).all() and not result.mask[:, 6:].any()
    assert (result.atom14[:, :6][present] == chain.positions[kept][:, ATOMS][present]).all()


def test_chains_are_chosen_by_length_and_coordinates_and_get_unique_names(tmp_path: Path) -> None:
    far = cysteines(50, "far_A")
    far.positions[25:] += 700
    chains = [cysteines(length) for length in (MIN_LENGTH - 1, MIN_LENGTH, MAX_LENGTH, MAX_LENGTH + 1)]
    taken = cysteines(60, "model_A.2")
    gap = cysteines(100)
    gap.mask[10:30, CA] = False
    write_library([*chains, taken, gap, far], tmp_path / "library")
    selected = select_chains([StructureLibrary.open(tmp_path / "library")])
    # libraries are sorted by length
    assert [(chain.id, len(chain.aatype)) for chain in selected.chains] == [
        ("model_A", 40), ("model_A.2", 60), ("model_A.3", 80), ("model_A.4", 512),
    ]  # fmt: skip
    assert list(selected.left_out.values()) == [1, 1, 1]
    assert selected.residues_left_out == 20
