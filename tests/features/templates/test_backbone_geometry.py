"""Ideal backbone atoms, and loops that are removed from a real chain and closed again."""

from pathlib import Path

import numpy as np
import pytest

from features.chemistry.residues import CA, CB
from features.templates.backbone_geometry import close_loop, place_beta, place_oxygen
from features.templates.compiled_loops import C_N, CA_C, N_CA
from features.templates.library.chains import TemplateChain
from features.templates.library.structure_files import read_chains
from msa.base.residues import ATOM37

N, C, O = (ATOM37.index(name) for name in ("N", "C", "O"))  # noqa: E741


@pytest.fixture(scope="module")
def chain(structures: Path) -> TemplateChain:
    return next(chain for chain in read_chains(structures / "4zhl.cif.gz") if chain.id == "4zhl_U")


def test_ideal_beta_and_oxygen_are_near_the_real_ones(chain: TemplateChain) -> None:
    atoms = chain.positions.astype(np.float64)
    has_beta = chain.mask[:, CB]
    beta = place_beta(atoms[:, N], atoms[:, CA], atoms[:, C])
    assert np.median(np.linalg.norm(beta - atoms[:, CB], axis=1)[has_beta]) < 0.1
    oxygen = place_oxygen(atoms[:-1, CA], atoms[:-1, C], atoms[1:, N])
    assert np.median(np.linalg.norm(oxygen - atoms[:-1, O], axis=1)) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("start", "residues"), [(20, 1), (50, 3), (100, 6), (150, 10)])
def test_closed_loops_have_ideal_bonds_and_reach_both_ends(
    chain: TemplateChain, start: int, residues: int
) -> None:
    backbone = chain.positions[:, [N, CA, C]].astype(np.float64)
    before, after = backbone[start - 1], backbone[start + residues]
    loops = close_loop(before, after, residues)
    assert residues < 3 or loops
    for loop in loops:
        assert loop.shape == (residues, 3, 3)
        whole = np.concatenate([before[None], loop])
        assert np.linalg.norm(loop[:, 1] - loop[:, 0], axis=1) == pytest.approx(N_CA, abs=1e-6)
        assert np.linalg.norm(loop[:, 2] - loop[:, 1], axis=1) == pytest.approx(CA_C, abs=1e-6)
        assert np.linalg.norm(whole[1:, 0] - whole[:-1, 2], axis=1) == pytest.approx(C_N, abs=1e-6)
        assert np.linalg.norm(loop[-1, 2] - after[0]) == pytest.approx(C_N, abs=0.25)


def test_loop_that_is_too_short_is_not_closed() -> None:
    before = np.array([[0, 0, 0], [1.458, 0, 0], [2.0, 1.42, 0]])
    assert close_loop(before, before + np.array([30, 0, 0]), 4) == []
