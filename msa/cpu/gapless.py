"""Stage 1, the gapless filter: the best score of an ungapped local alignment with each target.

    M[i, j] = max(0, M[i−1, j−1] + Q[i, s_j]),  score = max over i, j

**Two instructions per vector of cells.** M is stored as the signed number M − 2^(bits−1), so that the
smallest number represents zero. One saturating addition then computes both the sum and the maximum with 0,
as in HMMER's SSV filter; a second instruction updates the running maximum.

**Cells stay in their registers.** With S stripes, lane d of stripe k stands for row d S + k of the query: the
cells of a register belong to one stripe and, a residue of the target later, to the next one. Each step reads
the scores of one stripe, a vector at an aligned address. After the last stripe, each lane continues with the
first row of the next lane: the register is rotated. To rotate less often, the profile of a short query has
its stripes several times, each time one lane further. The rows after the query's end, at least two, have the
lowest score, which resets a lane to zero. Registers are independent, so that a query of any length is
processed in blocks of as many stripes as fit in the registers, each block over the whole target.

**Most targets need no score**, because only scores that pass the filter are used. With AVX-512, each target
is first tested: a masked comparison with the lowest score that passes for its length replaces the maximum.
Additions and maxima run on one port of an Intel core and comparisons on another, so that a test takes about
half as long. Only targets that reach the threshold are scored.

Scores up to 254 fit in bytes. A target that reaches 255 is scored again in 16 bits, and one that reaches
65,535 again in 64 bits. Masked residues score as X.
"""

import functools
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
from msa.base.cpu_kernels.jit import kernel
from msa.base.cpu_kernels.threads import chunks_of_equal_work, run_in_threads
from msa.base.progress import Progress
from msa.cpu.simd import (
    I64,
    Vectors,
    array_address,
    lane_count,
    striped_profile,
    vector_bytes,
    vector_registers,
)
from msa.database.sequence_arrays import SequenceArrays

_MAX_STRIPES = {8: 16 if vector_registers() == 32 else 12, 16: 8}
"""Stripes of the largest block, by number of bits of a score; other registers hold maxima and the profile."""
_MAX_TESTED_STRIPES = 7
"""Stripes of the largest block that is tested; each has a mask register."""
_HAS_MASKS = vector_bytes() == 64
_MIN_RUN = 16
"""Minimum number of residues between two rotations if a query has few stripes."""
_CACHE_LINE = 64
_MIN_TESTED = 16
"""Number of targets that are tested before tests may end because too many targets pass."""
_NO_LIMITS = np.empty(0, np.int32)
_CHUNK_CELLS = 2**28
"""Cells per chunk of work; a chunk takes a few milliseconds."""


def _repeats(bits: int, stripes: int) -> int:
    """Return how often the profile of blocks with a number of stripes contains each stripe."""
    # longer queries have several blocks, of at least half the largest size
    return 1 if 2 * stripes >= _MAX_STRIPES[bits] else -(-_MIN_RUN // stripes)


def _emit_block(
    builder: ir.IRBuilder, bits: int, stripes: int, arguments: list[ir.Value], threshold: ir.Value | None
) -> ir.Value:
    """Emit the loop over a target's residues for a block of stripes; return the result of `_block`."""
    profile, rows, residues, offset, length, period, repeats, start = arguments
    v = Vectors(builder, bits, lane_count(bits))
    zero, step = ir.Constant(I64, 0), ir.Constant(I64, v.bytes)
    scores = [v.variable(v.constant(v.lowest)) for _ in range(stripes)]
    # the comparisons of one or two stripes would wait for those of the previous residue, in the same masks
    turns = 2 if threshold is not None and stripes <= 2 else 1
    # several chains of maxima or masks: with one, each would wait for the previous one
    if threshold is None:
        best = [v.variable(v.constant(v.lowest)) for _ in range(min(2, stripes))]
    else:
        limit = v.splat(builder.trunc(threshold, v.element))
        best = [v.variable(v.mask()) for _ in range(stripes * turns)]
    code_pointer = builder.inttoptr(builder.add(residues, offset), ir.IntType(8).as_pointer())
    row_pointer = builder.inttoptr(rows, I64.as_pointer())
    done = cgutils.alloca_once_value(builder, zero)
    stripe = cgutils.alloca_once_value(builder, start)
    run = builder.append_basic_block("run")
    end = builder.append_basic_block("end")
    builder.branch(run)

    # a run of residues lasts until the target ends or the first register has passed the last stripe
    builder.position_at_end(run)
    first = builder.load(done)
    residues_left, stripes_left = builder.sub(length, first), builder.sub(period, builder.load(stripe))
    count = builder.select(builder.icmp_signed("<", residues_left, stripes_left), residues_left, stripes_left)
    address = builder.add(profile, builder.mul(builder.load(stripe), step))

    def add_residue(index: ir.Value, turn: int) -> None:
        code = builder.load(builder.gep(code_pointer, [builder.add(first, index)]))
        row = builder.load(builder.gep(row_pointer, [builder.zext(code, I64)]))
        scores_address = builder.add(builder.add(address, builder.mul(index, step)), row)
        for k in range(stripes):
            score = v.add(builder.load(scores[k]), v.load(scores_address, k * v.bytes))
            builder.store(score, scores[k])
            chain = best[(turn * stripes + k) % len(best)]
            if threshold is None:
                builder.store(v.maximum(builder.load(chain), score), chain)
            else:
                builder.store(builder.and_(builder.load(chain), v.is_less(score, limit)), chain)

    with cgutils.for_range(builder, builder.udiv(count, ir.Constant(I64, turns))) as loop:
        for turn in range(turns):
            index = builder.mul(loop.index, ir.Constant(I64, turns))
            add_residue(builder.add(index, ir.Constant(I64, turn)), turn)
    if turns == 2:
        with builder.if_then(builder.trunc(count, ir.IntType(1))):
            add_residue(builder.sub(count, ir.Constant(I64, 1)), 0)
    # a short query is one block; one of a longer query's blocks may have as many stripes
    is_repeated = builder.icmp_signed(">", repeats, ir.Constant(I64, 1))
    with builder.if_else(is_repeated) as (then, otherwise):
        for branch, lanes in ((then, _repeats(bits, stripes)), (otherwise, 1)):
            with branch:
                for score in scores:
                    builder.store(v.rotate_up(builder.load(score), lanes), score)
    builder.store(builder.add(first, count), done)
    builder.store(zero, stripe)
    builder.cbranch(builder.icmp_signed("<", builder.load(done), length), run, end)

    builder.position_at_end(end)
    if threshold is None:
        return builder.sext(v.largest(v.maximum(builder.load(best[0]), builder.load(best[-1]))), I64)
    mask = functools.reduce(builder.and_, [builder.load(chain) for chain in best])
    return builder.zext(builder.not_(v.is_full(mask)), I64)


def _block_typing(  # type: ignore[no-untyped-def]
    typingctx, profile, rows, residues, offset, length, period, repeats, start, stripes, threshold
):
    """Define an intrinsic that scores or tests a target on the registers that begin at these stripes.

    Args:
        typingctx: numba's typing context.
        profile: int8 or int16 [letters, width], 2-D; the dtype is that of the scores.
        rows: int64 [256], byte offset in the profile of each residue byte's row.
        residues: uint8, residue bytes of the database.
        offset: intp, offset in `residues` of the target.
        length: intp, the target's length ≥ 1.
        period: intp, stripes after which the registers are rotated.
        repeats: intp, how often the profile contains each stripe.
        start: intp, the first register's stripe.
        stripes: intp, number of registers, 1 to `_MAX_STRIPES[bits]`, or to `_MAX_TESTED_STRIPES`.
        threshold: intp, a value of M − 2^(bits−1); None to score.

    Returns:
        The intrinsic's signature and code generator; it returns the largest M − 2^(bits−1), int64, or, with a
        threshold, whether it is reached.
    """
    tests = not isinstance(threshold, types.NoneType)
    last = types.intp if tests else types.none
    signature = types.int64(profile, rows, residues, *[types.intp] * 6, last)

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
    ) -> ir.Value:
        bits = signature.args[0].dtype.bitwidth
        addresses = [array_address(context, builder, signature.args[k], arguments[k]) for k in range(3)]
        result = cgutils.alloca_once(builder, I64)
        after = builder.append_basic_block("after")
        largest = _MAX_TESTED_STRIPES if tests else _MAX_STRIPES[bits]
        blocks = [builder.append_basic_block(f"stripes{n}") for n in range(1, largest + 1)]
        switch = builder.switch(arguments[8], blocks[-1])
        for n, target in enumerate(blocks, 1):
            if n < len(blocks):
                switch.add_case(ir.Constant(I64, n), target)
            builder.position_at_end(target)
            threshold = arguments[9] if tests else None
            builder.store(_emit_block(builder, bits, n, [*addresses, *arguments[3:8]], threshold), result)
            builder.branch(after)
        builder.position_at_end(after)
        return builder.load(result)

    return signature, codegen


_block: Any = intrinsic(_block_typing)


@kernel
def _reaches(profile, rows, residues, offset, length, period, stripes, threshold):  # type: ignore[no-untyped-def]
    """Return whether a target's score is at least the threshold, 1 to 255; the profile has bytes."""
    blocks, done = -(-stripes // _MAX_TESTED_STRIPES), 0
    for b in range(blocks):
        share = (b + 1) * stripes // blocks - done
        if _block(
            profile, rows, residues, offset, length, period, period // stripes, done, share, threshold - 128
        ):
            return True
        done += share
    return False


@kernel
def _score_targets(  # type: ignore[no-untyped-def]
    profile, rows, residues, offsets, lengths, indices, period, stripes, max_stripes, limits, scores
):
    """Score the targets with these indices; a score of 2^bits − 1 means that score or more.

    Args:
        profile: see `_block`.
        rows: see `_block`.
        residues: uint8, residue bytes of the database.
        offsets: int64, offset of each target in `residues`.
        lengths: int32, residues of each target.
        indices: int64 [n], targets to score.
        period: see `_block`.
        stripes: of the query.
        max_stripes: stripes of the largest block.
        limits: int32 [≤ 256], lengths of the longest targets that pass, by score. Others may get a score of
            0. With none, all are scored.
        scores: int32, written.
    """
    blocks = -(-stripes // max_stripes)
    zero = 1 << (8 * profile.itemsize - 1)
    threshold, tested, reached = 0, 0, 0
    for t in indices:
        best = -zero
        if lengths[t]:
            # a test takes half as long as a score or more: it saves nothing if half of the targets pass
            if len(limits) and 2 * reached <= tested + _MIN_TESTED:
                # targets are sorted by length
                while threshold and limits[threshold - 1] >= lengths[t]:
                    threshold -= 1
                while threshold < len(limits) - 1 and limits[threshold] < lengths[t]:
                    threshold += 1
                tested += 1
                if threshold and not _reaches(
                    profile, rows, residues, offsets[t], lengths[t], period, stripes, threshold
                ):
                    scores[t] = 0
                    continue
                reached += 1
            done = 0
            for b in range(blocks):
                # blocks are as equal as possible: a small last block would be mostly overhead
                share = (b + 1) * stripes // blocks - done
                score = _block(
                    profile,
                    rows,
                    residues,
                    offsets[t],
                    lengths[t],
                    period,
                    period // stripes,
                    done,
                    share,
                    None,
                )
                best = max(best, score)
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
class _StripedProfile:
    """A profile in the memory layout of the kernels.

    Args:
        scores: int8 or int16 [letters, (period + stripes of the largest block) × lanes]; each vector lies in
            one cache line.
        rows: int64 [256], byte offset in `scores` of each residue byte's row. Masked residues use the row
            of X, and invalid bytes (of a damaged database) an arbitrary one.
        stripes: number of stripes; with the lanes, at least the query's length + 2.
        period: number of stripes, counted with their repeats, after which the registers are rotated.
    """

    scores: np.ndarray
    rows: np.ndarray
    stripes: int
    period: int

    @classmethod
    def from_profile(cls, profile: np.ndarray, bits: int) -> "_StripedProfile":
        """Stripe a profile, int16 [length, 32], with scores of 8 or 16 bits."""
        stripes = -(-(len(profile) + 2) // lane_count(bits))
        block = min(stripes, _MAX_STRIPES[bits])
        period = stripes * _repeats(bits, block)
        # further stripes at the end, because the last registers of a block pass the last stripe first
        striped = striped_profile(profile, bits, stripes, period + block)
        buffer = np.empty(striped.nbytes + _CACHE_LINE, np.uint8)
        start = -buffer.ctypes.data % _CACHE_LINE
        scores = buffer[start : start + striped.nbytes].view(striped.dtype).reshape(len(LETTERS), -1)
        scores[:] = striped.reshape(scores.shape)
        rows = np.arange(256, dtype=np.int64)
        rows = np.where(rows & MASK_BIT, X, np.minimum(rows & LETTER_BITS, len(LETTERS) - 1))
        return cls(scores, rows * scores.strides[0], stripes, period)


def gapless_scores(
    profile: np.ndarray,
    targets: SequenceArrays,
    threads: int = 1,
    progress: Progress | None = None,
    longest: np.ndarray | None = None,
    min_score: int = 0,
) -> np.ndarray:
    """Compute the gapless score of a query with every target that may pass the filter.

    Args:
        profile: int16 [query length ≥ 1, 32].
        targets: sequences of the database.
        threads: at least 1.
        progress: called with the number of targets done and of all targets.
        longest: see `QueryProfile.max_target_lengths`; ascends. None to score all targets.
        min_score: smallest score that passes; only used with `longest`.

    Returns:
        int32 [n], ≥ 0, in the unit of the profile; exact without an upper limit. Targets that do not pass
        may have 0 instead.
    """
    limits = _NO_LIMITS
    if longest is not None and _HAS_MASKS:
        limits = np.where(np.arange(len(longest)) < min_score, 0, longest)[:256].astype(np.int32)
    scores = np.zeros(len(targets), np.int32)
    indices = np.arange(len(targets))
    lowest, highest = int(profile.min()), int(profile.max())
    if lowest >= -128 and highest <= 127:
        _score_at_width(8, profile, targets, indices, scores, threads, limits, progress)
        indices = np.flatnonzero(scores == 255)
    _score_at_width(16, profile, targets, indices, scores, threads, _NO_LIMITS)
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
    limits: np.ndarray,
    progress: Progress | None = None,
) -> None:
    """Write the scores of the targets with these indices, at most 2^bits − 1; see `_score_targets`."""
    if not len(indices):
        return
    striped = _StripedProfile.from_profile(profile, bits)

    def score_chunk(first: int, end: int) -> None:
        _score_targets(
            striped.scores, striped.rows, targets.residues, targets.offsets, targets.lengths,
            indices[first:end], striped.period, striped.stripes, _MAX_STRIPES[bits], limits, scores,
        )  # fmt: skip

    chunk_residues = max(1, _CHUNK_CELLS // (striped.stripes * lane_count(bits)) * 8 // bits)
    chunks = chunks_of_equal_work(targets.lengths[indices], chunk_residues)
    run_in_threads(score_chunk, chunks, threads, progress)
