"""Superposition of paired points, of all or of those that fit best."""

from collections.abc import Iterator

import numpy as np

_MIN_FRAGMENT = 4
_FRAGMENT_LENGTHS = 6
_MAX_STARTS = 256
_MAX_ROUNDS = 20
_BLOCK = 4_000_000  # distances in memory at once


def superpose(moved: np.ndarray, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rotation (3, 3) and shift (3,) with the least RMSD of `moved @ rotation + shift` (Kabsch).

    Points are (N, 3), Å.
    """
    center, target = moved.mean(0), fixed.mean(0)
    rotation = _rotations((moved - center).T @ (fixed - target))
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


def fitted_distances(
    moved: np.ndarray,
    fixed: np.ndarray,
    cutoff: float,
    first_cutoff: float | None = None,
    max_starts: int = _MAX_STARTS,
) -> Iterator[np.ndarray]:
    """Yield squared distances (B, N) after many superpositions, each of a subset of points that fit well.

    Fragments of several lengths are superposed; then, in each round, all pairs within the cutoff. Points are
    (N, 3), Å, cutoffs Å; that after the superposition of fragments may be another one. There are at most
    `max_starts` fragments of each length.
    """
    count = len(moved)
    if count < 3:
        return
    moved, fixed = moved - moved.mean(0), fixed - fixed.mean(0)
    # the squared distance is linear in these, see `_fit`
    terms = np.concatenate(
        [
            (moved[:, :, None] * fixed[:, None]).reshape(count, 9), moved, fixed,
            (moved**2 + fixed**2).sum(1, keepdims=True), np.ones((count, 1)),
        ], axis=1,
    )  # fmt: skip
    fragments = _fragments(count, max_starts)
    size = max(1, _BLOCK // count)
    for start in range(0, len(fragments), size):
        selected = fragments[start : start + size]
        limit = cutoff if first_cutoff is None else first_cutoff
        for _ in range(_MAX_ROUNDS):
            squared = np.maximum(_fit(selected @ terms) @ terms.T, 0)
            yield squared
            near = squared <= limit**2
            few = near.sum(1) < 3
            near[few] = squared[few] <= np.partition(squared[few], 2, axis=1)[:, 2:3]
            selected = near[(near != selected).any(1)].astype(float)
            limit = cutoff
            if not len(selected):
                break


def _fragments(count: int, max_starts: int) -> np.ndarray:
    """Return the fragments of a chain of points, (B, N) of 0 and 1."""
    shortest = min(_MIN_FRAGMENT, count)
    lengths = {max(count >> k, shortest) for k in range(_FRAGMENT_LENGTHS - 1)} | {shortest}
    step = max(1, count // max_starts)
    spans = [
        (start, start + n) for n in sorted(lengths, reverse=True) for start in range(0, count - n + 1, step)
    ]
    index, ends = np.arange(count), np.array(spans)
    return ((index >= ends[:, :1]) & (index < ends[:, 1:])).astype(float)


def _fit(sums: np.ndarray) -> np.ndarray:
    """Return the coefficients (B, 17) that give squared distances of superposed points from their terms.

    Sums (B, 17) are those of the terms of `fitted_distances` over the points to superpose.
    """
    means = sums / sums[:, 16:]
    center, target = means[:, 9:12], means[:, 12:15]
    rotation = _rotations(means[:, :9].reshape(-1, 3, 3) - center[:, :, None] * target[:, None])
    shift = target - (center[:, None] @ rotation)[:, 0]
    one = np.ones((len(sums), 1))
    return np.concatenate(
        [
            -2 * rotation.reshape(-1, 9), 2 * (rotation @ shift[:, :, None])[:, :, 0], -2 * shift, one,
            (shift**2).sum(1, keepdims=True),
        ], axis=1,
    )  # fmt: skip


def _rotations(covariance: np.ndarray) -> np.ndarray:
    """Return the best proper rotations (..., 3, 3) for covariances of moved and fixed points."""
    u, _, vt = np.linalg.svd(covariance)
    u[..., -1] *= np.sign(np.linalg.det(u) * np.linalg.det(vt))[..., None]
    return u @ vt
