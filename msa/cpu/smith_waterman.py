"""Stage 2: Smith–Waterman alignment with affine gaps (Gotoh 1982) on a profile, with its path.

A gap of k residues costs gap_open + (k − 1) gap_extend. With query position i, target position j, from 1:

    H[i, j] = max(0, H[i−1, j−1] + Q[i, s_j], I[i, j], D[i, j])
    I[i, j] = max over k ≥ 1 of H[i−k, j] − gap_open − (k − 1) gap_extend     query residues against a gap
    D[i, j] = max over k ≥ 1 of H[i, j−k] − gap_open − (k − 1) gap_extend     target residues against a gap

An insertion may follow a deletion at once, and the other way round. Masked residues count as the letters they
are: masking keeps low complexity from finding a target, not from being aligned in one.

**The path is a function of H alone**, so every engine that computes H gives the same path, bit for bit:

1. It ends at the cell with the greatest H; of several, the one with the smallest j, then the smallest i.
2. From a cell, going back: if H[i, j] = H[i−1, j−1] + Q[i, s_j], the two residues are aligned (M). Otherwise,
   if an insertion ends here, the shortest one (I) is taken; otherwise the shortest deletion (D).
3. It begins with the first aligned pair, going back, whose H[i−1, j−1] is 0.

Rows (one target residue against the whole query) are computed in Farrar's striped order (2007) in saturating
16-bit words, with what an insertion carries from stripe to stripe found by a scan over the lanes instead of
his correcting loop (as Daily's parasail does, 2016). Scores of 32,767 and more are computed again in 32 bits.
H is kept for one block of rows; of the others, one row in each block is, from which the block is computed
again if the path leads there: memory grows with the square root of the target's length.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from msa.alphabet import LETTER_BITS, LETTERS, X
from msa.cpu.simd import I64, Vectors, array_address, vector_bytes
from msa.cpu.workers import Progress, pieces_of_equal_work, run_pieces
from msa.database.sequence_arrays import SequenceArrays
from msa.jit import kernel
from msa.search.hits import NO_ALIGNMENT, LocalAlignment

# H is kept for as many rows as fit in this, and for no fewer than the square root of twice their number
_BLOCK_BYTES = 2**20
# cells per piece of work: a few milliseconds
_PIECE = 2**23


def _next_row_typing(typingctx, profile, before, row, deletions, segments, gap_open, gap_extend):  # type: ignore[no-untyped-def]
    """Compute H for one target residue, and update D in place.

    Each array is one row in striped order, [segments, lanes] with query position lane · segments + segment,
    and its type says how wide a score is.

    Args:
        profile: scores of this residue, 1-D; positions past the query's end score the lowest number.
        before: H of the previous target residue, 1-D.
        row: H to be written, 1-D; may be `before` itself.
        deletions: D, 1-D; that of the previous residue on entry, of this one on return.
        segments, gap_open, gap_extend: intp.

    Returns:
        The largest H of the row, int64.
    """
    signature = types.int64(profile, before, row, deletions, types.intp, types.intp, types.intp)

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
    ) -> ir.Value:
        bits = signature.args[1].dtype.bitwidth
        v = Vectors(builder, bits, vector_bytes() * 8 // bits)
        q_row, h_before, h_row, d_row = (
            array_address(context, builder, signature.args[k], arguments[k]) for k in range(4)
        )
        segments, gap_open, gap_extend = arguments[4:]
        size, one = ir.Constant(I64, v.bytes), ir.Constant(I64, 1)

        def narrow(value: ir.Value) -> ir.Value:
            """An int64 ≥ 0 as an element, at most the largest."""
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

        # what leaves the last segment of a lane enters the first of the next; below 1 it changes nothing
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
def _fill_block(profile, codes, first, rows, deletions, segments, gap_open, gap_extend):  # type: ignore[no-untyped-def]
    """Compute rows[1:] for the residues from `first` on, given rows[0] and the D before them.

    Returns:
        The largest H, and the row of `rows` where it first occurs (0 if it is 0).
    """
    best, where = 0, 0
    for r in range(min(len(rows) - 1, len(codes) - first)):
        letter = min(codes[first + r] & LETTER_BITS, profile.shape[0] - 1)
        found = _next_row(profile[letter], rows[r], rows[r + 1], deletions, segments, gap_open, gap_extend)
        if found > best:
            best, where = found, r + 1
    return best, where


@kernel
def _copy(source, target):  # type: ignore[no-untyped-def]
    # numba takes seconds to compile an assignment of slices, for the text of its error message
    for k in range(len(source)):
        target[k] = source[k]


@kernel
def _align_one(  # type: ignore[no-untyped-def]
    profile, query, codes, gap_open, gap_extend, lanes, block, ceiling, runs, found
):
    """Align the query to one target.

    Args:
        profile: int16 or int32 [letters, segments · lanes], striped.
        query: uint8 [length], codes.
        codes: uint8 [target length ≥ 1], residue bytes.
        gap_open, gap_extend: half-bits.
        lanes: numbers in a vector.
        block: rows kept at a time.
        ceiling: the largest number of this width; a score that reaches it cannot be told from a larger one.
        runs: int32, room for the path, last run first: length · 4 + operation.
        found: int32 [8], zeros, to be filled: score, first and last query position, first and last target
            position (from 0, inclusive), identical pairs, columns, runs. A score of −1 is one too large.
    """
    width = profile.shape[1]
    segments = width // lanes
    blocks = -(-len(codes) // block)
    rows = np.zeros((block + 1, width), profile.dtype)
    deletions = np.full(width, -ceiling - 1, profile.dtype)
    kept = np.empty((blocks, 2, width if blocks > 1 else 0), profile.dtype)
    best, j = 0, 0
    for b in range(blocks):
        if blocks > 1:
            if b:
                _copy(rows[block], rows[0])
            _copy(rows[0], kept[b, 0])
            _copy(deletions, kept[b, 1])
        score, row = _fill_block(profile, codes, b * block, rows, deletions, segments, gap_open, gap_extend)
        if score > best:
            best, j = score, b * block + row
    if best == 0 or best >= ceiling:
        found[0] = -1 if best else 0
        return

    current = blocks - 1
    i, h = -1, best
    identical, columns, count, last = 0, 0, 0, -1
    while h > 0:
        if (j - 1) // block != current:
            current = (j - 1) // block
            _copy(kept[current, 0], rows[0])
            _copy(kept[current, 1], deletions)
            _fill_block(profile, codes, current * block, rows, deletions, segments, gap_open, gap_extend)
        at = j - current * block
        if i < 0:
            i = 0
            while rows[at, i % segments * lanes + i // segments] != best:
                i += 1
            found[2], found[4] = i, j - 1
        letter = min(codes[j - 1] & LETTER_BITS, profile.shape[0] - 1)
        before = rows[at - 1, (i - 1) % segments * lanes + (i - 1) // segments] if i > 0 else 0
        length = 1
        if h == before + profile[letter, i % segments * lanes + i // segments]:
            operation = 0
            found[1], found[3] = i, j - 1
            identical += letter == query[i] and letter != X
            i, j, h = i - 1, j - 1, before
        else:
            # no gap comes from a cell above the best
            operation, needed = 1, h + gap_open
            while length <= i and needed <= best:
                if rows[at, (i - length) % segments * lanes + (i - length) // segments] == needed:
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
                        _copy(kept[current, 0], rows[0])
                        _copy(kept[current, 1], deletions)
                        _fill_block(
                            profile, codes, current * block, rows, deletions, segments, gap_open, gap_extend
                        )
                    if rows[j - current * block, i % segments * lanes + i // segments] == needed:
                        break
                    length, needed = length + 1, needed + gap_extend
            h = needed
        columns += length
        if operation == last:
            runs[count - 1] += 4 * length
        else:
            runs[count] = 4 * length + operation
            count, last = count + 1, operation
    found[0], found[5], found[6], found[7] = best, identical, columns, count


@kernel
def _align_piece(  # type: ignore[no-untyped-def]
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
    found,
):
    """Align the query to several targets; the runs of each begin where those of the one before could end."""
    start = 0
    for k in range(len(targets)):
        t = targets[k]
        length = lengths[t]
        if length:
            block = max(block_bytes // (profile.shape[1] * profile.itemsize), int(np.sqrt(2.0 * length)), 1)
            _align_one(
                profile, query, residues[offsets[t] : offsets[t] + length], gap_open, gap_extend, lanes,
                min(block, length), ceiling, runs[start:], found[k],
            )  # fmt: skip
        start += len(query) + length


def _striped(profile: np.ndarray, bits: int) -> tuple[np.ndarray, int]:
    """The profile in striped order, [letters, segments · lanes], and the number of lanes."""
    lanes = vector_bytes() * 8 // bits
    segments = -(-len(profile) // lanes)
    kind = np.dtype(f"int{bits}")
    padded = np.full((segments * lanes, len(LETTERS)), np.iinfo(kind).min, kind)
    padded[: len(profile)] = profile[:, : len(LETTERS)]
    order = np.arange(segments * lanes).reshape(lanes, segments).T.ravel()
    return np.ascontiguousarray(padded[order].T), lanes


def align(
    profile: np.ndarray,
    query: np.ndarray,
    targets: SequenceArrays,
    chosen: np.ndarray,
    gap_open: int = 11,
    gap_extend: int = 1,
    threads: int = 1,
    progress: Progress | None = None,
) -> list[LocalAlignment]:
    """Align the query to chosen targets.

    Args:
        profile: int16 [query length ≥ 1, 32], half-bits.
        query: uint8 [query length], codes; they only count identities.
        targets: the database.
        chosen: int64 [n], indices of targets.
        gap_open, gap_extend: half-bits, gap_open ≥ gap_extend ≥ 1.
        threads: at least 1.
        progress: called with targets done and targets in all.

    Returns:
        One alignment per chosen target, in order; scores are exact whatever their size.

    Raises:
        ValueError: not gap_open ≥ gap_extend ≥ 1.
    """
    if not gap_open >= gap_extend >= 1:
        raise ValueError(f"gap open {gap_open} must be at least gap extend {gap_extend}, and that at least 1")
    chosen = np.asarray(chosen, np.int64)
    results: list[LocalAlignment] = [NO_ALIGNMENT] * len(chosen)
    too_large: list[int] = []

    def work(bits: int, places: np.ndarray) -> None:
        striped, lanes = _striped(profile, bits)
        ceiling = int(np.iinfo(striped.dtype).max)

        def piece(first: int, end: int) -> None:
            here = places[first:end]
            indices = chosen[here]
            rooms = targets.lengths[indices].astype(np.int64) + len(query)
            runs = np.empty(int(rooms.sum()), np.int32)
            found: np.ndarray = np.zeros((len(here), 8), np.int32)
            _align_piece(
                striped, query, targets.residues, targets.offsets, targets.lengths, indices,
                gap_open, gap_extend, lanes, ceiling, _BLOCK_BYTES, runs, found,
            )  # fmt: skip
            starts = np.cumsum(rooms) - rooms
            for place, start, row in zip(here.tolist(), starts.tolist(), found.tolist(), strict=True):
                if row[0] < 0:
                    too_large.append(place)
                elif row[0]:
                    path = runs[start : start + row[7]][::-1].copy()
                    results[place] = LocalAlignment(
                        score=row[0],
                        query_start=row[1] + 1,
                        query_end=row[2] + 1,
                        target_start=row[3] + 1,
                        target_end=row[4] + 1,
                        identities=row[5],
                        columns=row[6],
                        runs=path,
                    )

        cells = targets.lengths[chosen[places]].astype(np.int64) * len(query) + 1
        run_pieces(piece, pieces_of_equal_work(cells, _PIECE), threads, progress)

    work(16, np.arange(len(chosen)))
    if too_large:
        work(32, np.array(sorted(too_large)))
    return results
