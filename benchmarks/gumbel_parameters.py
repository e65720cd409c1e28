"""Parameters of the score distribution of a matrix with gap costs, by simulation, beside the published ones.

    python benchmarks/gumbel_parameters.py MATRIX OPEN EXTEND [--pairs 40000] [--threads 2]

Gap costs are counted as NCBI does: the first residue of a gap costs OPEN + EXTEND. Residues are drawn with
the frequencies of Robinson & Robinson (PNAS 88:8880, 1991), as for the published parameters. Without gaps λ
is the root of Karlin and Altschul's equation, and a and α follow from mean and variance of the scores of
paired residues in alignments. With gaps a, α and σ are the slopes of mean, variance and covariance of the
lengths of the best alignments of long random sequences over their scores; λ and K are then the most likely
ones for the scores of pairs of several lengths, with the finite-size correction that searches use.
"""

import argparse
import math
from dataclasses import replace

import numpy as np

from msa.alphabet import STANDARD
from msa.cpu.smith_waterman import align
from msa.cpu.smith_waterman_scores import alignment_scores
from msa.database.sequence_arrays import SequenceArrays
from msa.profile.gumbel import TABLES, GumbelParameters
from msa.profile.matrices import substitution_matrix
from msa.profile.statistics import evalues

ROBINSON = dict(
    zip(
        "ARNDCQEGHILKMFPSTWYV",
        (78.05, 51.29, 44.87, 53.64, 19.25, 42.64, 62.95, 73.77, 21.99, 51.42,
         90.19, 57.44, 22.43, 38.56, 52.03, 71.20, 58.41, 13.30, 32.16, 64.41),
        strict=True,
    )
)  # fmt: skip
LENGTHS = (500, 1000, 2000)
QUERIES = 40


def ungapped(matrix: np.ndarray, frequencies: np.ndarray) -> tuple[float, float, float]:
    """λ, a and α without gaps."""
    pairs = np.outer(frequencies, frequencies)
    low, high = 0.01, 2.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if (pairs * np.exp(middle * matrix)).sum() < 1 else (low, middle)
    tilted = pairs * np.exp(low * matrix)
    mean = (tilted * matrix).sum()
    return low, 1 / mean, (tilted * matrix**2).sum() / mean**3 - 1 / mean


def random_targets(
    rng: np.random.Generator, frequencies: np.ndarray, length: int, count: int
) -> SequenceArrays:
    residues = rng.choice(20, length * count, p=frequencies).astype(np.uint8)
    return SequenceArrays(residues, np.arange(count) * length, np.full(count, length))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("matrix")
    parser.add_argument("gap_open", type=int)
    parser.add_argument("gap_extend", type=int)
    parser.add_argument("--pairs", type=int, default=40000, help="of each length")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    scores_of = substitution_matrix(options.matrix)
    frequencies = np.array([ROBINSON[letter] for letter in STANDARD])
    frequencies /= frequencies.sum()
    decay, a, alpha = ungapped(scores_of[:20, :20].astype(float), frequencies)
    print(f"{options.matrix} without gaps: λ {decay:.4f}, a {a:.4f}, α {alpha:.4f}")
    gaps = options.gap_open + options.gap_extend, options.gap_extend
    rng = np.random.default_rng(0)
    observed: list[tuple[int, np.ndarray]] = []
    best: list[tuple[int, int, int]] = []
    for length in LENGTHS:
        found = []
        best.clear()  # of the longest alone: short ones have no room for long alignments
        for _ in range(QUERIES):
            query = rng.choice(20, length, p=frequencies).astype(np.uint8)
            targets = random_targets(rng, frequencies, length, options.pairs // QUERIES)
            profile, every = np.ascontiguousarray(scores_of[query]), np.arange(len(targets))
            found.append(alignment_scores(profile, targets, every, *gaps, options.threads))
            few = every[: len(targets) // 4]
            for one in align(profile, query, targets, few, *gaps, options.threads):
                best.append(
                    (
                        one.score,
                        one.query_end - one.query_start + 1,
                        one.target_end - one.target_start + 1,
                    )
                )
        observed.append((length, np.concatenate(found)))
    slopes = length_slopes(np.array(best, float))
    first = GumbelParameters(decay, 0.1, *slopes, options.gap_open + options.gap_extend, a, alpha)
    fitted = most_likely(first, observed)
    of_gaps = f"λ {fitted.lambda_:.4f}, K {fitted.k:.4f}"
    of_lengths = f"a {slopes[0]:.3f}, α {slopes[1]:.3f}, σ {slopes[2]:.3f}"
    print(f"{options.gap_open}/{options.gap_extend}: {of_gaps}, {of_lengths}")
    table = TABLES.get(options.matrix)
    if table and (options.gap_open, options.gap_extend) in table.gapped:
        print(f"in the tables: {table.gapped[options.gap_open, options.gap_extend]}")


def length_slopes(best: np.ndarray) -> tuple[float, float, float]:
    """a, α and σ from [n, 3] scores and lengths of alignments in query and target."""
    scores = np.unique(best[:, 0])
    rows = []
    for score in scores:
        of_score = best[best[:, 0] == score, 1:]
        if len(of_score) >= 50:
            covariance = np.cov(of_score.T)
            rows.append((score, of_score.mean(), np.trace(covariance) / 2, covariance[0, 1], len(of_score)))
    y, mean, variance, covariance, count = np.array(rows).T
    a, alpha, sigma = (
        np.polyfit(y, values, 1, w=np.sqrt(count))[0] for values in (mean, variance, covariance)
    )
    return float(a), float(alpha), float(sigma)


def most_likely(first: GumbelParameters, observed: list[tuple[int, np.ndarray]]) -> GumbelParameters:
    """λ and K for which the observed scores of pairs of equal lengths are the most likely."""

    def cost(lambda_: float, k: float) -> float:
        parameters = replace(first, lambda_=lambda_, k=k)
        total = 0.0
        for length, scores in observed:
            levels = np.arange(scores.min(), scores.max() + 2)
            expected = evalues(levels, length, np.full(len(levels), length), length, parameters)
            below = np.exp(-expected)  # chance that the best score is below each level
            chances = np.maximum(np.diff(below), 1e-300)
            total -= (np.bincount(scores - scores.min(), minlength=len(chances)) * np.log(chances)).sum()
        return total

    lambda_, k, step = first.lambda_ * 0.9, first.k, 0.1
    lowest = cost(lambda_, k)
    while step > 1e-4:
        around = [
            (lambda_ * math.exp(u * step / 4), k * math.exp(v * step))
            for u in (-1, 0, 1)
            for v in (-4, -1, 0, 1, 4)
        ]
        costs = [cost(*each) for each in around]
        at = int(np.argmin(costs))
        if costs[at] < lowest:
            lowest, (lambda_, k) = costs[at], around[at]
        else:
            step /= 2
    return replace(first, lambda_=lambda_, k=k)


if __name__ == "__main__":
    main()
