"""Stage 1, the gapless filter: the best score of an ungapped local alignment, for every target, exactly.

    M[i, j] = max(0, M[i−1, j−1] + Q[i, s_j]),  score = max over i, j

**One instruction per step.** M is kept as the signed number M − 2^(bits−1): the smallest number there is
stands for zero, so one saturating addition is both the sum and the max with 0 (as in HMMER's SSV filter). A
second instruction keeps the running maximum. That is all that happens per vector of cells.

**Nothing moves.** A vector lane follows one diagonal: at column j of the target, lane d is at row
i = (d + j) mod P of the query, so M stays in its register while the profile, whose rows lie unrolled in
memory, is read one place further. The period P is the query's length plus at least two rows that score the
lowest number, by which a lane that ran past the end of the query is back at zero before it starts anew.
Lanes never exchange anything, so a query of any length is done in blocks of as many lanes as there are
registers, each over the whole target.

Bytes hold scores up to 254; a target that reaches 255 is scored again in 16 bits, and one that reaches 65,535
there in 64. A masked residue scores as X.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from msa.alphabet import LETTER_BITS, LETTERS, MASK_BIT, X
from msa.cpu.simd import I64, Vectors, array_address, vector_bytes, vector_registers
from msa.cpu.workers import Progress, pieces_of_equal_work, run_pieces
from msa.database.sequence_arrays import SequenceArrays
from msa.jit import kernel

UNIT = 32
"""Lanes come in multiples of this many."""

# registers left over for the running maxima and the profile
_UNITS = {8: min(32, vector_bytes() * (vector_registers() - 4) // UNIT), 16: 2 * vector_bytes() // UNIT}
# cells per piece of work: some milliseconds
_PIECE = 2**28


def _lane_vectors(builder: ir.IRBuilder, bits: int, units: int) -> list[Vectors]:
    """The fewest vectors, none wider than a register, that make up `units` × 32 lanes."""
    lanes = units * UNIT
    widest = vector_bytes() * 8 // bits
    vectors = [Vectors(builder, bits, widest)] * (lanes // widest)
    return vectors + ([Vectors(builder, bits, lanes % widest)] if lanes % widest else [])


def _emit_block(builder: ir.IRBuilder, bits: int, units: int, arguments: list[ir.Value]) -> ir.Value:
    """Emit the loop over a target's residues for a block of lanes; the result is its largest M, biased."""
    profile, rows, codes, length, period, start = arguments
    vectors = _lane_vectors(builder, bits, units)
    step = ir.Constant(I64, bits // 8)
    zero = ir.Constant(I64, 0)
    scores = [v.variable(v.constant(v.lowest)) for v in vectors]
    # two chains of maxima per width: one would wait for itself
    best = [v.variable(v.constant(v.lowest)) for v in vectors[:2] + vectors[-1:]]
    chain = [
        len(best) - 1 if v.count != vectors[0].count else k % min(2, len(vectors))
        for k, v in enumerate(vectors)
    ]
    code_pointer = builder.inttoptr(codes, ir.IntType(8).as_pointer())
    row_pointer = builder.inttoptr(rows, I64.as_pointer())
    done = cgutils.alloca_once_value(builder, zero)
    column = cgutils.alloca_once_value(builder, start)
    more = builder.append_basic_block("run")
    end = builder.append_basic_block("end")
    builder.branch(more)

    # a run of residues lasts until the target ends or the first lane's row comes round to zero
    builder.position_at_end(more)
    first = builder.load(done)
    left, room = builder.sub(length, first), builder.sub(period, builder.load(column))
    count = builder.select(builder.icmp_signed("<", left, room), left, room)
    address = builder.add(profile, builder.mul(builder.load(column), step))
    with cgutils.for_range(builder, count) as loop:
        code = builder.load(builder.gep(code_pointer, [builder.add(first, loop.index)]))
        row = builder.load(builder.gep(row_pointer, [builder.zext(code, I64)]))
        place = builder.add(builder.add(address, builder.mul(loop.index, step)), row)
        offset = 0
        for k, v in enumerate(vectors):
            score = v.add(builder.load(scores[k]), v.load(place, offset))
            builder.store(score, scores[k])
            builder.store(v.maximum(builder.load(best[chain[k]]), score), best[chain[k]])
            offset += v.bytes
    builder.store(builder.add(first, count), done)
    builder.store(zero, column)
    builder.cbranch(builder.icmp_signed("<", builder.load(done), length), more, end)

    builder.position_at_end(end)
    result = cgutils.alloca_once_value(builder, ir.Constant(I64, vectors[0].lowest))
    for k in sorted(set(chain)):
        v = vectors[chain.index(k)]
        largest = builder.sext(v.largest(builder.load(best[k])), I64)
        current = builder.load(result)
        builder.store(builder.select(builder.icmp_signed(">", largest, current), largest, current), result)
    return builder.load(result)


def _block_typing(typingctx, profile, rows, codes, length, period, start, units):  # type: ignore[no-untyped-def]
    """Score a target on lanes start … start + 32·units − 1.

    Args:
        profile: int8 or int16 [letters, width], 2-D; its type says how wide a score is.
        rows: int64 [64], byte offset of each residue byte's row in the profile.
        codes: uint8 [target length], residue bytes.
        length, period, start, units: intp; the target's length ≥ 1, the period, the first lane, the number of
            units from 1 to `_UNITS[bits]`.

    Returns:
        The largest M, int64, biased by −2^(bits−1).
    """
    signature = types.int64(profile, rows, codes, *[types.intp] * 4)

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
    ) -> ir.Value:
        bits = signature.args[0].dtype.bitwidth
        addresses = [array_address(context, builder, signature.args[k], arguments[k]) for k in range(3)]
        result = cgutils.alloca_once(builder, I64)
        after = builder.append_basic_block("after")
        blocks = [builder.append_basic_block(f"units{n}") for n in range(1, _UNITS[bits] + 1)]
        switch = builder.switch(arguments[6], blocks[-1])
        for n, target in enumerate(blocks, 1):
            if n < len(blocks):
                switch.add_case(ir.Constant(I64, n), target)
            builder.position_at_end(target)
            builder.store(_emit_block(builder, bits, n, [*addresses, *arguments[3:6]]), result)
            builder.branch(after)
        builder.position_at_end(after)
        return builder.load(result)

    return signature, codegen


_block: Any = intrinsic(_block_typing)


@kernel
def _score_targets(profile, rows, residues, offsets, lengths, chosen, period, most, scores):  # type: ignore[no-untyped-def]
    """Score chosen targets; 2^bits − 1 means that or more."""
    units = period // UNIT
    blocks = -(-units // most)
    zero = 1 << (8 * profile.itemsize - 1)
    for t in chosen:
        best = -zero
        if lengths[t]:
            codes = residues[offsets[t] : offsets[t] + lengths[t]]
            done = 0
            for b in range(blocks):
                # shares as equal as can be: a small last block would be all overhead
                share = (b + 1) * units // blocks - done
                best = max(best, _block(profile, rows, codes, lengths[t], period, done * UNIT, share))
                done += share
        scores[t] = best + zero


@kernel
def _score_plainly(profile, codes):  # type: ignore[no-untyped-def]
    """The score of one target by the definition; profile is int64 [letters, length]."""
    length = profile.shape[1]
    row = np.zeros(length + 1, np.int64)
    best = 0
    for code in codes:
        letter = X if code & MASK_BIT else code & LETTER_BITS
        for i in range(length, 0, -1):
            row[i] = max(0, row[i - 1] + profile[letter, i - 1])
            best = max(best, row[i])
    return best


@dataclass(frozen=True)
class _Unrolled:
    """A profile as the kernels read it.

    Args:
        scores: int8 or int16 [letters, period + lanes of the largest block].
        rows: int64 [64], byte offset of the row of each residue byte; masked ones have X's.
        period: query positions and reset rows, a multiple of 32.
    """

    scores: np.ndarray
    rows: np.ndarray
    period: int

    @classmethod
    def make(cls, profile: np.ndarray, bits: int) -> "_Unrolled":
        lowest = -(1 << (bits - 1))
        period = -(-(len(profile) + 2) // UNIT) * UNIT
        around = np.full((period, len(LETTERS)), lowest, np.int8 if bits == 8 else np.int16)
        around[: len(profile)] = profile[:, : len(LETTERS)]
        # a lane of the last unit of a block starts up to a block further on, and wraps
        width = period + min(_UNITS[bits] * UNIT, period)
        scores = np.ascontiguousarray(around[np.arange(width) % period].T)
        rows = np.arange(64, dtype=np.int64)
        rows = np.where(rows & MASK_BIT, X, np.minimum(rows & LETTER_BITS, len(LETTERS) - 1))
        return cls(scores, rows * scores.strides[0], period)


def gapless_scores(
    profile: np.ndarray,
    targets: SequenceArrays,
    threads: int = 1,
    progress: Progress | None = None,
) -> np.ndarray:
    """The gapless score of a query against every target.

    Args:
        profile: int16 [query length ≥ 1, 32], half-bits.
        targets: the database.
        threads: at least 1.
        progress: called with targets done and targets in all.

    Returns:
        int32 [n], half-bits, ≥ 0; exact whatever their size.
    """
    scores = np.zeros(len(targets), np.int32)
    chosen = np.arange(len(targets))
    lowest, highest = int(profile.min()), int(profile.max())
    if lowest >= -128 and highest <= 127:
        _score_at_width(8, profile, targets, chosen, scores, threads, progress)
        chosen = np.flatnonzero(scores == 255)
    _score_at_width(16, profile, targets, chosen, scores, threads)
    wide = np.ascontiguousarray(profile.T, np.int64)
    for t in chosen[scores[chosen] == 65535].tolist():
        scores[t] = _score_plainly(wide, targets.codes(t))
    return scores


def _score_at_width(
    bits: int,
    profile: np.ndarray,
    targets: SequenceArrays,
    chosen: np.ndarray,
    scores: np.ndarray,
    threads: int,
    progress: Progress | None = None,
) -> None:
    """Fill in the scores of chosen targets, up to 2^bits − 1."""
    if not len(chosen):
        return
    unrolled = _Unrolled.make(profile, bits)

    def score(first: int, end: int) -> None:
        _score_targets(
            unrolled.scores, unrolled.rows, targets.residues, targets.offsets, targets.lengths,
            chosen[first:end], unrolled.period, _UNITS[bits], scores,
        )  # fmt: skip

    size = max(1, _PIECE // unrolled.period * 8 // bits)
    run_pieces(score, pieces_of_equal_work(targets.lengths[chosen], size), threads, progress)
