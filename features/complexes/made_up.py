"""Made-up features, with which a GPU is prepared before the first target is ready."""

from typing import Any

import numpy as np

from features.alphafold2.deterministic import make_features
from features.complexes.features import complex_features
from msa.alignments.files import parse_alignment
from msa.base.network_inputs import MONOMER


def warm_up_sample(residues: int, is_multimer: bool) -> Any:
    """Return the network's features of a protein of alanine without relatives, for two passes.

    Values do not matter to the preparation. For networks that do not sample rows themselves, this therefore
    needs no compiled kernels, which worker processes would have to load.

    Args:
        residues: length of the protein.
        is_multimer: whether the network is one of AlphaFold-Multimer, which samples rows itself.
    """
    if is_multimer:
        return complex_features([make_features([parse_alignment(b">a\n" + b"A" * residues + b"\n")])])
    sizes = {"N": residues, "S": 1, "E": 1}
    return {
        name: np.full((2, *array.shape(sizes)), name.endswith("mask"), array.dtype)
        for name, array in MONOMER.items()
        if not name.startswith("template_")
    }
