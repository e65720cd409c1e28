"""Tests of the all-atom network with DeepMind's parameters against its own code, on random ones.

`make_deepmind_goldens.py` records the values.
"""

import struct
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import zstandard

from features.alphafold3.templates import TemplateRows, template_features
from model.alphafold3.config import DEEPMIND
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3, Trunk
from model.alphafold3.sampling import SeededDraws
from model.checkpoints.alphafold3 import fourier_constants, to_openfold3
from model.checkpoints.openfold3 import read_checkpoint, recognise, translate
from model.errors import ParametersError
from tests.model.alphafold3.drawn_parameters import deepmind_parameter, random_templates
from tests.model.alphafold3.goldens import relative_rms

DATA = Path(__file__).parent / "data"
KEPT, SIGMA = slice(None, None, 10), 160.0


@cache
def recorded() -> dict[str, np.ndarray]:
    """Return the values of DeepMind's code."""
    return dict(np.load(DATA / "deepmind.npz"))


def shapes(key: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of arrays by scope and name."""
    lines = (line.split("\t") for line in bytes(recorded()[key]).decode().splitlines())
    return {f"{scope}/{name}": tuple(map(int, shape.split("x"))) for scope, name, shape in lines}


def inputs() -> AlphaFold3Inputs:
    """Return the inputs of the recorded values."""
    stored = np.load(DATA / "openbind.npz")
    arrays = {key.removeprefix("features/"): stored[key][0] for key in stored if key.startswith("features/")}
    drawn = random_templates(arrays)
    atoms = np.where(drawn["mask"][..., None], drawn["positions"], np.nan)
    glycine = drawn["classes"] == 7
    beta = np.where(glycine[..., None], atoms[:, :, 1], atoms[:, :, 4])
    rows = TemplateRows(drawn["classes"], beta, atoms[:, :, :3])
    tokens = SimpleNamespace(chain=arrays["asym_id"])
    arrays |= template_features(tokens, rows, len(drawn["classes"]))  # type: ignore[arg-type]
    return AlphaFold3Inputs.from_arrays(arrays).for_deepmind()


@cache
def network() -> AlphaFold3:
    """Return the network with the parameters of the recorded values."""
    arrays = {
        name: torch.from_numpy(deepmind_parameter(name, shape))
        for name, shape in shapes("shallow_names").items()
    }
    return AlphaFold3.load(*translate(to_openfold3(arrays)))


@torch.inference_mode()
def test_network_matches_deepminds() -> None:
    target, model = inputs(), network()
    trunk: Trunk = model.trunk(target, SeededDraws(0), cycles=2)
    noisy = 10 * np.random.default_rng(0).standard_normal((len(target.atom_mask), 3)).astype(np.float32)
    positions = torch.from_numpy(noisy)
    module = model.diffusion_module
    conditions = module.conditions(target, trunk.features, trunk.single, trunk.pair, trunk.relative)
    logits = model.heads(target, trunk, positions)
    # theirs has residue types in another order
    atoms = trunk.features[KEPT, :384]
    found = {
        "target_feat": (atoms, recorded()["target_feat"][:, 63:]),
        "single": (trunk.single[KEPT], recorded()["single"]),
        "pair": (trunk.pair[KEPT, KEPT], recorded()["pair"]),
        "distogram": (model.aux_heads.distogram(trunk.pair)[KEPT, KEPT], recorded()["distogram"]),
        "denoised": (
            module(target, conditions, positions[None], torch.tensor(SIGMA))[0],
            recorded()["denoised"],
        ),
    }
    for theirs, ours in (
        ("predicted_lddt", logits.plddt[KEPT]),
        ("experimentally_resolved", logits.resolved[KEPT]),
        ("predicted_aligned_error", logits.pae[KEPT, KEPT]),
        ("predicted_distance_error", logits.pde[KEPT, KEPT]),
    ):
        found[theirs] = ours, recorded()[f"heads/{theirs}_logits"]
    differences = {name: relative_rms(x, expected) for name, (x, expected) in found.items()}
    print(differences)
    assert {name: x for name, x in differences.items() if not x <= 3e-6} == {}
