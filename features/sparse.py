"""Numbers that are mostly zero as a list: how far apart those above zero are, then how large they are.

A number of the list takes a byte; 255 means that it goes on in the next one, so that any number comes back.
"""

import numpy as np

from msa.jit import kernel

# the byte that says: 255, and the number goes on
_MORE = 255


def write_list(places: np.ndarray, counts: np.ndarray) -> bytes:
    """The list of numbers above zero.

    Args:
        places: integers [N], ascending, at least 0: where they are.
        counts: integers [N], at least 1: how large they are.
    """
    numbers = np.concatenate([np.diff(places, prepend=0), counts]).astype(np.int64)
    ends = np.cumsum(numbers // _MORE + 1)
    stream = np.full(int(ends[-1]) if len(ends) else 0, _MORE, np.uint8)
    stream[ends - 1] = numbers % _MORE
    return stream.tobytes()


def read_list(stream: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places and counts, int64 [N] each, of a list (uint8).

    Raises:
        ValueError: it is cut short.
    """
    ends = len(stream) - np.count_nonzero(stream == _MORE)
    if ends % 2 or (len(stream) and stream[-1] == _MORE):
        raise ValueError("a list of counts is cut short")
    numbers = np.empty((2, ends // 2), np.int64)
    _read(stream, numbers.reshape(-1), ends // 2)
    return numbers[0], numbers[1]


@kernel
def _read(stream: np.ndarray, numbers: np.ndarray, places: int) -> None:
    end, number, place = 0, 0, 0
    for byte in stream:
        number += byte
        if byte != _MORE:
            if end < places:
                place += number
                number = place
            numbers[end] = number
            number = 0
            end += 1
