"""The loops of features/cache/encoding.py that restore features, compiled."""

import numpy as np

from msa.base.jit import kernel


@kernel
def decode_ranks(packed_ranks: np.ndarray, codes: np.ndarray, msa: np.ndarray) -> None:
    """Restore residues from their ranks.

    Args:
        packed_ranks: uint8 [M, ⌈R/2⌉], two ranks per byte.
        codes: uint16 [⌈R/2⌉, 256], the two codes of each byte.
        msa: int8 [M, R], written.
    """
    # each lookup gives the codes of two residues
    columns = msa.shape[1]
    last = len(codes) - 1
    for row in range(len(packed_ranks)):
        for pair in range(columns // 2):
            both = codes[pair, packed_ranks[row, pair]]
            msa[row, 2 * pair] = np.int8(both & 255)
            msa[row, 2 * pair + 1] = np.int8(both >> 8)
        if columns % 2:
            msa[row, columns - 1] = np.int8(codes[last, packed_ranks[row, last]] & 255)


@kernel
def find_escapes(residues: np.ndarray) -> np.ndarray:
    """Return the positions of escape codes, which are negative as int8: int64, ascending."""
    # Eight residues at a time and without unpredictable branches: each position is written, and overwritten
    # by the next one unless it is an escape.
    words = residues[: len(residues) // 8 * 8].view(np.uint64)
    found, count = np.empty(len(words) + 1, np.int64), 0
    for word in range(len(words)):
        found[count] = word
        count += (words[word] & np.uint64(0x8080808080808080)) != 0
    positions, escapes = np.empty(8 * count + 9, np.int64), 0
    for word in found[:count]:
        for position in range(8 * word, 8 * word + 8):
            positions[escapes] = position
            escapes += residues[position] < 0
    for position in range(8 * len(words), len(residues)):
        positions[escapes] = position
        escapes += residues[position] < 0
    return positions[:escapes]


@kernel
def fill_escapes(
    residues: np.ndarray, positions: np.ndarray, escaped_ranks: np.ndarray, codes: np.ndarray
) -> None:
    """Write the residues of escaped ranks.

    Args:
        residues: int8 [M · R], changed.
        positions: int64 [N], from `find_escapes`.
        escaped_ranks: uint8 [N].
        codes: int8 [R, 22], the codes of each column by rank.
    """
    for number in range(len(positions)):
        residues[positions[number]] = codes[positions[number] % len(codes), escaped_ranks[number]]


@kernel
def decode_numbers(stream: np.ndarray, numbers: np.ndarray, count: int, continued: int) -> None:
    """Decode a sparse list.

    Args:
        stream: uint8.
        numbers: int64 [2 · count], written: positions, then values.
        count: number of elements that are not zero.
        continued: byte that adds itself, and continues the number in the next byte.
    """
    end, number, position = 0, 0, 0
    for byte in stream:
        number += byte
        if byte != continued:
            if end < count:
                position += number
                number = position
            numbers[end] = number
            number = 0
            end += 1
