"""Tests of the clusters of an alignment's rows."""

import numpy as np

from features.alphafold2.row_clusters import cluster_rows, select_rows
from features.alphafold2.sampling import SamplingSettings, sample_features
from msa.base.residues import GAP, UNKNOWN
from tests.features.alphafold2.random_features import random_features


def families(sizes: tuple[int, ...], length: int = 60, changes: int = 5) -> np.ndarray:
    """Return an alignment of families of rows that differ in a few positions from a random one."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 20, length)]
    for size in sizes:
        center = rng.integers(0, 20, length)
        for _ in range(size):
            row = center.copy()
            row[rng.choice(length, changes, replace=False)] = rng.integers(0, 22, changes)
            rows.append(row)
    rows += [rng.integers(0, 20, length) for _ in range(4)]  # related to nothing
    gappy = rows[1].copy()
    gappy[: length // 2] = GAP
    return np.array([*rows, gappy], np.int8)


def naive_dbscan(points: np.ndarray, epsilon: float) -> list[set[int]]:
    """Return the clusters of core points, with the points that only one of them reaches."""
    near = [set(np.flatnonzero(np.linalg.norm(points - point, axis=1) <= epsilon)) for point in points]
    cores = {index for index, others in enumerate(near) if len(others) >= 3}
    clusters = []
    while cores:
        group, reached = set(), {min(cores)}
        while reached:
            group |= reached
            reached = {other for index in reached for other in near[index] & cores} - group
        clusters.append({other for index in group for other in near[index]})
        cores -= group
    return clusters


def test_families_are_found_and_equal_a_slow_clustering() -> None:
    msa = families((20, 35, 12))
    found = cluster_rows(msa)
    # one row of the last family is too far from the others
    assert [len(rows) for rows in found.rows] == [35, 20, 11]
    assert [rows[0] for rows in found.rows] == [21, 1, 56]
    encoded = np.eye(22)[msa[1:-1]]
    encoded[..., UNKNOWN] = 0
    slow = naive_dbscan(encoded.reshape(len(encoded), -1), found.epsilon)
    assert sorted(map(sorted, slow)) == sorted((rows - 1).tolist() for rows in found.rows)


def test_alignments_without_families_have_no_cluster() -> None:
    assert cluster_rows(families(())).rows == ()
    assert cluster_rows(families((5,))[:2]).rows == ()


def test_selected_rows_are_an_alignment_of_their_own() -> None:
    features = random_features(30, 12)
    rows = np.array([3, 7, 20])
    selected = select_rows(features, rows)
    assert (selected["msa"] == features["msa"][[0, 3, 7, 20]]).all() and selected["num_alignments"] == 4
    counts = (selected["msa"][..., None] == np.arange(22)).mean(axis=0)
    assert np.allclose(selected["hhblits_profile"], counts)
    assert sample_features(selected, SamplingSettings(8, 4), 1, 0)["msa_feat"].shape[:2] == (1, 4)
    assert SamplingSettings(8, masked_fraction=0.0, seeds_differ=True).is_random(2)
