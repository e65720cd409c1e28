"""The shared-memory tables of many profiles, built together, and what kernels have to know of profiles.

numpy releases the interpreter lock in most operations, and waits for it afterwards while other threads work.
A few large operations for the tables of all queries therefore take much less time than many small ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from cuda.alignment.gapless.layout import (
    BYTE,
    LETTERS,
    MAX_PENALTY,
    ROWS,
    Arithmetic,
    LaneLayout,
    entry_bytes,
)

_COLUMNS = 32
"""Scores of each query position in a profile."""
_WORD = 4


def check_profile(profile: np.ndarray) -> None:
    """Check the shape of a profile.

    Raises:
        ValueError: it is not [query length ≥ 1, 32].
    """
    if profile.ndim != 2 or profile.shape[1] != 32 or not len(profile):
        raise ValueError(f"a profile has shape [query length, 32], not {list(profile.shape)}")


@dataclass(frozen=True, eq=False)
class TableSource:
    """A table that is to be built.

    Args:
        layout: of the table.
        arithmetic: of its entries.
        profile: int16 [≤ tile, 32], half-bits, magnitudes up to the arithmetic's largest entry. With bytes,
            scores are at most MAX_SCORE, and lower ones than −MAX_PENALTY count as that.
    """

    layout: LaneLayout
    arithmetic: Arithmetic
    profile: np.ndarray

    @property
    def words(self) -> int:
        """Size of the table, a multiple of 32 words."""
        return self.layout.table_bytes // _WORD


def write_tables(sources: Sequence[TableSource], tables: np.ndarray) -> None:
    """Build several tables of the same arithmetic.

    Args:
        sources: at least one.
        tables: int32 [words of all], written: one table after the other.
    """
    arithmetic = sources[0].arithmetic
    profiles = np.concatenate([source.profile for source in sources]).reshape(-1)
    lengths = np.array([source.profile.size for source in sources])
    words = [source.words for source in sources]
    cells = np.concatenate([_cells(source.layout) for source in sources], axis=1)
    inside = cells < np.repeat(lengths, words)
    cells += np.repeat(np.cumsum(lengths) - lengths, words)
    cells[~inside] = len(profiles)
    if arithmetic is BYTE:
        _write_bytes(profiles, cells, tables)
        return
    entries = np.full(len(profiles) + 1, arithmetic.reset, arithmetic.dtype)
    entries[:-1] = profiles
    halves = tables.view(arithmetic.dtype).reshape(-1, 2)
    for half in range(2):
        halves[:, half] = entries.take(cells[half])


def wide_profile(profile: np.ndarray) -> np.ndarray:
    """Return the scores of a profile, int [length, ≥ LETTERS], letter by letter: int32 [LETTERS · length]."""
    return np.ascontiguousarray(profile[:, :LETTERS].T, np.int32).reshape(-1)


def _write_bytes(profiles: np.ndarray, cells: np.ndarray, tables: np.ndarray) -> None:
    """Write tables with one-byte entries.

    Args:
        profiles: int16 [n], all profiles.
        cells: int64 [4, words], index of the score of each byte; n for a score of 0.
        tables: int32 [words], written.
    """
    lookup = entry_bytes()
    rows = np.full(len(profiles) + 1, MAX_PENALTY, np.int32)
    np.add(np.maximum(profiles, -MAX_PENALTY), MAX_PENALTY, out=rows[:-1])
    rows *= lookup.shape[1]
    entries, output = lookup.reshape(-1), tables.view(np.uint8).reshape(-1, _WORD)
    low: np.ndarray | int = 0
    for byte in range(_WORD):
        low = entries.take(rows.take(cells[byte]) + low)
        output[:, byte] = low


@cache
def _cells(layout: LaneLayout) -> np.ndarray:
    """Return the index in a profile of the score of each entry of a table; beyond its end for no score.

    Returns:
        int64 [entries of a word, words].
    """
    columns = np.arange(layout.tile) * _COLUMNS
    rows = np.full((ROWS, layout.tile), layout.tile * _COLUMNS)
    rows[:LETTERS] = columns + np.arange(LETTERS)[:, None]
    # [rows, lanes, pairs, halves]
    pairs = layout.to_pairs(rows)
    if layout.entry_bytes == 1:
        pairs = pairs.reshape(ROWS, layout.lanes, layout.words, 2, 2)
        entries = [pairs[..., pair, half] for half in range(2) for pair in range(2)]
    else:
        entries = [pairs[..., half] for half in range(2)]
    cells = np.stack([layout.to_shared_memory(entry) for entry in entries])
    cells.setflags(write=False)
    return cells


@dataclass(frozen=True)
class ProfileLimits:
    """Limits of the scores of a profile.

    Args:
        lowest: lowest score of a letter.
        lowest_entry: lowest of all 32 columns.
        highest_entry: highest of all 32 columns.
        best_total: sum of the highest positive score of each position, which no alignment exceeds.
    """

    lowest: int
    lowest_entry: int
    highest_entry: int
    best_total: int

    @property
    def largest_magnitude(self) -> int:
        """Largest magnitude of any score."""
        return max(-self.lowest_entry, self.highest_entry)

    @property
    def slack(self) -> int:
        """Amount by which a maximum over every second pair may be too low."""
        return min(max(-self.lowest, 0), MAX_PENALTY)


def profile_limits(profiles: Sequence[np.ndarray]) -> list[ProfileLimits]:
    """Return the limits of several profiles, int [length ≥ 1, 32]."""
    lengths = [len(profile) for profile in profiles]
    starts, scores = np.cumsum(lengths) - lengths, np.concatenate(profiles)

    def of_profiles(reduce: np.ufunc, values: np.ndarray) -> list[int]:
        found: list[int] = reduce.reduceat(values, starts).tolist()
        return found

    highest, lowest = scores.max(axis=1), scores.min(axis=1)
    columns: tuple[list[int], ...] = (
        of_profiles(np.minimum, scores[:, :LETTERS].min(axis=1)),
        of_profiles(np.minimum, lowest),
        of_profiles(np.maximum, highest),
        of_profiles(np.add, np.maximum(highest, 0).astype(np.int64)),
    )
    return [ProfileLimits(*values) for values in zip(*columns, strict=True)]
