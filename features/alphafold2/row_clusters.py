"""Clusters of the rows of an alignment, each of which may give another state of the protein.

Source: AF_Cluster (Wayment-Steele et al., Nature 625, 832, 2024): DBSCAN of one-hot encoded rows, with the
distance at which a quarter of the rows has most clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from features.alphafold2.deterministic import column_profile
from features.alphafold2.random_draws import PhiloxDraws
from msa.base.residues import GAP, UNKNOWN

# rows with a larger share of gaps are left out
_MAX_GAPS = 0.25
_EPSILONS = np.arange(3.0, 20.5, 0.5)
_MIN_SAMPLES = 3
# share of the rows in the scan of distances
_SCANNED = 0.25
# of more rows, the first ones are clustered: all pairs are compared
_MAX_ROWS = 8192


@dataclass(frozen=True, eq=False)
class RowClusters:
    """The clusters of an alignment.

    Args:
        rows: rows of each cluster, ascending and without the query; the largest cluster first.
        epsilon: distance up to which rows are neighbours.
    """

    rows: tuple[np.ndarray, ...]
    epsilon: float


def cluster_rows(msa: np.ndarray) -> RowClusters:
    """Cluster the rows of an alignment, codes [M, N], except for the query."""
    candidates = 1 + np.flatnonzero((msa[1:] == GAP).mean(axis=1) < _MAX_GAPS)[:_MAX_ROWS]
    if len(candidates) < _MIN_SAMPLES:
        return RowClusters((), float(_EPSILONS[0]))
    order = PhiloxDraws(0, 0).sample_order(len(candidates))
    scanned = np.sort(candidates[order[: max(_MIN_SAMPLES, round(_SCANNED * len(candidates)))]])
    squared = _squared_distances(msa[scanned])
    # noise counts, too, as in the authors' script
    counts = [len(np.unique(_dbscan(squared <= epsilon**2))) for epsilon in _EPSILONS]
    epsilon = float(_EPSILONS[int(np.argmax(counts))])
    labels = _dbscan(_squared_distances(msa[candidates]) <= epsilon**2)
    clusters = [candidates[labels == label] for label in range(int(labels.max(initial=-1)) + 1)]
    return RowClusters(tuple(sorted(clusters, key=lambda rows: -len(rows))), epsilon)


def select_rows(features: Mapping[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the features of a chain with the query and some other rows of its alignment."""
    kept = np.append(0, rows)
    msa = features["msa"][kept]
    return {
        **features,
        "msa": msa,
        "deletion_matrix": features["deletion_matrix"][kept],
        "num_alignments": np.array(len(kept), np.int32),
        "hhblits_profile": column_profile(msa),
    }


def _squared_distances(msa: np.ndarray) -> np.ndarray:
    """Return the squared distances of one-hot encoded rows, float32 [M, M]; a gap is a letter, X is none."""
    matches = np.zeros((len(msa), len(msa)), np.float32)
    for code in range(int(msa.max(initial=0)) + 1):
        if code != UNKNOWN:
            is_code = (msa == code).astype(np.float32)
            matches += is_code @ is_code.T
    letters = matches.diagonal()
    return letters[:, None] + letters - 2 * matches


def _dbscan(is_near: np.ndarray) -> np.ndarray:
    """Return the cluster of each row, −1 for noise (Ester et al., KDD 1996), given neighbours, bool [M, M].

    A row that is near several clusters belongs to the first that reaches it, as in scikit-learn.
    """
    is_core = is_near.sum(axis=1) >= _MIN_SAMPLES
    labels = np.full(len(is_near), -1)
    number = 0
    for first in np.flatnonzero(is_core):
        if labels[first] >= 0:
            continue
        stack = [first]
        labels[first] = number
        while stack:
            reached = np.flatnonzero(is_near[stack.pop()] & (labels < 0))
            labels[reached] = number
            stack += reached[is_core[reached]].tolist()
        number += 1
    return labels
