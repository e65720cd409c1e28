"""Scores of aligned atoms: lDDT, TM-score and GDT."""

import numpy as np

from model.comparison.superposition import fitted_distances

THRESHOLDS = np.array([0.5, 1.0, 2.0, 4.0])  # Å, of lDDT
RADIUS = 15.0  # Å
_BLOCK = 256  # atoms whose distances to all others are in memory at once


def lddt(model: np.ndarray, reference: np.ndarray, residues: np.ndarray) -> tuple[float, np.ndarray]:
    """Return lDDT (Mariani et al. 2013), 0 to 1, of all atoms and of each residue; NaN without distances.

    Args:
        model: (N, 3), Å; NaN for atoms that the model lacks, whose distances count as not preserved.
        reference: (N, 3), Å.
        residues: (N,), index of each atom's residue; distances within a residue do not count.
    """
    count = int(residues.max(initial=-1)) + 1
    preserved, total = np.zeros(count), np.zeros(count)
    for start in range(0, len(reference), _BLOCK):
        rows = slice(start, start + _BLOCK)
        low, high = reference[rows].min(0) - RADIUS, reference[rows].max(0) + RADIUS
        later = start + np.nonzero(((reference[start:] > low) & (reference[start:] < high)).all(1))[0]
        expected = distances(reference[rows], reference[later])
        owners, others = residues[rows], residues[later]
        i, j = np.nonzero((expected < RADIUS) & (owners[:, None] < others))
        deviation = np.abs(distances(model[rows], model[later]) - expected)[i, j]
        kept = sum((deviation < threshold).astype(float) for threshold in THRESHOLDS) / len(THRESHOLDS)
        for index in (owners[i], others[j]):
            preserved += np.bincount(index, kept, count)
            total += np.bincount(index, minlength=count)
    with np.errstate(invalid="ignore"):
        return float(np.divide(preserved.sum(), total.sum())), preserved / total


def distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the distances (N, M) of points (N, 3) and (M, 3)."""
    squared = (first**2).sum(1)[:, None] + (second**2).sum(1) - 2 * first @ second.T
    return np.sqrt(np.maximum(squared, 0))


def tm_score(
    model: np.ndarray, reference: np.ndarray, length: int, is_nucleic: bool = False, max_starts: int = 256
) -> float:
    """Return the TM-score (Zhang & Skolnick 2004; of nucleic acids Gong et al. 2019) of paired atoms.

    CA or C3' atoms are (N, 3), Å. The sum is divided by the residues of the whole reference, most of which
    may be nucleotides. For `max_starts` see `fitted_distances`.
    """
    d0 = _nucleic_scale(length) if is_nucleic else protein_scale(length)
    cutoff = min(max(d0, 4.5), 8.0)
    sums = [
        (1 / (1 + squared / d0**2)).sum(1).max()
        for squared in fitted_distances(model, reference, cutoff + 1, cutoff - 1, max_starts)
    ]
    return float(max(sums, default=0.0)) / length


def protein_scale(length: int) -> float:
    """Return d0 of the TM-score of a protein, Å."""
    return max(0.5, 1.24 * (length - 15) ** (1 / 3) - 1.8) if length > 21 else 0.5


def _nucleic_scale(length: int) -> float:
    if length >= 30:
        return 0.6 * (length - 0.5) ** 0.5 - 2.5
    return next(d0 for most, d0 in ((11, 0.3), (15, 0.4), (19, 0.5), (23, 0.6), (29, 0.7)) if length <= most)


def gdt(model: np.ndarray, reference: np.ndarray, length: int) -> tuple[float, float]:
    """Return GDT-TS and GDT-HA (Zemla 2003), 0 to 1, of paired atoms. Arguments as in `tm_score`.

    They are means over cutoffs of the largest fraction of atoms that one superposition brings within each:
    1, 2, 4 and 8 Å, and 0.5, 1, 2 and 4 Å.
    """
    fractions = {}
    for cutoff in (0.5, 1, 2, 4, 8):
        found = fitted_distances(model, reference, cutoff)
        most = max((int((squared <= cutoff**2).sum(1).max()) for squared in found), default=0)
        fractions[cutoff] = most / length
    fine, *common, coarse = fractions.values()
    return sum([*common, coarse]) / 4, sum([fine, *common]) / 4
