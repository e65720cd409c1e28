"""Stage 1, the gapless filter: the best score of an ungapped local alignment with each target.

    M[i, j] = max(0, M[i−1, j−1] + Q[i, s_j]),  score = max over i, j

**Two instructions per vector of cells.** M is stored as the signed number M − 2^(bits−1), so that the
smallest number represents zero. One saturating addition then computes both the sum and the maximum with 0,
as in HMMER's SSV filter; a second instruction updates the running maximum.

**Cells stay in their registers.** A vector lane follows one diagonal: at column j of the target, lane d is
at row i = (d + j) mod P of the query. For each letter, the scores of all query positions are stored in order,
and each step reads them from the next position on. The period P is the query's length plus at least two reset
rows with the lowest score, which reset a lane to zero after the end of the query. Lanes are independent, so
that a query of any length is processed in blocks of as many lanes as fit in the registers, each block over
the whole target.

Scores up to 254 fit in bytes. A target that reaches 255 is scored again in 16 bits, and one that reaches
65,535 again in 64 bits. Masked residues score as X.
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
from msa.cpu.threads import chunks_of_equal_work, run_in_threads
from msa.database.sequence_arrays import SequenceArrays
from msa.jit import kernel
from msa.progress import Progress

LANES_PER_UNIT = 32
"""Lanes per unit; a block consists of whole units."""

# 8 bits: leave four registers for the running maxima and the profile
_MAX_UNITS = {
    8: min(32, vector_bytes() * (vector_registers() - 4) // LANES_PER_UNIT),
    16: 2 * vector_bytes() // LANES_PER_UNIT,
}
"""Units of the largest block, by number of bits of a score."""
_CHUNK_CELLS = 2**28
"""Cells per chunk of work; a chunk takes a few milliseconds."""


def _lane_vectors(builder: ir.IRBuilder, bits: int, units: int) -> list[Vectors]:
    """Return vectors that make up `units` × 32 lanes: as few as possible, none wider than a register."""
    lanes = units * LANES_PER_UNIT
    widest = vector_bytes() * 8 // bits
    vectors = [Vectors(builder, bits, widest)] * (lanes // widest)
    return vectors + ([Vectors(builder, bits, lanes % widest)] if lanes % widest else [])


def _emit_block(builder: ir.IRBuilder, bits: int, units: int, arguments: list[ir.Value]) -> ir.Value:
    """Emit the loop over a target's residues for a block of lanes; return its largest M, biased."""
    profile, rows, codes, length, period, start = arguments
    vectors = _lane_vectors(builder, bits, units)
    step = ir.Constant(I64, bits // 8)
    zero = ir.Constant(I64, 0)
    scores = [v.variable(v.constant(v.lowest)) for v in vectors]
    # two chains of maxima per vector width: with one, each maximum would wait for the previous one
    best = [v.variable(v.constant(v.lowest)) for v in vectors[:2] + vectors[-1:]]
    chain = [
        len(best) - 1 if v.count != vectors[0].count else k % min(2, len(vectors))
        for k, v in enumerate(vectors)
    ]
    code_pointer = builder.inttoptr(codes, ir.IntType(8).as_pointer())
    row_pointer = builder.inttoptr(rows, I64.as_pointer())
    done = cgutils.alloca_once_value(builder, zero)
    column = cgutils.alloca_once_value(builder, start)
    run = builder.append_basic_block("run")
    end = builder.append_basic_block("end")
    builder.branch(run)

    # a run of residues lasts until the target ends or the first lane returns to row zero
    builder.position_at_end(run)
    first = builder.load(done)
    residues_left, rows_left = builder.sub(length, first), builder.sub(period, builder.load(column))
    count = builder.select(builder.icmp_signed("<", residues_left, rows_left), residues_left, rows_left)
    address = builder.add(profile, builder.mul(builder.load(column), step))
    with cgutils.for_range(builder, count) as loop:
        code = builder.load(builder.gep(code_pointer, [builder.add(first, loop.index)]))
        row = builder.load(builder.gep(row_pointer, [builder.zext(code, I64)]))
        scores_address = builder.add(builder.add(address, builder.mul(loop.index, step)), row)
        offset = 0
        for k, v in enumerate(vectors):
            score = v.add(builder.load(scores[k]), v.load(scores_address, offset))
            builder.store(score, scores[k])
            builder.store(v.maximum(builder.load(best[chain[k]]), score), best[chain[k]])
            offset += v.bytes
    builder.store(builder.add(first, count), done)
    builder.store(zero, column)
    builder.cbranch(builder.icmp_signed("<", builder.load(done), length), run, end)

    builder.position_at_end(end)
    result = cgutils.alloca_once_value(builder, ir.Constant(I64, vectors[0].lowest))
    for k in sorted(set(chain)):
        v = vectors[chain.index(k)]
        largest = builder.sext(v.largest(builder.load(best[k])), I64)
        current = builder.load(result)
        builder.store(builder.select(builder.icmp_signed(">", largest, current), largest, current), result)
    return builder.load(result)


def _block_typing(typingctx, profile, rows, codes, length, period, start, units):  # type: ignore[no-untyped-def]
    """Define an intrinsic that scores a target on lanes start … start + 32·units − 1.

    Args:
        typingctx: numba's typing context.
        profile: int8 or int16 [letters, width], 2-D; the dtype is that of the scores.
        rows: int64 [256], byte offset in the profile of each residue byte's row.
        codes: uint8 [target length], residue bytes.
        length: intp, the target's length ≥ 1.
        period: intp.
        start: intp, the first lane.
        units: intp, 1 to `_MAX_UNITS[bits]`.

    Returns:
        The intrinsic's signature and code generator; it returns the largest M − 2^(bits−1), int64.
    """
    signature = types.int64(profile, rows, codes, *[types.intp] * 4)

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
    ) -> ir.Value:
        bits = signature.args[0].dtype.bitwidth
        addresses = [array_address(context, builder, signature.args[k], arguments[k]) for k in range(3)]
        result = cgutils.alloca_once(builder, I64)
        after = builder.append_basic_block("after")
        blocks = [builder.append_basic_block(f"units{n}") for n in range(1, _MAX_UNITS[bits] + 1)]
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
def _score_targets(profile, rows, residues, offsets, lengths, indices, period, max_units, scores):  # type: ignore[no-untyped-def]
    """Score the targets with these indices; a score of 2^bits − 1 means that score or more."""
    units = period // LANES_PER_UNIT
    blocks = -(-units // max_units)
    zero = 1 << (8 * profile.itemsize - 1)
    for t in indices:
        best = -zero
        if lengths[t]:
            codes = residues[offsets[t] : offsets[t] + lengths[t]]
            done = 0
            for b in range(blocks):
                # blocks are as equal as possible: a small last block would be mostly overhead
                share = (b + 1) * units // blocks - done
                best = max(
                    best, _block(profile, rows, codes, lengths[t], period, done * LANES_PER_UNIT, share)
                )
                done += share
        scores[t] = best + zero


@kernel
def _score_with_int64(profile, codes):  # type: ignore[no-untyped-def]
    """Score one target directly by the recurrence; the profile is int64 [letters, length]."""
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
class _UnrolledProfile:
    """A profile in the memory layout of the kernels.

    Args:
        scores: int8 or int16 [letters, period + lanes of the largest block].
        rows: int64 [256], byte offset in `scores` of each residue byte's row. Masked residues use the row
            of X, and invalid bytes (of a damaged database) an arbitrary one.
        period: number of query positions and reset rows, a multiple of 32.
    """

    scores: np.ndarray
    rows: np.ndarray
    period: int

    @classmethod
    def from_profile(cls, profile: np.ndarray, bits: int) -> "_UnrolledProfile":
        """Unroll a profile, int16 [length, 32], with scores of 8 or 16 bits."""
        lowest = -(1 << (bits - 1))
        period = -(-(len(profile) + 2) // LANES_PER_UNIT) * LANES_PER_UNIT
        padded = np.full((period, len(LETTERS)), lowest, np.int8 if bits == 8 else np.int16)
        padded[: len(profile)] = profile[:, : len(LETTERS)]
        # repeat the first positions at the end, because the last lanes of a block wrap around
        width = period + min(_MAX_UNITS[bits] * LANES_PER_UNIT, period)
        scores = np.ascontiguousarray(padded[np.arange(width) % period].T)
        rows = np.arange(256, dtype=np.int64)
        rows = np.where(rows & MASK_BIT, X, np.minimum(rows & LETTER_BITS, len(LETTERS) - 1))
        return cls(scores, rows * scores.strides[0], period)


def gapless_scores(
    profile: np.ndarray,
    targets: SequenceArrays,
    threads: int = 1,
    progress: Progress | None = None,
) -> np.ndarray:
    """Compute the gapless score of a query with every target.

    Args:
        profile: int16 [query length ≥ 1, 32].
        targets: sequences of the database.
        threads: at least 1.
        progress: called with the number of targets done and of all targets.

    Returns:
        int32 [n], ≥ 0, in the unit of the profile; exact without an upper limit.
    """
    scores = np.zeros(len(targets), np.int32)
    indices = np.arange(len(targets))
    lowest, highest = int(profile.min()), int(profile.max())
    if lowest >= -128 and highest <= 127:
        _score_at_width(8, profile, targets, indices, scores, threads, progress)
        indices = np.flatnonzero(scores == 255)
    _score_at_width(16, profile, targets, indices, scores, threads)
    transposed = np.ascontiguousarray(profile.T, np.int64)
    for t in indices[scores[indices] == 65535].tolist():
        scores[t] = _score_with_int64(transposed, targets.codes(t))
    return scores


def _score_at_width(
    bits: int,
    profile: np.ndarray,
    targets: SequenceArrays,
    indices: np.ndarray,
    scores: np.ndarray,
    threads: int,
    progress: Progress | None = None,
) -> None:
    """Write the scores of the targets with these indices, at most 2^bits − 1."""
    if not len(indices):
        return
    unrolled = _UnrolledProfile.from_profile(profile, bits)

    def score_chunk(first: int, end: int) -> None:
        _score_targets(
            unrolled.scores, unrolled.rows, targets.residues, targets.offsets, targets.lengths,
            indices[first:end], unrolled.period, _MAX_UNITS[bits], scores,
        )  # fmt: skip

    chunk_residues = max(1, _CHUNK_CELLS // unrolled.period * 8 // bits)
    chunks = chunks_of_equal_work(targets.lengths[indices], chunk_residues)
    run_in_threads(score_chunk, chunks, threads, progress)
