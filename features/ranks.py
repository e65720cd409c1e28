"""The alignment in half a byte a residue: its residue's rank in its column, the most common one being 0.

Half of a deep alignment's residues are the most common one of their column, so ranks pack smaller than codes,
and two in a byte unpack in half the time. Ranks of 15 and more, one residue in a hundred, are listed apart.
"""

import numpy as np

from msa.jit import kernel

NUM_CODES = 22  # twenty residues, X, gap
# stands for itself and all higher ranks
_LISTED = 15
# in the place of a code: the rank is in the list
_MARK = 0x80
# residues ranked at a time
_BLOCK = 1 << 16


def rank_residues(msa: np.ndarray, profile: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranks of an alignment's residues.

    Args:
        msa: integers [M, R], 0–21.
        profile: float32 [R, 22]; the larger, the lower the rank. Any will do, the column's own packs best.

    Returns:
        Two ranks a byte, the first in its low half, uint8 [M, ⌈R/2⌉]; and in order those of 15 and more, for
        each of which there is a 15 in the bytes, uint8 [N].
    """
    rows, columns = msa.shape
    ranks = np.empty((columns, NUM_CODES), np.uint8)
    np.put_along_axis(ranks, _codes_by_rank(profile), np.arange(NUM_CODES, dtype=np.uint8)[None], axis=1)
    pairs = np.empty((rows, (columns + 1) // 2), np.uint8)
    listed = [np.empty(0, np.uint8)]
    step = max(1, _BLOCK // columns)
    for start in range(0, rows, step):
        block = ranks[np.arange(columns), msa[start : start + step]]
        listed.append(block[block >= _LISTED])
        block = np.minimum(block, _LISTED)
        pairs[start : start + step] = block[:, 0::2]
        pairs[start : start + step, : columns // 2] |= block[:, 1::2] << 4
    return pairs, np.concatenate(listed)


def unrank_residues(pairs: np.ndarray, listed: np.ndarray, profile: np.ndarray) -> np.ndarray:
    """The alignment, int8 [M, R], of what `rank_residues` returns, and the same profile.

    Raises:
        ValueError: the bytes, the list or the profile are of another alignment.
    """
    if profile.shape != (len(profile), NUM_CODES) or pairs.shape[1] != (len(profile) + 1) // 2:
        raise ValueError("the alignment does not match its profile")
    codes = _codes_by_rank(profile)
    msa = np.empty((len(pairs), len(profile)), np.int8)
    _unrank(pairs, _codes_of_pairs(codes), msa)
    places = _marked(msa.reshape(-1))
    if len(places) != len(listed) or (len(listed) and listed.max() >= NUM_CODES):
        raise ValueError("the list of high ranks does not match the alignment")
    _fill(msa.reshape(-1), places, listed, codes)
    return msa


def _codes_by_rank(profile: np.ndarray) -> np.ndarray:
    """Every column's codes, the most common one first, int8 [R, 22]."""
    return np.argsort(-profile, axis=1, kind="stable").astype(np.int8)


def _codes_of_pairs(codes: np.ndarray) -> np.ndarray:
    """The codes of both residues of a byte, the first in the low byte, uint16 [⌈R/2⌉, 256]."""
    columns = len(codes)
    both = np.zeros((columns + columns % 2, 16), np.uint16)
    both[:columns] = codes[:, :16]
    both[:columns, _LISTED] = _MARK
    return (both[0::2, None, :] | both[1::2, :, None] << 8).reshape(-1, 256)


@kernel
def _unrank(pairs: np.ndarray, codes: np.ndarray, msa: np.ndarray) -> None:
    # a table of both residues: half as many reads as with one of each
    columns = msa.shape[1]
    last = len(codes) - 1
    for row in range(len(pairs)):
        for pair in range(columns // 2):
            both = codes[pair, pairs[row, pair]]
            msa[row, 2 * pair] = np.int8(both & 255)
            msa[row, 2 * pair + 1] = np.int8(both >> 8)
        if columns % 2:
            msa[row, columns - 1] = np.int8(codes[last, pairs[row, last]] & 255)


@kernel
def _marked(residues: np.ndarray) -> np.ndarray:
    """Where residues are marked, int64, ascending."""
    # eight at a time, and without branches, which nothing could foretell: a place is written down, and the
    # next one over it unless it counts
    words = residues[: len(residues) // 8 * 8].view(np.uint64)
    found, count = np.empty(len(words) + 1, np.int64), 0
    for word in range(len(words)):
        found[count] = word
        count += (words[word] & np.uint64(0x8080808080808080)) != 0
    places, marked = np.empty(8 * count + 9, np.int64), 0
    for word in found[:count]:
        for place in range(8 * word, 8 * word + 8):
            places[marked] = place
            marked += residues[place] < 0
    for place in range(8 * len(words), len(residues)):
        places[marked] = place
        marked += residues[place] < 0
    return places[:marked]


@kernel
def _fill(residues: np.ndarray, places: np.ndarray, listed: np.ndarray, codes: np.ndarray) -> None:
    for number in range(len(places)):
        residues[places[number]] = codes[places[number] % len(codes), listed[number]]
