"""Stage 2's scores without paths: many targets at once, one in each lane of a vector.

The recurrences are those of msa/cpu/smith_waterman.py. Lanes never exchange anything: for a query position,
each looks its own residue's score up in the profile's row, which is one shuffle of 32 bytes. A score is
kept as the signed byte score − 128, so that one saturating addition is both the sum and the max with 0.
Scores of 255 and more, and what does not fit the bytes or the lanes, are left to the striped kernel.
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
from msa.cpu.simd import I64, Vectors, array_address, can_look_up, vector_bytes
from msa.cpu.smith_waterman import align
from msa.cpu.workers import run_pieces
from msa.database.sequence_arrays import SequenceArrays
from msa.jit import kernel

_PAST_THE_END = 31
"""Letter code that stands after a target's end: it scores the lowest number."""
_FULL_ENOUGH = 1 / 8
"""Share of a group's lanes that has to be filled with residues; emptier ones are faster one after another."""
_CEILING = 255


def _next_residues_typing(typingctx, profile, codes, rows, count, gap_open, gap_extend, largest):  # type: ignore[no-untyped-def]
    """Compute H for one residue of each lane's target; `rows` and `largest` are updated in place.

    Args:
        profile: int8 [count, 32], contiguous.
        codes: uint8 [lanes], the residues.
        rows: int8 [count, 2, lanes], contiguous: of the residues before, H, and the largest D that can end at
            these, both less 128; of these on return.
        count: intp, query positions.
        gap_open, gap_extend: intp, 0 to 127.
        largest: int8 [lanes], the largest H so far, less 128.
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
        here = v.load(letters)
        nothing = v.constant(v.lowest)
        diagonal, insertion = v.variable(nothing), v.variable(nothing)
        highest = v.variable(v.load(best))
        with cgutils.for_range(builder, arguments[3]) as loop:
            cell = builder.add(cells, builder.mul(loop.index, ir.Constant(I64, 2 * v.bytes)))
            deletions = builder.add(cell, ir.Constant(I64, v.bytes))
            row = builder.add(scores, builder.mul(loop.index, ir.Constant(I64, 32)))
            above, deletion, carried = v.load(cell), v.load(deletions), builder.load(insertion)
            score = v.add(builder.load(diagonal), v.look_up(row, here))
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
    """Score groups of targets, int64 [groups, lanes], of which −1 is none; scores int32 [groups, lanes]."""
    lanes = groups.shape[1]
    rows = np.empty((len(profile), 2, lanes), np.int8)
    largest = np.empty(lanes, np.int8)
    for g in range(len(groups)):
        longest = 0
        for lane in range(lanes):
            if groups[g, lane] >= 0:
                longest = max(longest, lengths[groups[g, lane]])
        codes = np.full((longest, lanes), _PAST_THE_END, np.uint8)
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
    chosen: np.ndarray,
    gap_open: int = 11,
    gap_extend: int = 1,
    threads: int = 1,
) -> np.ndarray:
    """The scores that `msa.cpu.smith_waterman.align` finds, without their alignments.

    Args:
        profile: int16 [query length ≥ 1, 32], half-bits.
        targets: the database.
        chosen: int64 [n], indices of targets.
        gap_open, gap_extend: half-bits, gap_open ≥ gap_extend ≥ 1.
        threads: at least 1.

    Returns:
        int32 [n], half-bits, exact whatever their size.

    Raises:
        ValueError: not gap_open ≥ gap_extend ≥ 1.
    """
    scores = np.full(len(chosen), _CEILING, np.int32)
    fits = profile.min() >= -128 and profile.max() <= 127 and gap_open <= 127
    if fits and can_look_up():
        groups = _groups(targets.lengths[chosen], vector_bytes())
        found = np.empty(groups.shape, np.int32)
        table = np.ascontiguousarray(profile, np.int8)
        table[:, _PAST_THE_END] = -128
        which = np.where(groups < 0, -1, chosen[groups])

        def piece(first: int, end: int) -> None:
            _score_groups(
                table, targets.residues, targets.offsets, targets.lengths, which[first:end],
                gap_open, gap_extend, found[first:end],
            )  # fmt: skip

        step = 1 if threads > 1 else max(len(groups), 1)
        run_pieces(piece, [(k, k + step) for k in range(0, len(groups), step)], threads)
        scores[groups[groups >= 0]] = found[groups >= 0]
    left = np.flatnonzero(scores == _CEILING)
    if len(left):
        query = np.zeros(len(profile), np.uint8)  # whose residues count identities alone
        rest = align(profile, query, targets, chosen[left], gap_open, gap_extend, threads)
        scores[left] = [alignment.score for alignment in rest]
    return scores


def _groups(lengths: np.ndarray, lanes: int) -> np.ndarray:
    """Targets of like lengths side by side: int64 [groups, lanes], places in `lengths`, −1 for an empty lane.

    Left out are the longest of a group that they would make take longer than they are worth.
    """
    order = np.argsort(-lengths, kind="stable")
    groups = []
    first = 0
    while first < len(order):
        group = order[first : first + lanes]
        if lengths[group].sum() < _FULL_ENOUGH * lanes * lengths[group[0]]:
            first += 1
            continue
        groups.append(np.full(lanes, -1))
        groups[-1][: len(group)] = group
        first += lanes
    return np.array(groups, np.int64).reshape(len(groups), lanes)
