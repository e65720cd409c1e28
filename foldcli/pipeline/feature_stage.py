"""Features of one target: from the cache when they are there and whole, else computed and put there."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.logs import logger

if TYPE_CHECKING:
    import numpy as np

    from msa.io.alignments import Alignment


def load_or_make(
    name: str,
    alignments: "list[Alignment]",
    cache: Path,
    overwrite: bool = False,
    verify: bool = True,
) -> "tuple[dict[str, np.ndarray], bool]":
    """The deterministic features, and whether the cache had them.

    Args:
        name: the target, for the warning that its entry was damaged and is made anew.
        alignments: of one query.
        cache: the cache's folder.
        overwrite: make them even when they are there.
        verify: compare what is there with its checksum.

    Raises:
        InputError: alignments of different queries.
        OSError: the cache cannot be written.
    """
    from features.cache import FeatureCache
    from features.entry import CorruptEntryError

    entries = FeatureCache(cache)
    try:
        return entries.load_or_make(alignments, overwrite, verify)
    except CorruptEntryError as error:
        logger.warning("%s: %s; made anew", name, error)
        return entries.load_or_make(alignments, overwrite=True)


@dataclass(frozen=True)
class CacheTask:
    """One target to put into a cache; see `load_or_make`."""

    target: AlignmentTarget
    cache: Path
    overwrite: bool
    verify: bool


@dataclass(frozen=True)
class Cached:
    """What is said of a target that is in the cache now.

    Args:
        hit: it was there before.
        rows, residues: of its alignment without equal rows.
    """

    hit: bool
    rows: int
    residues: int


def cache_target(task: CacheTask) -> Cached:
    """Read a target's alignments and have its entry in the cache, made if it is not there.

    Raises:
        InputError: the alignments cannot be read, or are of different queries.
        OSError: an alignment cannot be read, the cache cannot be written.
    """
    alignments = task.target.read()
    features, hit = load_or_make(task.target.name, alignments, task.cache, task.overwrite, task.verify)
    rows, residues = features["msa"].shape
    return Cached(hit, rows, residues)
