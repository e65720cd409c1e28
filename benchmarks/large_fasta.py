"""A stream of many different sequences, made from a small file: repeated, mutated, with ids of their own.

In each copy of the file, every tenth residue or so is replaced by a random one, and every fourth sequence is
cut in two. A copy depends on its number only, so the stream does not depend on the number of processes.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from msa.alphabet import STANDARD
from msa.io.compression import read_bytes

_DIGITS = 6
_CUT_EVERY = 4


@dataclass(frozen=True)
class Template:
    """The text of one copy.

    Args:
        text: uint8, FASTA with a line for each sequence.
        residues: int64, positions of the residues in `text`.
        numbers: int64 [sequences], positions of the copy's number in each header.
    """

    text: np.ndarray
    residues: np.ndarray
    numbers: np.ndarray


@cache
def template(path: Path) -> Template:
    """Read a FASTA file, and cut every fourth sequence in two; ids begin with the number of the copy."""
    lines: list[bytes] = []
    for number, record in enumerate(read_bytes(path).removeprefix(b">").split(b"\n>")):
        header, _, rest = record.partition(b"\n")
        sequence = rest.replace(b"\n", b"")
        half = len(sequence) // 2 if number % _CUT_EVERY == 0 and len(sequence) > 1 else 0
        for part in filter(None, (sequence[:half], sequence[half:])):
            lines += [b">%s.%d %s" % (b"0" * _DIGITS, len(lines) // 2, header), part]
    text = np.frombuffer(b"\n".join(lines) + b"\n", np.uint8)
    ends = np.cumsum([len(line) + 1 for line in lines])
    starts = np.append(0, ends[:-1])
    in_sequence = np.repeat(np.arange(len(lines)) % 2, np.diff(np.append(starts, ends[-1]))).astype(bool)
    in_sequence[ends - 1] = False
    return Template(text, np.flatnonzero(in_sequence), starts[::2] + 1)


def copy_of(path: Path, number: int, mutated: float) -> bytes:
    """Return one copy as FASTA; see the module's documentation."""
    source = template(path)
    rng = np.random.default_rng(number)
    text = source.text.copy()
    letters = np.frombuffer(STANDARD.encode(), np.uint8)
    step = max(1, round(1 / mutated))
    changed = source.residues[rng.integers(step) :: step]
    text[changed] = letters[rng.integers(0, len(letters), len(changed), np.uint8)]
    for k, digit in enumerate(b"%0*d" % (_DIGITS, number)):
        text[source.numbers + k] = digit
    return text.tobytes()


def number_of_copies(path: Path, residues: float) -> int:
    """Return the number of copies that have about the given number of residues together, at least one."""
    return max(1, round(residues / len(template(path).residues)))


def copies(path: Path, residues: float, mutated: float, processes: int) -> Iterator[bytes]:
    """Yield the copies, in the order of their numbers."""
    count = number_of_copies(path, residues)
    if processes == 1:
        yield from (copy_of(path, number, mutated) for number in range(count))
        return
    with ProcessPoolExecutor(processes) as pool:
        numbers = iter(range(count))
        pending = [pool.submit(copy_of, path, number, mutated) for number in islice(numbers, 2 * processes)]
        while pending:
            yield pending.pop(0).result()
            pending += [pool.submit(copy_of, path, number, mutated) for number in islice(numbers, 1)]
