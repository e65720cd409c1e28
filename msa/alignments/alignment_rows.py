"""Rows of hits in the alignment with their query: letter codes in the query's columns, or A3M text."""

import numpy as np

from msa.alphabet import GAP, LETTER_BITS, decode
from msa.base.cpu_kernels.jit import kernel
from msa.hits.hits import Hits
from msa.hits.local_alignments import OPERATIONS

_MATCH, _INSERTION = OPERATIONS.index("M"), OPERATIONS.index("I")
_GAP_LETTER, _LOWER_CASE = ord("-"), ord("a") - ord("A")
_LETTERS = np.frombuffer(decode(np.arange(LETTER_BITS + 1, dtype=np.uint8)).encode(), np.uint8)


def code_rows(query: np.ndarray, hits: Hits) -> np.ndarray:
    """Return the query and the hits as rows; target residues opposite a gap in the query are left out.

    Args:
        query: uint8 [length], letter codes.
        hits: the hits of the query.

    Returns:
        uint8 [1 + hits, length], letter codes or GAP; the query comes first.
    """
    rows = np.full((1 + len(hits), len(query)), GAP, np.uint8)
    rows[0] = query
    arrays, alignments = hits.source.arrays, hits.alignments
    _fill_code_rows(rows, arrays.residues, arrays.offsets[hits.rows], alignments.records, alignments.runs)
    return rows


@kernel
def _fill_code_rows(rows, residues, offsets, records, runs):  # type: ignore[no-untyped-def]
    """Write the rows of all hits.

    Args:
        rows: uint8 [1 + hits, length].
        residues: uint8, residue bytes of the targets.
        offsets: int64 [hits], offset of each target in `residues`.
        records: int32 [hits, 8], see AlignmentPaths.
        runs: int32, runs of all hits; see AlignmentPaths.
    """
    run = 0
    for k in range(len(offsets)):
        i, j = records[k, 1], offsets[k] + records[k, 3]
        for _ in range(records[k, 7]):
            count, operation = runs[run] >> 2, runs[run] & 3
            run += 1
            if operation == _MATCH:
                for step in range(count):
                    rows[k + 1, i + step] = residues[j + step] & LETTER_BITS
            if operation in (_MATCH, _INSERTION):
                i += count
            if operation != _INSERTION:
                j += count


def a3m_rows(hits: Hits) -> list[bytes]:
    """Return the hits as rows of A3M.

    A row has an upper-case letter or `-` for each query residue, and lower-case letters for insertions.
    """
    arrays, alignments = hits.source.arrays, hits.alignments
    runs = alignments.runs
    inserted = np.where(runs & 3 == OPERATIONS.index("D"), runs >> 2, 0)
    inserted_sums = np.concatenate([[0], np.cumsum(inserted, dtype=np.int64)])[alignments.run_offsets]
    ends = inserted_sums[1:] + hits.query_length * np.arange(1, len(hits) + 1)
    text = np.full(ends[-1] if len(ends) else 0, _GAP_LETTER, np.uint8)
    starts = np.concatenate([[0], ends])[:-1].astype(np.int64)
    offsets = arrays.offsets[hits.rows]
    _fill_a3m_rows(text, starts, arrays.residues, offsets, alignments.records, runs, _LETTERS)
    content = text.tobytes()
    return [content[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


@kernel
def _fill_a3m_rows(text, starts, residues, offsets, records, runs, letters):  # type: ignore[no-untyped-def]
    """Write the rows of all hits to `text`, which is filled with gaps.

    `starts`, int64 [hits], are the offsets of the rows in `text`, uint8; `letters`, uint8 [32], the
    upper-case letters of the codes. The other arguments are those of `_fill_code_rows`.
    """
    run = 0
    for k in range(len(offsets)):
        i, j = starts[k] + records[k, 1], offsets[k] + records[k, 3]
        for _ in range(records[k, 7]):
            count, operation = runs[run] >> 2, runs[run] & 3
            run += 1
            if operation != _INSERTION:
                lower = 0 if operation == _MATCH else _LOWER_CASE
                for step in range(count):
                    text[i + step] = letters[residues[j + step] & LETTER_BITS] + lower
                j += count
            i += count
