"""Positions that the first pass takes as those of a pass before it: AlphaFold2's initial guess.

Source: Bennett et al., Nat. Commun. 14, 2625 (2023).
"""

import os
from collections.abc import Sequence

import numpy as np

from features.templates.backbone_geometry import place_beta
from features.templates.library.structure_files import read_chains
from msa.base.errors import InputError
from msa.base.residues import ATOM37

_N, _CA, _C, _CB = (ATOM37.index(name) for name in ("N", "CA", "C", "CB"))


def read_start_positions(path: str | os.PathLike[str], lengths: Sequence[tuple[str, int]]) -> np.ndarray:
    """Return the positions of a structure's atoms for the residues of a target, float32 [N, 37, 3] in Å.

    Atoms without coordinates are NaN, except that a CB is placed where the backbone has coordinates, because
    the structure may have other residue types. Chains correspond in their order.

    Raises:
        InputError: the file is no structure, or has another number of protein chains or residues.
    """
    chains = read_chains(path, min_residues=1)
    if len(chains) != len(lengths):
        raise InputError(f"{len(chains)} protein chains, but the target has {len(lengths)}", path)
    starts = []
    for chain, (name, length) in zip(chains, lengths, strict=True):
        if len(chain.sequence) != length:
            reason = f"chain {chain.id.rpartition('_')[2]} has {len(chain.sequence)} residues"
            raise InputError(f"{reason}, but chain {name} of the target has {length}", path)
        positions = np.where(chain.mask[..., None], chain.positions, np.nan)
        backbone = positions[:, [_N, _CA, _C]].swapaxes(0, 1)
        beta = np.where(chain.mask[:, _CB, None], positions[:, _CB], place_beta(*backbone))
        positions[:, _CB] = beta
        starts.append(positions.astype(np.float32))
    return np.concatenate(starts)
