"""Small networks with OpenFold3's parameters, and the inputs and values recorded of them."""

from dataclasses import fields
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3
from tests.model.alphafold3.goldens import load_network

DATA = Path(__file__).parent / "data"
NETWORKS = ("openbind", "p2")


@cache
def sample(name: str) -> dict[str, np.ndarray]:
    """Return the sample of a network's values."""
    return dict(np.load(DATA / f"{name}.npz"))


def features(name: str) -> AlphaFold3Inputs:
    """Return the inputs of a sample."""
    arrays = {key.removeprefix("features/"): x for key, x in sample(name).items() if "features/" in key}
    return AlphaFold3Inputs.from_arrays(arrays)


def shallow_names(name: str) -> list[str]:
    """Return names and shapes in the checkpoint of a network with the sample's depths."""
    depths = {
        "pairformer_stack.blocks": 2,
        "msa_module.blocks": 2,
        "diffusion_transformer.blocks": 2,
        "atom_transformer.blocks": 2,
        "template_pair_stack.blocks": 1,
        "pairformer_embedding.pairformer_stack.blocks": 1,
    }
    lines = bytes(sample(name)["names"]).decode().splitlines()
    for stack, depth in depths.items():
        deeper = [f"{stack}.{block}." for block in range(depth, 48)]
        lines = [line for line in lines if not any(part in line for part in deeper)]
    # the last block of the MSA module does not update the alignment
    return [line for line in lines if not line.startswith(("msa_module.blocks.1.msa_",))]


@cache
def network(name: str) -> AlphaFold3:
    """Return the network of a sample."""
    return load_network(shallow_names(name))


def pad(inputs: AlphaFold3Inputs, tokens: int, atoms: int) -> AlphaFold3Inputs:
    """Add tokens and atoms whose masks are 0; all their other values are 1, which nothing may read."""
    sizes = {len(inputs.token_mask): tokens, len(inputs.atom_mask): atoms}
    padded = {}
    for item in fields(inputs):
        x = getattr(inputs, item.name)
        widths = [width for size in reversed(x.shape) for width in (0, sizes.get(size, 0))]
        value = 0 if item.name.endswith("_mask") else 1
        padded[item.name] = F.pad(x.to(torch.float32), widths, value=value).to(x.dtype)
    return AlphaFold3Inputs(**padded)
