"""Gumbel parameters of a matrix with gap costs, computed by simulation, compared with the tables.

    python benchmarks/gumbel_parameters.py MATRIX OPEN EXTEND [--pairs 40000] [--threads 2]

Gap costs follow NCBI's convention: the first residue of a gap costs OPEN + EXTEND. With the matrices CONTEXT
and RNA, for which nothing is published, it costs OPEN, as in searches. Residues are drawn with the
frequencies of Robinson & Robinson (PNAS 88:8880, 1991), as for the published parameters; nucleotides with
equal ones.

Without gaps, λ is the root of Karlin and Altschul's equation, and a and α follow from the mean and the
variance of the scores of aligned pairs. With gaps, a, α and σ are the slopes of mean, variance and
covariance of alignment lengths against the score, for the best alignments of long random sequences. λ and K
then maximise the likelihood of the scores of pairs of several lengths, with the finite-size correction of
the search.
"""

import argparse
import math
from dataclasses import replace

import numpy as np

from msa.alphabet import NUCLEOTIDES, STANDARD, encode
from msa.cpu.smith_waterman import align
from msa.cpu.smith_waterman_scores import alignment_scores
from msa.database.sequence_arrays import SequenceArrays
from msa.profile.gumbel import GUMBEL_TABLES, GumbelParameters
from msa.profile.matrices import CONTEXT, RNA
from msa.profile.pssm import query_profile
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
UNGAPPED_LENGTH = 100_000


def ungapped_parameters(profile: np.ndarray, frequencies: np.ndarray) -> tuple[float, float, float]:
    """Compute λ, a and α without gaps from the scores at the positions of random queries, [n, 20]."""
    pairs = np.tile(frequencies / len(profile), (len(profile), 1))
    low, high = 0.01, 2.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if (pairs * np.exp(middle * profile)).sum() < 1 else (low, middle)
    tilted = pairs * np.exp(low * profile)
    mean = (tilted * profile).sum()
    return low, 1 / mean, (tilted * profile**2).sum() / mean**3 - 1 / mean


def random_targets(
    rng: np.random.Generator, codes: np.ndarray, frequencies: np.ndarray, length: int, count: int
) -> SequenceArrays:
    residues = rng.choice(codes, length * count, p=frequencies)
    return SequenceArrays(residues, np.arange(count) * length, np.full(count, length))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("matrix")
    parser.add_argument("gap_open", type=int)
    parser.add_argument("gap_extend", type=int)
    parser.add_argument("--pairs", type=int, default=40000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    is_rna = options.matrix == RNA
    letters = NUCLEOTIDES if is_rna else STANDARD
    frequencies = np.array([1.0 if is_rna else ROBINSON[letter] for letter in letters])
    frequencies /= frequencies.sum()
    rng, codes = np.random.default_rng(0), encode(letters)
    random_query = rng.choice(codes, UNGAPPED_LENGTH, p=frequencies)
    profile = query_profile(random_query, False, options.matrix)[:, codes].astype(float)
    ungapped_lambda, a, alpha = ungapped_parameters(profile, frequencies)
    print(f"{options.matrix} without gaps: λ {ungapped_lambda:.4f}, a {a:.4f}, α {alpha:.4f}")
    first = options.gap_open if options.matrix in (CONTEXT, RNA) else options.gap_open + options.gap_extend
    gap_costs = first, options.gap_extend
    observed: list[tuple[int, np.ndarray]] = []
    alignments: list[tuple[int, int, int]] = []
    for length in LENGTHS:
        scores = []
        alignments.clear()  # keep those of the longest sequences: long alignments do not fit in short ones
        for _ in range(QUERIES):
            query = rng.choice(codes, length, p=frequencies)
            targets = random_targets(rng, codes, frequencies, length, options.pairs // QUERIES)
            profile, indices = query_profile(query, False, options.matrix), np.arange(len(targets))
            scores.append(alignment_scores(profile, targets, indices, *gap_costs, options.threads))
            aligned = indices[: len(targets) // 4]
            found = align(profile, query, targets, aligned, *gap_costs, options.threads).records
            query_spans, target_spans = found[:, 2] - found[:, 1] + 1, found[:, 4] - found[:, 3] + 1
            spans = np.where(found[:, :1] > 0, np.stack([query_spans, target_spans], axis=1), 1)
            alignments += [(int(s), int(q), int(t)) for s, (q, t) in zip(found[:, 0], spans, strict=True)]
        observed.append((length, np.concatenate(scores)))
    slopes = length_slopes(np.array(alignments, float))
    initial = GumbelParameters(ungapped_lambda, 0.1, *slopes, options.gap_open + options.gap_extend, a, alpha)
    fitted = maximum_likelihood(initial, observed)
    gapped = f"λ {fitted.lambda_:.4f}, K {fitted.k:.4f}"
    length_parameters = f"a {slopes[0]:.3f}, α {slopes[1]:.3f}, σ {slopes[2]:.3f}"
    print(f"{options.gap_open}/{options.gap_extend}: {gapped}, {length_parameters}")
    table = GUMBEL_TABLES.get(options.matrix)
    if table and (options.gap_open, options.gap_extend) in table.gapped:
        print(f"table: {table.gapped[options.gap_open, options.gap_extend]}")


def length_slopes(alignments: np.ndarray) -> tuple[float, float, float]:
    """Compute a, α and σ from the scores and the lengths in query and target of alignments, [n, 3]."""
    scores = np.unique(alignments[:, 0])
    rows = []
    for score in scores:
        lengths = alignments[alignments[:, 0] == score, 1:]
        if len(lengths) >= 50:
            covariance = np.cov(lengths.T)
            rows.append((score, lengths.mean(), np.trace(covariance) / 2, covariance[0, 1], len(lengths)))
    y, mean, variance, covariance, count = np.array(rows).T
    a, alpha, sigma = (
        np.polyfit(y, values, 1, w=np.sqrt(count))[0] for values in (mean, variance, covariance)
    )
    return float(a), float(alpha), float(sigma)


def maximum_likelihood(initial: GumbelParameters, observed: list[tuple[int, np.ndarray]]) -> GumbelParameters:
    """Find λ and K that maximise the likelihood of the observed scores, by length of the sequences."""

    def cost(lambda_: float, k: float) -> float:
        parameters = replace(initial, lambda_=lambda_, k=k)
        total = 0.0
        for length, scores in observed:
            levels = np.arange(scores.min(), scores.max() + 2)
            expected = evalues(levels, length, np.full(len(levels), length), length, parameters)
            below = np.exp(-expected)  # probability that the best score is below each level
            probabilities = np.maximum(np.diff(below), 1e-300)
            total -= (
                np.bincount(scores - scores.min(), minlength=len(probabilities)) * np.log(probabilities)
            ).sum()
        return total

    lambda_, k, step = initial.lambda_ * 0.9, initial.k, 0.1
    lowest = cost(lambda_, k)
    while step > 1e-4:
        neighbours = [
            (lambda_ * math.exp(u * step / 4), k * math.exp(v * step))
            for u in (-1, 0, 1)
            for v in (-4, -1, 0, 1, 4)
        ]
        costs = [cost(*each) for each in neighbours]
        index = int(np.argmin(costs))
        if costs[index] < lowest:
            lowest, (lambda_, k) = costs[index], neighbours[index]
        else:
            step /= 2
    return replace(initial, lambda_=lambda_, k=k)


if __name__ == "__main__":
    main()
