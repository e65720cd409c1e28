"""Secondary structure from backbone coordinates."""

import numpy as np
import pytest

from features.templates.library.library import EMBEDDED, StructureLibrary
from foldcli.report.data.secondary_structure import assign_secondary_structure

# DSSP of ubiquitin (PDB 1UBQ), with turns, bends and isolated bridges as coil
UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRG"
DSSP = "-EEEEEE----EEEEE------HHHHHHHHHHHH---GGGEEEEE--EE-------GGG------EEEEEE----"


@pytest.fixture(scope="module")
def ubiquitin() -> np.ndarray:
    """Return N, Cα, C and O of an experimental structure, [4, 75, 3]."""
    chain = StructureLibrary.open(EMBEDDED).chain(1562)
    assert chain.sequence == UBIQUITIN
    return np.where(chain.mask[:, (0, 1, 2, 4), None], chain.positions[:, (0, 1, 2, 4)], np.nan).swapaxes(
        0, 1
    )


def test_ubiquitin_is_as_in_dssp(ubiquitin: np.ndarray) -> None:
    assert assign_secondary_structure(ubiquitin, UBIQUITIN) == DSSP


def test_result_does_not_depend_on_position_and_orientation(ubiquitin: np.ndarray) -> None:
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    rotation *= np.linalg.det(rotation)
    assert assign_secondary_structure(ubiquitin @ rotation + [1000, -500, 300], UBIQUITIN) == DSSP
    # the mirror image has left-handed helices with the same hydrogen bonds
    assert assign_secondary_structure(ubiquitin * [1, 1, -1], UBIQUITIN) == DSSP


def test_missing_atoms_break_hydrogen_bonds_only_there(ubiquitin: np.ndarray) -> None:
    partial = ubiquitin.copy()
    partial[:, 27] = np.nan  # in the middle of the helix
    found = assign_secondary_structure(partial, UBIQUITIN)
    assert found[27] == "-" and found[:22] == DSSP[:22] and found[37:] == DSSP[37:]
    only_ca = np.full_like(ubiquitin, np.nan)
    only_ca[1] = ubiquitin[1]
    assert assign_secondary_structure(only_ca, UBIQUITIN) == "-" * len(UBIQUITIN)


def test_long_chains_and_separate_copies(ubiquitin: np.ndarray) -> None:
    copies = np.concatenate([ubiquitin + np.array([60.0 * i, 0, 0]) for i in range(9)], axis=1)
    assert assign_secondary_structure(copies, UBIQUITIN * 9) == DSSP * 9


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_short_chains_are_coil(ubiquitin: np.ndarray, length: int) -> None:
    assert assign_secondary_structure(ubiquitin[:, :length], UBIQUITIN[:length]) == "-" * length
