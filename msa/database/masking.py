"""Soft-masking of low complexity and short tandem repeats with tantan's method.

M. C. Frith, A new repeat-masking method enables specific detection of homologous sequences, Nucleic Acids
Research 39:e23 (2011). A hidden Markov model has a background state and one repeat state per period k =
1…50. State k emits a residue x with likelihood exp(λ · BLOSUM62[x, y]) relative to the background, where y is
the residue k positions earlier. The forward and backward recursions give each residue's probability of being
in a repeat; residues with a probability of at least one half are masked.

The recursions run in float32, one vector lane per period, and are rescaled every 16 residues, so sequences
of any length neither overflow nor underflow.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from msa.alphabet import LETTER_BITS, LETTERS, MASK_BIT, STANDARD
from msa.base.cpu_kernels.jit import kernel
from msa.base.cpu_kernels.vector_lanes import LANE_COUNT, load, splat, total, transpose
from msa.profile.gumbel import GUMBEL_TABLES
from msa.profile.matrices import BLOSUM62, RNA, substitution_matrix

# residues per chunk: the likelihoods of a chunk, one row per letter, just fit the L2 cache
_CHUNK = 512
_WIDTH = LANE_COUNT + _CHUNK
_RESCALE_EVERY = 16
# padding before and after a sequence; its likelihood is 0, so no repeat begins there
_NO_RESIDUE = 31
_CODES = 32
_GROUP = 8


@dataclass(frozen=True)
class MaskSettings:
    """The parameters of tantan's model; the defaults are those of the program for proteins.

    Attributes:
        start: probability, per residue, that a repeat begins.
        end: probability, per residue, that a repeat ends.
        periods: the longest period, at most 64 residues.
        decay: probability of each period relative to the next shorter one.
        threshold: residues with at least this probability of being in a repeat are masked.
    """

    start: float = 0.005
    end: float = 0.05
    periods: int = 50
    decay: float = 0.9
    threshold: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.periods <= LANE_COUNT:
            raise ValueError(f"periods must be from 1 to {LANE_COUNT}, not {self.periods}")


@functools.cache
def matrix_lambda() -> float:
    """Return λ of BLOSUM62 in nats per half-bit: 0.3240.

    At this scale the scores of the twenty standard residues are log likelihood ratios for some residue
    frequencies, and the elements of the inverse of exp(λ S) sum to 1 (Yu, Wootton & Altschul, PNAS 100:15688,
    2003).
    """
    scores = substitution_matrix()[: len(STANDARD), : len(STANDARD)].astype(np.float64)
    low, high = 0.2, 0.5
    for _ in range(60):
        middle = (low + high) / 2
        if np.linalg.inv(np.exp(middle * scores)).sum() > 1:
            low = middle
        else:
            high = middle
    return low


@functools.cache
def likelihood_ratios(matrix: str = BLOSUM62) -> np.ndarray:
    """Return the likelihoods of residues in a repeat, given the residue one period before.

    Args:
        matrix: BLOSUM62 or RNA.

    Returns:
        float32 [32, 32], symmetric, indexed by residue codes: exp(λ · score), relative to the background,
            with the matrix as searches use it (including X, B, Z, U, O and J); 0 for codes without a letter.
    """
    ratios = np.zeros((_CODES, _CODES), np.float32)
    scores = substitution_matrix(matrix)[:, : len(LETTERS)]
    lambda_ = GUMBEL_TABLES[RNA].ungapped_lambda if matrix == RNA else matrix_lambda()
    # math.exp, because the last bit of numpy's depends on the machine
    letter_ratios = [[math.exp(lambda_ * score) for score in row] for row in scores.tolist()]
    ratios[: len(LETTERS), : len(LETTERS)] = letter_ratios
    ratios.flags.writeable = False
    return ratios


@functools.cache
def _transitions(settings: MaskSettings) -> np.ndarray:
    """Return the probabilities that a repeat of each period begins, then that it continues, float32 [128].

    Period k is in lane 64 − k of each half. Lanes without a period have 0 in both halves; otherwise repeats
    of longer periods would overflow float32 there.
    """
    weights = settings.decay ** np.arange(settings.periods)
    transitions = np.zeros((2, LANE_COUNT), np.float32)
    transitions[0, LANE_COUNT - settings.periods :] = (settings.start * weights / weights.sum())[::-1]
    transitions[1, LANE_COUNT - settings.periods :] = 1 - settings.end
    return transitions.reshape(-1)


def mask(
    residues: np.ndarray, lengths: np.ndarray, settings: MaskSettings | None = None, matrix: str = BLOSUM62
) -> int:
    """Set the soft-mask bit of residues in repeats, in place, without holding the GIL.

    Args:
        residues: uint8, contiguous: the codes of all sequences, concatenated.
        lengths: int32 [sequences].
        settings: parameters of the model, and the threshold.
        matrix: see `likelihood_ratios`.

    Returns:
        The number of residues masked.
    """
    settings = settings or MaskSettings()
    longest = int(lengths.max(initial=0))
    return int(
        _mask(
            residues,
            lengths,
            np.float32(settings.threshold),
            *_arguments(settings, matrix),
            *_workspace(longest),
            np.empty(longest, np.float32),
        )
    )


def _arguments(
    settings: MaskSettings, matrix: str = BLOSUM62
) -> tuple[np.ndarray, np.ndarray, np.float32, np.float32]:
    ratios, start, end = likelihood_ratios(matrix), np.float32(settings.start), np.float32(settings.end)
    return ratios, _transitions(settings), start, end


def _workspace(longest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.empty(LANE_COUNT + longest + _GROUP, np.uint8),
        np.empty(_CODES * _WIDTH, np.float32),
        np.empty(longest // _RESCALE_EVERY + 1, np.float32),
    )


@kernel
def _mask(  # type: ignore[no-untyped-def]
    residues, lengths, threshold, ratios, transitions, start, end, padded, likelihoods, scales, probabilities
):
    """Mask all sequences in place; return the number of residues masked."""
    masked = first = 0
    for sequence in range(len(lengths)):
        codes = residues[first : first + lengths[sequence]]
        _probabilities(codes, ratios, transitions, start, end, padded, likelihoods, scales, probabilities)
        for i in range(len(codes)):
            if probabilities[i] >= threshold:
                codes[i] |= MASK_BIT
                masked += 1
        first += lengths[sequence]
    return masked


@kernel
def _fill_likelihoods(padded, first, last, groups, ratios, likelihoods):  # type: ignore[no-untyped-def]
    """Fill in the likelihoods of each letter given residues [first − 64, last), with periods contiguous.

    likelihoods[letter * _WIDTH + lane + i − first], lane = 64 − k, is the likelihood of the letter at i given
    the residue at i − k.
    """
    for offset in range(0, LANE_COUNT + last - first, _GROUP):
        for group in range(groups):
            letter = group * _GROUP
            transpose(ratios, padded, first + offset, letter, likelihoods, letter * _WIDTH + offset, _WIDTH)


@kernel
def _probabilities(  # type: ignore[no-untyped-def]
    codes, ratios, transitions, start, end, padded, likelihoods, scales, probabilities
):
    """Fill `probabilities` for one sequence; `padded`, `likelihoods` and `scales` are workspace."""
    length = len(codes)
    padded[:LANE_COUNT] = _NO_RESIDUE
    highest = 0
    for i in range(length):
        code = codes[i] & LETTER_BITS
        padded[LANE_COUNT + i] = code
        highest = max(highest, code)
    padded[LANE_COUNT + length : LANE_COUNT + length + _GROUP] = _NO_RESIDUE
    groups = highest // _GROUP + 1

    one = np.float32(1)
    background_stay = one - start
    period_starts, repeat_stay = load(transitions, 0), load(transitions, LANE_COUNT)

    # forward; `probabilities` keeps the values of the background state
    background = one
    repeats = splat(np.float32(0))
    for first in range(0, length, _CHUNK):
        last = min(length, first + _CHUNK)
        _fill_likelihoods(padded, first, last, groups, ratios, likelihoods)
        for i in range(first, last):
            ratio = load(likelihoods, np.intp(padded[LANE_COUNT + i]) * _WIDTH + i - first)
            ended = end * total(repeats)
            repeats = (repeats * repeat_stay + period_starts * splat(background)) * ratio
            background = background * background_stay + ended
            if i % _RESCALE_EVERY == _RESCALE_EVERY - 1:
                scale = one / background
                scales[i // _RESCALE_EVERY] = scale
                repeats = repeats * splat(scale)
                background = one
            probabilities[i] = background
    norm = one / (background * background_stay + end * total(repeats))

    # backward, rescaled by the same factors at the same residues, so forward · backward needs no logarithms
    background = background_stay
    repeats = splat(end)
    for first in range((length - 1) // _CHUNK * _CHUNK, -1, -_CHUNK):
        last = min(length, first + _CHUNK)
        if length > _CHUNK:
            _fill_likelihoods(padded, first, last, groups, ratios, likelihoods)
        for i in range(last - 1, first - 1, -1):
            probabilities[i] = one - probabilities[i] * background * norm
            if i % _RESCALE_EVERY == _RESCALE_EVERY - 1:
                scale = scales[i // _RESCALE_EVERY]
                repeats = repeats * splat(scale)
                background *= scale
            repeats = repeats * load(likelihoods, np.intp(padded[LANE_COUNT + i]) * _WIDTH + i - first)
            ended = splat(end * background)
            background = background * background_stay + total(period_starts * repeats)
            repeats = repeats * repeat_stay + ended
