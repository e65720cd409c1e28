"""Stage 2 without paths: scores of many targets at once, one target in each lane of a vector.

The recurrences are those of msa/cpu/smith_waterman.py. Lanes are independent: for each query position,
every lane looks up the score of its own residue in the profile's row with one shuffle of 32 bytes. Scores
are stored as the signed byte score − 128, so that one saturating addition computes both the sum and the
maximum with 0. The striped kernel computes the rest: scores of 255 and more, profiles and gap costs that do
not fit in bytes, and targets that would leave most lanes empty.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from msa.alphabet import LETTER_BITS, LETTERS
from msa.cpu.simd import I64, Vectors, array_address, has_byte_shuffle, vector_bytes
from msa.cpu.smith_waterman import align
from msa.cpu.threads import run_in_threads
from msa.database.sequence_arrays import SequenceArrays
from msa.jit import kernel

_PADDING = 31
"""Letter code that fills a lane after its target's end; it has the lowest score."""
_MIN_OCCUPANCY = 1 / 8
"""Minimum fraction of a group's cells that hold residues; in emptier groups, single alignments are faster."""
_CEILING = 255
"""Largest score that fits in a byte; it means that score or more."""


def _next_residues_typing(typingctx, profile, codes, rows, count, gap_open, gap_extend, largest):  # type: ignore[no-untyped-def]
    """Define an intrinsic that computes H for one residue of each lane's target.

    Args:
        typingctx: numba's typing context.
        profile: int8 [count, 32], contiguous.
        codes: uint8 [lanes], letter code of each lane's residue.
        rows: int8 [count, 2, lanes], contiguous, updated: H of the previous residue and D of this one, both
            minus 128; on return, of this residue and the next.
        count: intp, query positions.
        gap_open: intp, 0 to 127.
        gap_extend: intp, 0 to 127.
        largest: int8 [lanes], updated: the largest H so far, minus 128.

    Returns:
        The intrinsic's signature and code generator.
    """
    signature = types.void(profile, codes, rows, types.intp, types.intp, types.intp, largest)

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
    ) -> ir.Value:
        v = Vectors(builder, 8, vector_bytes())
        scores, letters, cells, best = (
            array_address(context, builder, signature.args[k], arguments[k]) for k in (0, 1, 2, 6)
        )
        opening, extending = (v.splat(builder.trunc(arguments[k], v.element)) for k in (4, 5))
        residues = v.load(letters)
        zero = v.constant(v.lowest)
        diagonal, insertion = v.variable(zero), v.variable(zero)
        highest = v.variable(v.load(best))
        with cgutils.for_range(builder, arguments[3]) as loop:
            cell = builder.add(cells, builder.mul(loop.index, ir.Constant(I64, 2 * v.bytes)))
            deletions = builder.add(cell, ir.Constant(I64, v.bytes))
            row = builder.add(scores, builder.mul(loop.index, ir.Constant(I64, 32)))
            above, deletion, carried = v.load(cell), v.load(deletions), builder.load(insertion)
            score = v.add(builder.load(diagonal), v.lookup(row, residues))
            score = v.maximum(v.maximum(score, deletion), carried)
            builder.store(v.maximum(builder.load(highest), score), highest)
            opened = v.subtract(score, opening)
            v.store(score, cell)
            v.store(v.maximum(v.subtract(deletion, extending), opened), deletions)
            builder.store(v.maximum(v.subtract(carried, extending), opened), insertion)
            builder.store(above, diagonal)
        v.store(builder.load(highest), best)
        return context.get_dummy_value()

    return signature, codegen


_next_residues: Any = intrinsic(_next_residues_typing)


@kernel
def _score_groups(profile, residues, offsets, lengths, groups, gap_open, gap_extend, scores):  # type: ignore[no-untyped-def]
    """Score groups of targets.

    Args:
        profile: int8 [query length, 32].
        residues: uint8, residue bytes of the database.
        offsets: int64, offset of each target in `residues`.
        lengths: int32, residues of each target.
        groups: int64 [groups, lanes], target indices; −1 for an empty lane.
        gap_open: cost of a gap's first residue.
        gap_extend: cost of each further residue.
        scores: int32 [groups, lanes], written.
    """
    lanes = groups.shape[1]
    rows = np.empty((len(profile), 2, lanes), np.int8)
    largest = np.empty(lanes, np.int8)
    for g in range(len(groups)):
        longest = 0
        for lane in range(lanes):
            if groups[g, lane] >= 0:
                longest = max(longest, lengths[groups[g, lane]])
        codes = np.full((longest, lanes), _PADDING, np.uint8)
        for lane in range(lanes):
            t = groups[g, lane]
            if t >= 0:
                for j in range(lengths[t]):
                    codes[j, lane] = min(residues[offsets[t] + j] & LETTER_BITS, len(LETTERS) - 1)
        rows[:] = -128
        largest[:] = -128
        for j in range(longest):
            _next_residues(profile, codes[j], rows, len(profile), gap_open, gap_extend, largest)
        for lane in range(lanes):
            scores[g, lane] = np.int32(largest[lane]) + 128


def alignment_scores(
    profile: np.ndarray,
    targets: SequenceArrays,
    indices: np.ndarray,
    gap_open: int = 11,
    gap_extend: int = 1,
    threads: int = 1,
) -> np.ndarray:
    """Compute the scores of alignments without their paths.

    Args:
        profile: int16 [query length ≥ 1, 32].
        targets: sequences of the database.
        indices: int64 [n], targets to score.
        gap_open: cost of a gap's first residue.
        gap_extend: cost of each further residue; gap_open ≥ gap_extend ≥ 1.
        threads: at least 1.

    Returns:
        int32 [n], the scores of `msa.cpu.smith_waterman.align`; exact without an upper limit.

    Raises:
        ValueError: the gap costs are not gap_open ≥ gap_extend ≥ 1.
    """
    scores = np.full(len(indices), _CEILING, np.int32)
    fits_bytes = profile.min() >= -128 and profile.max() <= 127 and gap_open <= 127
    if fits_bytes and has_byte_shuffle():
        groups = _group_by_length(targets.lengths[indices], vector_bytes())
        group_scores = np.empty(groups.shape, np.int32)
        byte_profile = np.ascontiguousarray(profile, np.int8)
        byte_profile[:, _PADDING] = -128
        group_indices = np.where(groups < 0, -1, indices[groups])

        def score_chunk(first: int, end: int) -> None:
            _score_groups(
                byte_profile, targets.residues, targets.offsets, targets.lengths, group_indices[first:end],
                gap_open, gap_extend, group_scores[first:end],
            )  # fmt: skip

        step = 1 if threads > 1 else max(len(groups), 1)
        run_in_threads(score_chunk, [(k, k + step) for k in range(0, len(groups), step)], threads)
        scores[groups[groups >= 0]] = group_scores[groups >= 0]
    remaining = np.flatnonzero(scores == _CEILING)
    if len(remaining):
        query = np.zeros(len(profile), np.uint8)  # arbitrary residues: scores do not depend on them
        alignments = align(profile, query, targets, indices[remaining], gap_open, gap_extend, threads)
        scores[remaining] = alignments.records[:, 0]
    return scores


def _group_by_length(lengths: np.ndarray, lanes: int) -> np.ndarray:
    """Group targets of similar lengths: int64 [groups, lanes], indices in `lengths`, −1 for an empty lane.

    Long targets are left out if the other lanes of their group would be mostly empty.
    """
    order = np.argsort(-lengths, kind="stable")
    ends = np.minimum(np.arange(len(order)) + lanes, len(order))
    residues = np.concatenate([[0], np.cumsum(lengths[order], dtype=np.int64)])
    # residues of the group that would start at each target
    group_residues = residues[ends] - residues[:-1]
    is_empty = (group_residues < _MIN_OCCUPANCY * lanes * lengths[order]).tolist()
    starts = []
    first = 0
    while first < len(order):
        if is_empty[first]:
            first += 1
            continue
        starts.append(first)
        first += lanes
    members = np.array(starts, np.int64)[:, None] + np.arange(lanes)
    padded = np.concatenate([order, np.full(lanes, -1)])
    return padded[np.minimum(members, len(order))]
