"""Superposition of a model and its hits: TM-scores and lDDT of the aligned residues."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from features.chemistry.residues import CA
from features.templates.library.chains import TemplateChain
from model.comparison.scores import lddt, protein_scale
from model.comparison.superposition import fitted_distances, superpose

_CUTOFF = 8.0  # Å, of pairs that a superposition is made of
_MAX_STARTS = 6


@dataclass(frozen=True, eq=False)
class SuperposedHit:
    """A hit on its query.

    Args:
        lddt: of the CA atoms of aligned residues, 0 to 1.
        alntmscore: TM-score by the number of aligned residues.
        qtmscore: TM-score by the residues of the query.
        ttmscore: TM-score by the residues of the hit.
        rotation: float64 [3, 3], applied to row vectors from the right; it moves the chain onto the query.
        shift: float64 [3], Å, added then.
    """

    lddt: float
    alntmscore: float
    qtmscore: float
    ttmscore: float
    chain: TemplateChain
    rotation: np.ndarray
    shift: np.ndarray

    def moved(self) -> TemplateChain:
        """Return the chain on the query."""
        positions = (self.chain.positions @ self.rotation + self.shift) * self.chain.mask[..., None]
        return replace(self.chain, positions=positions.astype(np.float32))


def superpose_hit(query: TemplateChain, hit: TemplateChain, pairs: np.ndarray) -> SuperposedHit:
    """Superpose a hit on its query.

    Args:
        query: the query.
        hit: the hit's chain.
        pairs: int64 [n, 2], aligned residues of query and hit, from 0.
    """
    fixed, moved = paired_traces(query, hit, pairs)
    scores, near = tm_scores(moved, fixed, (len(moved), query.resolved, hit.resolved))
    rotation, shift = superpose(moved[near], fixed[near]) if near.sum() > 2 else (np.eye(3), np.zeros(3))
    agreement, _ = lddt(moved, fixed, np.arange(len(moved)))
    of_pairs, of_query, of_hit = scores
    return SuperposedHit(agreement, of_pairs, of_query, of_hit, hit, rotation, shift)


def paired_traces(
    query: TemplateChain, hit: TemplateChain, pairs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the CA atoms, float64 [m, 3], of those pairs of query and hit that have both."""
    known = pairs[query.mask[pairs[:, 0], CA] & hit.mask[pairs[:, 1], CA]]
    fixed, moved = (
        chain.positions[known[:, side], CA].astype(np.float64) for side, chain in enumerate((query, hit))
    )
    return fixed, moved


def tm_scores(moved: np.ndarray, fixed: np.ndarray, lengths: Sequence[int]) -> tuple[list[float], np.ndarray]:
    """Return the TM-score of paired points for each length, and the pairs that the best superposition fits.

    Fewer superpositions are tried than by `model.comparison.scores.tm_score`.

    Args:
        moved: [n, 3], CA atoms, Å.
        fixed: [n, 3], Å.
        lengths: residues, by which the sums are divided.
    """
    scales = np.array([protein_scale(length) for length in lengths])
    best, near = np.zeros(len(lengths)), np.ones(len(moved), bool)
    for squared in fitted_distances(moved, fixed, _CUTOFF, max_starts=_MAX_STARTS):
        sums = (1 / (1 + squared[..., None] / scales**2)).sum(axis=1)
        if sums[:, 0].max() > best[0]:
            near = squared[sums[:, 0].argmax()] <= _CUTOFF**2
        best = np.maximum(best, sums.max(axis=0))
    return (best / np.maximum(lengths, 1)).tolist(), near
