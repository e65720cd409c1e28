"""The loop of features/templates/candidates.py, compiled."""

from msa.base.jit import kernel
from msa.engines.hits import OPERATIONS

_PAIR, _QUERY_ONLY, _TARGET_ONLY = (OPERATIONS.index(letter) for letter in "MID")


@kernel
def list_pairs(records, runs, run_offsets, pairs, ends):  # type: ignore[no-untyped-def]
    """List the pairs of alignments, one alignment after another; `ends` are the ends of each one's pairs."""
    count = 0
    for k in range(len(records)):
        i, j = records[k, 1], records[k, 3]
        for run in runs[run_offsets[k] : run_offsets[k + 1]]:
            length, operation = run >> 2, run & 3
            if operation == _PAIR:
                for step in range(length):
                    pairs[count, 0], pairs[count, 1] = i + step, j + step
                    count += 1
            if operation != _TARGET_ONLY:
                i += length
            if operation != _QUERY_ONLY:
                j += length
        ends[k] = count
