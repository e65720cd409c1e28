"""Sequences that lie here and there in a database, brought together."""

import numpy as np

from msa.database.sequence_arrays import SequenceArrays

_WORD = 4


def gathered(targets: SequenceArrays, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The residues of some targets, each from a multiple of four bytes on, as in the database.

    Args:
        targets: the database.
        chosen: int64 [n], places in it.

    Returns:
        uint8 [bytes, a multiple of 4], int64 [n] where each starts, int32 [n] lengths.
    """
    lengths = targets.lengths[chosen]
    words = -(-lengths.astype(np.int64) // _WORD)
    starts = np.cumsum(words) - words
    # a word at a time: a target's place in the database less its place here, repeated for all its words
    shift = np.repeat(targets.offsets[chosen] // _WORD - starts, words)
    every = targets.residues.view(np.uint32)[np.arange(len(shift)) + shift]
    return np.append(every, np.uint32(0)).view(np.uint8), starts * _WORD, lengths
