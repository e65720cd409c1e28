"""Features of one target: from the cache when they are there and whole, else computed and put there."""

from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.logs import logger

if TYPE_CHECKING:
    import numpy as np

    from msa.alignments import Alignment


def load_or_make(
    name: str, alignments: "list[Alignment]", cache: Path, overwrite: bool = False
) -> "tuple[dict[str, np.ndarray], bool]":
    """The deterministic features, and whether the cache had them.

    Args:
        name: the target, for the warning that its entry was damaged and is made anew.
        alignments: of one query.
        cache: the cache's folder.
        overwrite: make them even when they are there.

    Raises:
        InputError: alignments of different queries.
        OSError: the cache cannot be written.
    """
    from features.cache import CorruptEntryError, FeatureCache

    entries = FeatureCache(cache)
    try:
        return entries.load_or_make(alignments, overwrite)
    except CorruptEntryError as error:
        logger.warning("%s: %s; made anew", name, error)
        return entries.load_or_make(alignments, overwrite=True)
