"""Scores of aligned atoms: superposition, lDDT, TM-score and GDT."""

import numpy as np

_THRESHOLDS = np.array([0.5, 1.0, 2.0, 4.0])
_BLOCK = 256  # atoms whose distances to all others are in memory at once
_MIN_FRAGMENT = 4
_MAX_ROUNDS = 20


def superpose(moved: np.ndarray, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rotation (3, 3) and shift (3,) with the least RMSD of `moved @ rotation + shift` (Kabsch).

    Args:
        moved: (N, 3), Å.
        fixed: (N, 3), Å.
    """
    center, target = moved.mean(0), fixed.mean(0)
    u, _, vt = np.linalg.svd((moved - center).T @ (fixed - target))
    u[:, -1] *= np.sign(np.linalg.det(u) * np.linalg.det(vt))
    rotation = u @ vt
    return rotation, target - center @ rotation


def rmsd(first: np.ndarray, second: np.ndarray) -> float:
    """Return the RMSD of points (N, 3) without superposition."""
    return float(np.sqrt(((first - second) ** 2).sum(-1).mean()))


def superposed_rmsd(moved: np.ndarray, fixed: np.ndarray) -> float:
    """Return the RMSD of points (N, 3) after superposition; NaN with less than three."""
    if len(moved) < 3:
        return float("nan")
    rotation, shift = superpose(moved, fixed)
    return rmsd(moved @ rotation + shift, fixed)


def lddt(model: np.ndarray, reference: np.ndarray, residues: np.ndarray, radius: float = 15.0) -> float:
    """Return lDDT (Mariani et al. 2013), 0 to 1: the fraction of preserved distances.

    Args:
        model: (N, 3), Å; NaN for atoms that the model lacks, whose distances count as not preserved.
        reference: (N, 3), Å.
        residues: (N,), index of each atom's residue; distances within a residue do not count.
        radius: distances of the reference that are longer do not count.
    """
    preserved, total = 0, 0
    for start in range(0, len(reference), _BLOCK):
        rows = slice(start, start + _BLOCK)
        expected = np.linalg.norm(reference[rows, None] - reference, axis=-1)
        i, j = np.nonzero((expected < radius) & (residues[rows, None] != residues))
        deviation = np.abs(np.linalg.norm(model[rows][i] - model[j], axis=-1) - expected[i, j])
        preserved += int((deviation[:, None] < _THRESHOLDS).sum())
        total += len(_THRESHOLDS) * len(i)
    return preserved / total if total else float("nan")


def tm_score(model: np.ndarray, reference: np.ndarray, length: int) -> float:
    """Return the TM-score (Zhang & Skolnick 2004) of paired CA atoms.

    Args:
        model: (N, 3), Å.
        reference: (N, 3), Å.
        length: residues of the whole reference, by which the sum is divided.
    """
    d0 = max(0.5, 1.24 * (length - 15) ** (1 / 3) - 1.8) if length > 21 else 0.5
    sums = [
        (1 / (1 + (distances / d0) ** 2)).sum()
        for distances in _superpositions(model, reference, min(max(d0, 4.5), 8.0))
    ]
    return float(max(sums, default=0.0)) / length


def gdt(model: np.ndarray, reference: np.ndarray, length: int, cutoffs: tuple[float, ...]) -> float:
    """Return the mean over cutoffs of the largest fraction of CA atoms within each (Zemla 2003).

    GDT-TS has the cutoffs 1, 2, 4 and 8 Å, GDT-HA 0.5, 1, 2 and 4 Å. Arguments as in `tm_score`.
    """
    best = [
        max((int((d <= cutoff).sum()) for d in _superpositions(model, reference, cutoff)), default=0)
        for cutoff in cutoffs
    ]
    return float(np.mean(best)) / length


def _superpositions(model: np.ndarray, reference: np.ndarray, cutoff: float) -> list[np.ndarray]:
    """Return distances (N,) after superpositions of fragments that grow to the pairs within a cutoff."""
    found: list[np.ndarray] = []
    count = len(model)
    if count < 3:
        return found
    size = count
    while size >= min(_MIN_FRAGMENT, count):
        for start in range(0, count - size + 1, max(1, size // 2)):
            selected = np.arange(start, start + size)
            for _ in range(_MAX_ROUNDS):
                rotation, shift = superpose(model[selected], reference[selected])
                distances = np.linalg.norm(model @ rotation + shift - reference, axis=-1)
                found.append(distances)
                near = np.nonzero(distances <= max(cutoff, np.partition(distances, 2)[2]))[0]
                if np.array_equal(near, selected):
                    break
                selected = near
        if size <= _MIN_FRAGMENT:
            break
        size = max(size // 2, _MIN_FRAGMENT)
    return found
