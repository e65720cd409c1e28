"""The deterministic features of one target."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.logs import logger
from foldcli.pipeline.feature_stage import load_or_make
from foldcli.pipeline.target_run import TargetRun

if TYPE_CHECKING:
    import numpy as np

    from msa.io.alignments import Alignment


def cached_features(
    target: TargetRun, read: "Callable[[], list[Alignment]]", cache: Path, verify: bool = True
) -> "dict[str, np.ndarray]":
    """The deterministic features of a target, from the cache or computed and put there.

    Args:
        target: the target on its way.
        read: reads its alignments.
        cache: folder of the feature cache.
        verify: compare what is there with its checksum.
    """
    with target.stage("features"):
        features, hit = load_or_make(target.name, read(), cache, verify=verify)
    target.facts["feature_cache_hit"] = hit
    _note_size(target, features)
    return features


def entry_features(target: TargetRun, read: "Callable[[], dict[str, np.ndarray]]") -> "dict[str, np.ndarray]":
    """The deterministic features of a target of which the cache's entry is known; `read` reads it."""
    with target.stage("features"):
        features = read()
    target.facts["feature_cache_hit"] = True
    _note_size(target, features)
    return features


def _note_size(target: TargetRun, features: "dict[str, np.ndarray]") -> None:
    rows, residues = features["msa"].shape
    target.facts |= {"residues": int(residues), "alignment_rows": int(rows)}
    if rows == 1:
        target.warnings.append("the alignment holds the query alone")
        logger.warning("%s: the alignment holds the query alone; expect low confidence", target.name)
