"""Stage 2: Smith–Waterman alignment of a profile with affine gaps (Gotoh 1982), with paths.

A gap of k residues costs gap_open + (k − 1) gap_extend. For query position i and target position j, from 1:

    H[i, j] = max(0, H[i−1, j−1] + Q[i, s_j], I[i, j], D[i, j])
    I[i, j] = max over k ≥ 1 of H[i−k, j] − gap_open − (k − 1) gap_extend     query residues opposite a gap
    D[i, j] = max over k ≥ 1 of H[i, j−k] − gap_open − (k − 1) gap_extend     target residues opposite a gap

An insertion may directly follow a deletion, and vice versa. Masked residues score as their letters: masking
prevents targets from being found by low-complexity regions, but these regions are still aligned.

**The path is a function of H alone**, so that all engines that compute H find the same path, bit for bit:

1. The path ends at the cell with the largest H; ties are broken by the smallest j, then the smallest i.
2. Traced back from a cell: if H[i, j] = H[i−1, j−1] + Q[i, s_j], the two residues are aligned (M).
   Otherwise the shortest insertion (I) that ends here is taken, or, if there is none, the shortest deletion
   (D).
3. The path starts with the first aligned pair, in the order of the traceback, whose H[i−1, j−1] is 0.

Rows (one target residue against the whole query) are computed in Farrar's striped order (2007) in
saturating 16-bit integers. A scan over the lanes carries insertions from stripe to stripe, instead of
Farrar's correction loop (as in Daily's parasail, 2016). Scores of 32,767 and more are computed again in 32
bits. H is stored for one block of rows only. The row before each block is stored as a checkpoint, from which
the block is computed again if the path passes through it. Memory thus grows with the square root of the
target's length.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from cuda.alignment import AlignmentPaths
from msa.alphabet import LETTER_BITS, X
from msa.base.cpu_kernels.jit import kernel
from msa.base.cpu_kernels.threads import chunks_of_equal_work, run_in_threads
from msa.base.progress import Progress
from msa.cpu.simd import I64, Vectors, array_address, lane_count, striped_profile
from msa.database.sequence_arrays import SequenceArrays

_BLOCK_BYTES = 2**20
"""Size of a block of rows of H; a block has at least √(2 n) of a target's n rows."""
_CHUNK_CELLS = 2**23
"""Cells per chunk of work; a chunk takes a few milliseconds."""


def _next_row_typing(typingctx, profile, before, row, deletions, segments, gap_open, gap_extend):  # type: ignore[no-untyped-def]
    """Define an intrinsic that computes H for one target residue and updates D in place.

    Each array is one row in striped order, [segments, lanes] with query position lane · segments + segment.
    Their dtype is that of the scores.

    Args:
        typingctx: numba's typing context.
        profile: scores of this residue, 1-D; positions past the query's end have the lowest score.
        before: H of the previous target residue, 1-D.
        row: H, written, 1-D; may be `before` itself.
        deletions: D, 1-D; of the previous residue on entry, of this one on return.
        segments: intp.
        gap_open: intp.
        gap_extend: intp.

    Returns:
        The intrinsic's signature and code generator; it returns the largest H of the row, int64.
    """
    signature = types.int64(profile, before, row, deletions, types.intp, types.intp, types.intp)

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
    ) -> ir.Value:
        bits = signature.args[1].dtype.bitwidth
        v = Vectors(builder, bits, lane_count(bits))
        q_row, h_before, h_row, d_row = (
            array_address(context, builder, signature.args[k], arguments[k]) for k in range(4)
        )
        segments, gap_open, gap_extend = arguments[4:]
        size, one = ir.Constant(I64, v.bytes), ir.Constant(I64, 1)

        def narrow(value: ir.Value) -> ir.Value:
            """Convert an int64 ≥ 0 to an element, saturating."""
            limit = ir.Constant(I64, -v.lowest - 1)
            capped = builder.select(builder.icmp_signed("<", value, limit), value, limit)
            return builder.trunc(capped, v.element)

        def at(row: ir.Value, segment: ir.Value) -> ir.Value:
            return builder.add(row, builder.mul(segment, size))

        opening, extending = v.splat(narrow(gap_open)), v.splat(narrow(gap_extend))
        diagonal = v.variable(v.shift_up(v.load(at(h_before, builder.sub(segments, one))), 1, 0))
        insertion = v.variable(v.constant(v.lowest))
        largest = v.variable(v.constant(0))
        with cgutils.for_range(builder, segments) as loop:
            above = v.load(at(h_before, loop.index))
            deletion = v.maximum(
                v.subtract(v.load(at(d_row, loop.index)), extending), v.subtract(above, opening)
            )
            v.store(deletion, at(d_row, loop.index))
            score = v.add(builder.load(diagonal), v.load(at(q_row, loop.index)))
            score = v.maximum(v.maximum(score, deletion), v.constant(0))
            score = v.maximum(score, builder.load(insertion))
            v.store(score, at(h_row, loop.index))
            builder.store(v.maximum(builder.load(largest), score), largest)
            carried = v.maximum(v.subtract(builder.load(insertion), extending), v.subtract(score, opening))
            builder.store(carried, insertion)
            builder.store(above, diagonal)

        # carry insertions from the last segment of each lane to the next lane; only values above 0 matter
        with builder.if_then(v.any_positive(builder.load(insertion)), likely=False):
            entering = v.shift_up(builder.load(insertion), 1, v.lowest)
            lanes = 1
            while lanes < v.count:
                through = builder.mul(builder.mul(segments, gap_extend), ir.Constant(I64, lanes))
                passed = v.subtract(v.shift_up(entering, lanes, v.lowest), v.splat(narrow(through)))
                entering = v.maximum(entering, passed)
                lanes *= 2
            top = builder.sext(v.largest(entering), I64)
            with builder.if_then(builder.icmp_signed(">", top, ir.Constant(I64, 0))):
                reach = builder.add(builder.sdiv(builder.sub(top, one), gap_extend), one)
                reach = builder.select(builder.icmp_signed("<", reach, segments), reach, segments)
                builder.store(entering, insertion)
                with cgutils.for_range(builder, reach) as loop:
                    carried = builder.load(insertion)
                    v.store(v.maximum(v.load(at(h_row, loop.index)), carried), at(h_row, loop.index))
                    builder.store(v.subtract(carried, extending), insertion)
        return builder.sext(v.largest(builder.load(largest)), I64)

    return signature, codegen


_next_row: Any = intrinsic(_next_row_typing)


@kernel
def _letter(codes, index, letters):  # type: ignore[no-untyped-def]
    """Return the letter of a residue: a byte has a mask bit, a wider code is the letter itself."""
    code = np.int64(codes[index])
    return min(code & LETTER_BITS if codes.itemsize == 1 else code, letters - 1)


@kernel
def _fill_block(profile, codes, first, rows, deletions, segments, gap_open, gap_extend):  # type: ignore[no-untyped-def]
    """Compute rows[1:] for the residues from `first` on, given rows[0] and the D before these residues.

    Returns:
        The largest H, and the index in `rows` of its first occurrence (0 if it is 0).
    """
    best, best_row = 0, 0
    for r in range(min(len(rows) - 1, len(codes) - first)):
        letter = _letter(codes, first + r, len(profile))
        highest = _next_row(profile[letter], rows[r], rows[r + 1], deletions, segments, gap_open, gap_extend)
        if highest > best:
            best, best_row = highest, r + 1
    return best, best_row


@kernel
def _copy(source, target):  # type: ignore[no-untyped-def]
    # a slice assignment would take numba seconds to compile
    for k in range(len(source)):
        target[k] = source[k]


@kernel
def _align_one(  # type: ignore[no-untyped-def]
    profile, query, codes, gap_open, gap_extend, lanes, block, ceiling, runs, result
):
    """Align the query to one target.

    Args:
        profile: int16 or int32 [letters, segments · lanes], striped.
        query: uint8 or uint16 [length], letter codes.
        codes: uint8 [target length ≥ 1], residue bytes, or uint16, letters.
        gap_open: cost of a gap's first residue.
        gap_extend: cost of each further residue.
        lanes: elements of a vector.
        block: number of rows of H in memory.
        ceiling: largest value of the profile's dtype; a score that reaches it may be larger.
        runs: int32, written: the path, last run first, as length · 4 + operation; must fit any path.
        result: int32 [8], zeros on entry, written: score, first and last query position, first and last
            target position (from 0, inclusive), identities, columns, number of runs. A score of −1 means that
            the score is too large for the dtype.
    """
    width = profile.shape[1]
    segments = width // lanes
    blocks = -(-len(codes) // block)
    rows = np.zeros((block + 1, width), profile.dtype)
    deletions = np.full(width, -ceiling - 1, profile.dtype)
    checkpoints = np.empty((blocks, 2, width if blocks > 1 else 0), profile.dtype)
    best, j = 0, 0
    for b in range(blocks):
        if blocks > 1:
            if b:
                _copy(rows[block], rows[0])
            _copy(rows[0], checkpoints[b, 0])
            _copy(deletions, checkpoints[b, 1])
        score, row = _fill_block(profile, codes, b * block, rows, deletions, segments, gap_open, gap_extend)
        if score > best:
            best, j = score, b * block + row
    if best == 0 or best >= ceiling:
        result[0] = -1 if best else 0
        return

    current = blocks - 1
    i, h = -1, best
    identities, columns, count, last_operation = 0, 0, 0, -1
    while h > 0:
        if (j - 1) // block != current:
            current = (j - 1) // block
            _copy(checkpoints[current, 0], rows[0])
            _copy(checkpoints[current, 1], deletions)
            _fill_block(profile, codes, current * block, rows, deletions, segments, gap_open, gap_extend)
        r = j - current * block
        if i < 0:
            i = 0
            while rows[r, i % segments * lanes + i // segments] != best:
                i += 1
            result[2], result[4] = i, j - 1
        letter = _letter(codes, j - 1, len(profile))
        before = rows[r - 1, (i - 1) % segments * lanes + (i - 1) // segments] if i > 0 else 0
        length = 1
        if h == before + profile[letter, i % segments * lanes + i // segments]:
            operation = 0
            result[1], result[3] = i, j - 1
            identities += letter == query[i] and letter != X
            i, j, h = i - 1, j - 1, before
        else:
            # stop once the needed score exceeds the best score of all cells
            operation, needed = 1, h + gap_open
            while length <= i and needed <= best:
                if rows[r, (i - length) % segments * lanes + (i - length) // segments] == needed:
                    break
                length, needed = length + 1, needed + gap_extend
            if length <= i and needed <= best:
                i -= length
            else:
                operation, length, needed = 2, 1, h + gap_open
                while True:
                    j -= 1
                    if j < current * block:
                        current -= 1
                        _copy(checkpoints[current, 0], rows[0])
                        _copy(checkpoints[current, 1], deletions)
                        _fill_block(
                            profile, codes, current * block, rows, deletions, segments, gap_open, gap_extend
                        )
                    if rows[j - current * block, i % segments * lanes + i // segments] == needed:
                        break
                    length, needed = length + 1, needed + gap_extend
            h = needed
        columns += length
        if operation == last_operation:
            runs[count - 1] += 4 * length
        else:
            runs[count] = 4 * length + operation
            count, last_operation = count + 1, operation
    result[0], result[5], result[6], result[7] = best, identities, columns, count


@kernel
def _align_chunk(  # type: ignore[no-untyped-def]
    profile,
    query,
    residues,
    offsets,
    lengths,
    targets,
    gap_open,
    gap_extend,
    lanes,
    ceiling,
    block_bytes,
    runs,
    results,
):
    """Align the query to several targets.

    The runs of each target start at the sum of the maximum numbers of runs of all previous targets.
    """
    start = 0
    for k in range(len(targets)):
        t = targets[k]
        length = lengths[t]
        if length:
            block = max(block_bytes // (profile.shape[1] * profile.itemsize), int(np.sqrt(2.0 * length)), 1)
            _align_one(
                profile, query, residues[offsets[t] : offsets[t] + length], gap_open, gap_extend, lanes,
                min(block, length), ceiling, runs[start:], results[k],
            )  # fmt: skip
        start += len(query) + length


def _striped(profile: np.ndarray, bits: int) -> tuple[np.ndarray, int]:
    """Return the profile in striped order, [letters, segments · lanes], and the number of lanes."""
    lanes = lane_count(bits)
    segments = -(-len(profile) // lanes)
    striped = np.ascontiguousarray(striped_profile(profile, bits, segments, segments))
    return striped.reshape(len(striped), -1), lanes


def align(
    profile: np.ndarray,
    query: np.ndarray,
    targets: SequenceArrays,
    indices: np.ndarray,
    gap_open: int = 11,
    gap_extend: int = 1,
    threads: int = 1,
    progress: Progress | None = None,
) -> AlignmentPaths:
    """Align a query to targets.

    Args:
        profile: int16 [query length ≥ 1, 32]; of other alphabets a column for each letter.
        query: uint8 or uint16 [query length], letter codes; used only to count identities.
        targets: sequences of the database.
        indices: int64 [n], targets to align.
        gap_open: cost of a gap's first residue.
        gap_extend: cost of each further residue; gap_open ≥ gap_extend ≥ 1.
        threads: at least 1.
        progress: called with the number of targets done and of all targets.

    Returns:
        The alignment of each target, in the order of `indices`; scores are exact without an upper limit.

    Raises:
        ValueError: the gap costs are not gap_open ≥ gap_extend ≥ 1.
    """
    if not gap_open >= gap_extend >= 1:
        raise ValueError(
            f"gap open {gap_open} must be at least gap extend {gap_extend}, which must be at least 1"
        )
    indices = np.asarray(indices, np.int64)
    records = np.zeros((len(indices), 8), np.int32)
    # the runs of each chunk of work, with the positions in `indices` of their alignments
    parts: list[tuple[np.ndarray, np.ndarray]] = []

    def align_with_bits(bits: int, positions: np.ndarray) -> None:
        """Align the targets at given positions of `indices`, with scores of 16 or 32 bits."""
        striped, lanes = _striped(profile, bits)
        ceiling = int(np.iinfo(striped.dtype).max)

        def align_chunk(first: int, end: int) -> None:
            chunk = positions[first:end]
            chunk_indices = indices[chunk]
            max_runs = targets.lengths[chunk_indices].astype(np.int64) + len(query)
            runs = np.empty(int(max_runs.sum()), np.int32)
            results: np.ndarray = np.zeros((len(chunk), 8), np.int32)
            _align_chunk(
                striped, query, targets.residues, targets.offsets, targets.lengths, chunk_indices,
                gap_open, gap_extend, lanes, ceiling, _BLOCK_BYTES, runs, results,
            )  # fmt: skip
            records[chunk] = results
            # runs are written last run first, with gaps between the alignments
            counts = results[:, 7].astype(np.int64)
            last = np.cumsum(max_runs) - max_runs + counts - 1
            written = np.cumsum(counts) - counts
            parts.append(
                (chunk[counts > 0], runs[np.repeat(last + written, counts) - np.arange(counts.sum())])
            )

        cells = targets.lengths[indices[positions]].astype(np.int64) * len(query) + 1
        run_in_threads(align_chunk, chunks_of_equal_work(cells, _CHUNK_CELLS), threads, progress)

    align_with_bits(16, np.arange(len(indices)))
    too_large = np.flatnonzero(records[:, 0] < 0)
    if len(too_large):
        align_with_bits(32, too_large)
    return _join_paths(records, parts)


def _join_paths(records: np.ndarray, parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> AlignmentPaths:
    """Bring the runs of chunks, finished in any order, into the order of the alignments.

    Args:
        records: int32 [n, 8], see AlignmentPaths.
        parts: positions of the alignments with a path, int64, and their runs, int32.
    """
    run_offsets = np.concatenate([[0], np.cumsum(records[:, 7], dtype=np.int64)])
    runs = np.empty(run_offsets[-1], np.int32)
    for positions, part in parts:
        counts = records[positions, 7].astype(np.int64)
        shift = np.repeat(run_offsets[positions] - (np.cumsum(counts) - counts), counts)
        runs[np.arange(len(part)) + shift] = part
    return AlignmentPaths(records, runs, run_offsets)
