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
from dataclasses import dataclass

import numpy as np

from msa.alphabet import STANDARD
from msa.profile.matrices import background

UNKNOWN = len(STANDARD)
"""Code of other letters than the standard twenty, and of positions beyond the ends of a sequence."""

_FILE = "context_model.npz"
_RESIDUE_COUNT = len(STANDARD)
_SINGLE_THREAD_SIZE = 2**18
"""Number of multiplications up to which OpenBLAS, numpy's BLAS, uses one thread."""


@dataclass(frozen=True, eq=False)
class _Model:
    """The weights of the network.

    Args:
        embedding: int16 [window, 21, hidden], by position in the window and residue code.
        bias: int32 [hidden].
        output: float64 [hidden, 20], nats.
        base: float64 [21, 20], log odds of each residue given the central one, nats.
    """

    embedding: np.ndarray
    bias: np.ndarray
    output: np.ndarray
    base: np.ndarray

    @functools.cached_property
    def float_embedding(self) -> np.ndarray:
        """The embedding in float64."""
        return self.embedding.astype(np.float64)

    @property
    def neighbours(self) -> int:
        """Number of positions on either side of the central one."""
        return len(self.embedding) // 2

    def output_scores(self, hidden: np.ndarray) -> np.ndarray:
        """Return the change of the log odds, float64 [length, 20], due to the hidden layer's sums."""
        return _product(np.maximum(hidden, 0).astype(np.float64), self.output)


@functools.cache
def _model() -> _Model:
    with importlib.resources.files("msa.profile").joinpath(_FILE).open("rb") as file, np.load(file) as arrays:
        output, base = arrays["output"].astype(np.float64), arrays["base"].astype(np.float64)
        return _Model(arrays["embedding"], arrays["bias"], output, base)


def context_frequencies(codes: np.ndarray) -> np.ndarray:
    """Compute the residue frequencies that homologs of a sequence are expected to have.

    Args:
        codes: uint8 [length], letter codes without mask bits.

    Returns:
        float64 [length, 20], rows summing to 1. Letters other than the standard twenty get the frequencies
        that their neighbours predict.
    """
    model, codes = _model(), np.minimum(codes, UNKNOWN)
    padded = np.pad(codes, model.neighbours, constant_values=UNKNOWN)
    hidden = np.tile(model.bias, (len(codes), 1))
    for offset, weights in enumerate(model.embedding):
        hidden += weights[padded[offset : offset + len(codes)]]
    return _frequencies(model.base[codes] + model.output_scores(hidden))


def family_context_frequencies(observed: np.ndarray) -> np.ndarray:
    """Compute the residue frequencies that further homologs of a family are expected to have.

    Args:
        observed: float64 [length, 20], residue frequencies of the family, rows summing to 1.

    Returns:
        float64 [length, 20], rows summing to 1. With one residue at each position, these are the frequencies
        of `context_frequencies`.
    """
    model, length = _model(), len(observed)
    padded = np.zeros((length + 2 * model.neighbours, UNKNOWN + 1))
    padded[:, UNKNOWN] = 1
    inside = slice(model.neighbours, model.neighbours + length)
    padded[inside, :UNKNOWN], padded[inside, UNKNOWN] = observed, 0
    hidden = np.tile(model.bias.astype(np.float64), (length, 1))
    for offset, weights in enumerate(model.float_embedding):
        hidden += _product(padded[offset : offset + length], weights)
    base = np.log(_product(observed, np.exp(model.base[:_RESIDUE_COUNT])))
    return _frequencies(base + model.output_scores(hidden))


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply matrices in one thread.

    Threads of BLAS would compete with other threads and processes that do the same.
    """
    product = np.empty((len(a), b.shape[1]))
    rows = max(_SINGLE_THREAD_SIZE // b.size, 1)
    for first in range(0, len(a), rows):
        np.matmul(a[first : first + rows], b, out=product[first : first + rows])
    return product


def _frequencies(log_odds: np.ndarray) -> np.ndarray:
    """Return the frequencies with these log odds, up to a constant for each row, float64 [length, 20]."""
    odds = np.exp(log_odds - log_odds.max(axis=1, keepdims=True))
    frequencies = background()[:_RESIDUE_COUNT] * odds
    return np.asarray(frequencies / frequencies.sum(axis=1, keepdims=True))
