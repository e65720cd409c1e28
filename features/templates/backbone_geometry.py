"""Ideal positions of backbone atoms, and the closing of loops between fixed residues."""

import numpy as np

from features.templates import compiled_loops
from features.templates.compiled_loops import C_O

# phi and psi that a loop starts from: extended, polyproline, bridge, helix
_STARTS = np.radians([(-120.0, 130.0), (-75.0, 145.0), (-90.0, 0.0), (-63.0, -43.0)])
_MAX_ROUNDS = 300
_CLOSED = 0.1  # Å, root mean square distance of the last residue's backbone from its target


def place_beta(n: np.ndarray, alpha: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return ideal positions of CB, [..., 3], from those of N, CA and C in Å."""
    to_alpha, from_alpha = alpha - n, c - alpha
    normal = np.cross(to_alpha, from_alpha)
    return alpha - 0.58273431 * normal + 0.56802827 * to_alpha - 0.54067466 * from_alpha


def place_oxygen(alpha: np.ndarray, c: np.ndarray, next_n: np.ndarray) -> np.ndarray:
    """Return ideal positions of O, [..., 3], from those of CA, C and the next residue's N in Å."""
    outward = _unit(_unit(c - alpha) + _unit(c - next_n))
    return c + C_O * outward


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def close_loop(before: np.ndarray, after: np.ndarray, residues: int) -> list[np.ndarray]:
    """Build loops between two fixed residues, by cyclic coordinate descent from several conformations.

    Each torsion angle in turn gets the value that brings the end of the loop closest to its target (Canutescu
    & Dunbrack, Protein Sci. 12:963, 2003). Bond lengths and angles are ideal, peptides planar and trans.

    Args:
        before: float64 [3, 3], N, CA and C of the residue before the loop, Å.
        after: float64 [3, 3], the same of the residue after it.
        residues: length of the loop, ≥ 1.

    Returns:
        N, CA and C of the loop, float64 [residues, 3, 3], for each start that could be closed.
    """
    loops = []
    for phi, psi in _STARTS:
        chain = compiled_loops.extend_chain(np.asarray(before, np.float64), residues + 1, phi, psi)
        if compiled_loops.descend(chain, np.asarray(after, np.float64)[None], _MAX_ROUNDS, _CLOSED):
            loops.append(chain[1:-1])
    return loops
