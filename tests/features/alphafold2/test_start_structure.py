"""Tests of the positions that recycling starts from."""

from pathlib import Path

import numpy as np
import pytest

from features.alphafold2.start_structure import read_start_positions
from model.output.provenance import Provenance
from model.output.residues import format_mmcif, format_pdb
from msa.base.errors import InputError
from msa.base.residues import ATOM37, RESTYPES
from tests.predictions import complex_prediction

BETA = ATOM37.index("CB")


def test_positions_of_all_chains_with_ideal_cb(tmp_path: Path) -> None:
    prediction = complex_prediction(1)
    names = ["A", "B", "C", "D"][: prediction.num_chains]
    chain = prediction.structure.residue_chain
    lengths = [(name, int((chain == k).sum())) for k, name in enumerate(names)]
    present = prediction.atom_positions.any(axis=-1)
    # its NH1 and NH2 may be exchanged
    compared = present & (prediction.aatype != RESTYPES.index("R"))[:, None]
    for kind, text in (("pdb", format_pdb), ("cif", format_mmcif)):
        path = tmp_path / f"x.{kind}"
        path.write_text(text(prediction, Provenance("x", "foldcli", "random")))
        found = read_start_positions(path, lengths)
        assert found.shape == (len(prediction.aatype), 37, 3) and found.dtype == np.float32
        assert np.allclose(found[compared], prediction.atom_positions[compared], atol=1e-3)
        # glycine gets a CB, too, for a target with another residue there
        assert np.isfinite(found[:, BETA]).all()
        assert np.isnan(found[~present & (np.arange(37) != BETA)]).all()


def test_structures_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    prediction = complex_prediction(1)
    path = tmp_path / "x.pdb"
    path.write_text(format_pdb(prediction, Provenance("x", "foldcli", "random")))
    with pytest.raises(InputError, match="protein chains, but the target has 1"):
        read_start_positions(path, [("A", 30)])
    lengths = [(name, 5) for name in "ABCD"[: prediction.num_chains]]
    with pytest.raises(InputError, match=r"chain A has \d+ residues, but chain A of the target has 5"):
        read_start_positions(path, lengths)
