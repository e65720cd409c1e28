"""Stage 2 without paths: scores of many targets at once, one target in each lane of a vector.

The recurrences are those of msa/cpu/smith_waterman.py. Lanes are independent: for each query position,
every lane looks up the score of its own residue in the profile's row with one shuffle of 32 bytes. A pass
over the query processes several residues of each target, so that it reads and writes stored cells less often.
Scores are stored as the signed byte score − 128, so that one saturating addition computes both the sum and
the maximum with 0. The striped kernel computes the rest: scores of 255 and more, profiles and gap costs that
do not fit in bytes, and targets that would leave most lanes empty.
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
from msa.base.cpu_kernels.jit import kernel
from msa.base.cpu_kernels.threads import run_in_threads
from msa.cpu.simd import I64, Vectors, array_address, has_byte_shuffle, vector_bytes, vector_registers
from msa.cpu.smith_waterman import align
from msa.database.sequence_arrays import SequenceArrays

_COLUMNS = 4 if vector_registers() == 32 else 2
"""Residues of each target in a pass over the query; their cells stay in registers."""
_BLOCK = 16
"""Targets and residues that are transposed at once."""
_PADDING = 31
"""Letter code that fills a lane after its target's end; it has the lowest score."""
_MIN_OCCUPANCY = 1 / 8
"""Minimum fraction of a group's cells that hold residues; in emptier groups, single alignments are faster."""
_CEILING = 255
"""Largest score that fits in a byte; it means that score or more."""


def _next_residues_typing(typingctx, profile, codes, rows, count, gap_open, gap_extend, largest):  # type: ignore[no-untyped-def]
    """Define an intrinsic that computes H for the next `_COLUMNS` residues of each lane's target.

    Args:
        typingctx: numba's typing context.
        profile: int8 [count, 32], contiguous.
        codes: uint8 [_COLUMNS, lanes], contiguous, letter codes of each lane's residues.
        rows: int8 [count, 2, lanes], contiguous, updated: H of the previous residue and D of the first one,
            both minus 128; on return, of the last residue and the one after it.
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
        residues = [v.load(letters, column * v.bytes) for column in range(_COLUMNS)]
        zero = v.constant(v.lowest)
        diagonals, insertions = ([v.variable(zero) for _ in residues] for _ in range(2))
        highest = v.variable(v.load(best))
        with cgutils.for_range(builder, arguments[3]) as loop:
            cell = builder.add(cells, builder.mul(loop.index, ir.Constant(I64, 2 * v.bytes)))
            deletions = builder.add(cell, ir.Constant(I64, v.bytes))
            table = v.table(builder.add(scores, builder.mul(loop.index, ir.Constant(I64, 32))))
            # H of the residue before and D of each residue
            before, deletion = v.load(cell), v.load(deletions)
            for residue, diagonal, insertion in zip(residues, diagonals, insertions, strict=True):
                carried = builder.load(insertion)
                score = v.add(builder.load(diagonal), v.lookup(table, residue))
                score = v.maximum(v.maximum(score, deletion), carried)
                builder.store(v.maximum(builder.load(highest), score), highest)
                opened = v.subtract(score, opening)
                deletion = v.maximum(v.subtract(deletion, extending), opened)
                builder.store(v.maximum(v.subtract(carried, extending), opened), insertion)
                builder.store(before, diagonal)
                before = score
            v.store(before, cell)
            v.store(deletion, deletions)
        v.store(builder.load(highest), best)
        return context.get_dummy_value()

    return signature, codegen


_next_residues: Any = intrinsic(_next_residues_typing)


def _transpose_typing(typingctx, residues, starts, codes):  # type: ignore[no-untyped-def]
    """Define an intrinsic that writes the letter codes of residues of 16 targets with one column per target.

    Args:
        typingctx: numba's typing context.
        residues: uint8, residue bytes of the database.
        starts: int64 [16], contiguous, offset in `residues` of the first of 16 residues of each target.
        codes: uint8 [≥ 16, ≥ 16], rows `vector_bytes()` apart; 16 columns of 16 rows are written.

    Returns:
        The intrinsic's signature and code generator.
    """
    signature = types.void(residues, starts, codes)

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
    ) -> ir.Value:
        v = Vectors(builder, 8, _BLOCK)
        source, offsets, output = (
            array_address(context, builder, signature.args[k], arguments[k]) for k in range(3)
        )
        pointer = builder.inttoptr(offsets, I64.as_pointer())
        rows = []
        for k in range(_BLOCK):
            start = builder.load(builder.gep(pointer, [ir.Constant(I64, k)]))
            letters = v.bitwise_and(v.load(builder.add(source, start)), v.constant(LETTER_BITS))
            rows.append(v.minimum(letters, v.constant(len(LETTERS) - 1)))
        # each round doubles the number of targets whose residues with the same index are neighbours
        for _ in range(_BLOCK.bit_length() - 1):
            half = _BLOCK // 2
            rows = [row for k in range(half) for row in v.interleave(rows[k], rows[k + half])]
        for k, row in enumerate(rows):
            v.store(row, output, k * vector_bytes())
        return context.get_dummy_value()

    return signature, codegen


_transpose: Any = intrinsic(_transpose_typing)


@kernel
def _write_codes(residues, offsets, lengths, group, codes):  # type: ignore[no-untyped-def]
    """Write the letter codes of a group's residues, one column per target.

    Args:
        residues: see `_score_groups`.
        offsets: see `_score_groups`.
        lengths: see `_score_groups`.
        group: int64 [lanes], target indices; −1 for an empty lane.
        codes: uint8 [≥ longest target, lanes], written where a target has a residue.
    """
    starts = np.empty(_BLOCK, np.int64)
    for first in range(0, len(group), _BLOCK):
        shortest = np.int64(codes.shape[0])
        for k in range(_BLOCK):
            t = group[first + k]
            starts[k] = offsets[t] if t >= 0 else 0
            shortest = min(shortest, np.int64(lengths[t] if t >= 0 else 0))
        blocks = shortest // _BLOCK
        for block in range(blocks):
            _transpose(residues, starts, codes[block * _BLOCK :, first:])
            starts += _BLOCK
        for k in range(_BLOCK):
            t = group[first + k]
            if t >= 0:
                for j in range(blocks * _BLOCK, lengths[t]):
                    letter = residues[offsets[t] + j] & LETTER_BITS
                    codes[j, first + k] = min(letter, len(LETTERS) - 1)


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
        codes = np.full((-(-longest // _COLUMNS) * _COLUMNS, lanes), _PADDING, np.uint8)
        _write_codes(residues, offsets, lengths, groups[g], codes)
        rows[:] = -128
        largest[:] = -128
        for j in range(0, longest, _COLUMNS):
            _next_residues(profile, codes[j:], rows, len(profile), gap_open, gap_extend, largest)
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
