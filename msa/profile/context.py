"""The context model: how the neighbours of a residue change which residues its homologs have.

A substitution matrix gives each residue the same scores everywhere. In proteins, a glycine in a tight turn is
conserved and one in a helix is not, and its neighbours tell these apart. Biegert & Söding (PNAS 106:3770,
2009) use a library of profiles of short windows for this. Here, a small network with one hidden layer reads
the residue and ten neighbours on either side. recipes/context_model.py trains it, and docs/sensitivity.md
compares it with substitution matrices.

The first layer has integer weights, so that its sums are the same on all machines.
"""

import functools
import importlib.resources
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from msa.alphabet import STANDARD
from msa.profile.matrices import background

UNKNOWN = len(STANDARD)
"""Code of other letters than the standard twenty, and of positions beyond the ends of a sequence."""

_FILE = "context_model.npz"
_RESIDUE_COUNT = len(STANDARD)
_BLOCK = 48
"""Positions that are computed at once. Their sums stay in the cache of a core. With 256 hidden units, matrix
products have fewer than the 2¹⁸ multiplications from which OpenBLAS, numpy's BLAS, uses several threads;
these would compete with other threads and processes that do the same."""


@dataclass(frozen=True, eq=False)
class ContextModel:
    """The weights of the network.

    Args:
        embedding: float32 [window, 21, hidden], by position in the window and residue code; integers.
        bias: float32 [hidden], integers.
        output: float64 [hidden, 20], nats.
        base: float64 [21, 20], log odds of each residue given the central one, nats.
    """

    embedding: np.ndarray
    bias: np.ndarray
    output: np.ndarray
    base: np.ndarray

    @functools.cached_property
    def float64_embedding(self) -> np.ndarray:
        """The embedding in float64."""
        return self.embedding.astype(np.float64)

    @property
    def neighbours(self) -> int:
        """Number of positions on either side of the central one."""
        return len(self.embedding) // 2

    def log_odds_changes(self, length: int, term: Callable[[int, slice], np.ndarray]) -> np.ndarray:
        """Return the changes of the log odds that neighbours cause, float64 [length, 20], nats.

        Args:
            length: number of positions.
            term: returns what one position of the window adds to the sums of the hidden layer, [n, hidden],
                given its index and the n rows of a sequence with `neighbours` more positions at each end.
        """
        changes = np.empty((length, _RESIDUE_COUNT))
        for first in range(0, length, _BLOCK):
            end = min(first + _BLOCK, length)
            hidden = term(0, slice(first, end)) + self.bias
            for offset in range(1, len(self.embedding)):
                hidden += term(offset, slice(first + offset, end + offset))
            np.matmul(np.maximum(hidden, 0), self.output, out=changes[first:end])
        return changes


@functools.cache
def context_model() -> ContextModel:
    """Return the network."""
    with importlib.resources.files("msa.profile").joinpath(_FILE).open("rb") as file, np.load(file) as arrays:
        # sums of these integers are exact in float32
        embedding, bias = arrays["embedding"].astype(np.float32), arrays["bias"].astype(np.float32)
        output, base = arrays["output"].astype(np.float64), arrays["base"].astype(np.float64)
        return ContextModel(embedding, bias, output, base)


def context_frequencies(codes: np.ndarray) -> np.ndarray:
    """Compute the residue frequencies that homologs of a sequence are expected to have.

    Args:
        codes: uint8 [length], letter codes without mask bits.

    Returns:
        float64 [length, 20], rows summing to 1. Letters other than the standard twenty get the frequencies
        that their neighbours predict.
    """
    model, codes = context_model(), np.minimum(codes, UNKNOWN)
    padded = np.pad(codes.astype(np.int64), model.neighbours, constant_values=UNKNOWN)

    def term(offset: int, rows: slice) -> np.ndarray:
        return model.embedding[offset].take(padded[rows], axis=0)

    return _frequencies(model.base[codes] + model.log_odds_changes(len(codes), term))


def family_context_frequencies(observed: np.ndarray) -> np.ndarray:
    """Compute the residue frequencies that further homologs of a family are expected to have.

    Args:
        observed: float64 [length, 20], residue frequencies of the family, rows summing to 1.

    Returns:
        float64 [length, 20], rows summing to 1. With one residue at each position, these are the frequencies
        of `context_frequencies`.
    """
    model, length = context_model(), len(observed)
    padded = np.zeros((length + 2 * model.neighbours, UNKNOWN + 1))
    padded[:, UNKNOWN] = 1
    inside = slice(model.neighbours, model.neighbours + length)
    padded[inside, :UNKNOWN], padded[inside, UNKNOWN] = observed, 0

    def term(offset: int, rows: slice) -> np.ndarray:
        return np.asarray(padded[rows] @ model.float64_embedding[offset])

    # einsum does not use BLAS
    base = np.log(np.einsum("ij,jk", observed, np.exp(model.base[:_RESIDUE_COUNT])))
    return _frequencies(base + model.log_odds_changes(length, term))


def _frequencies(log_odds: np.ndarray) -> np.ndarray:
    """Return the frequencies with these log odds, up to a constant for each row, float64 [length, 20]."""
    odds = np.exp(log_odds - log_odds.max(axis=1, keepdims=True))
    frequencies = background()[:_RESIDUE_COUNT] * odds
    return np.asarray(frequencies / frequencies.sum(axis=1, keepdims=True))
