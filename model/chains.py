"""Names and residues of the chains of a complex; imports nothing heavy, since `foldcli --help` loads it."""

import itertools
import string
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
# the PDB format has one column for the chain
MAX_PDB_CHAINS = len(_LETTERS)


def chain_names(count: int) -> tuple[str, ...]:
    """Return the names of chains: A to Z, a to z, 0 to 9, then AA, AB and so on."""
    return tuple(itertools.islice(iterate_chain_names(), count))


def iterate_chain_names() -> Iterator[str]:
    """Yield the names of chains without end; see `chain_names`."""
    yield from _LETTERS
    for width in itertools.count(2):
        yield from map("".join, itertools.product(string.ascii_uppercase, repeat=width))


def chain_slices(asym_id: "np.ndarray") -> list[slice]:
    """Return the residues of each chain, in order, from their numbers [N], equal ones side by side."""
    counts = [len(list(residues)) for _, residues in itertools.groupby(asym_id.tolist())]
    ends = list(itertools.accumulate(counts))
    return [slice(end - count, end) for count, end in zip(counts, ends, strict=True)]
