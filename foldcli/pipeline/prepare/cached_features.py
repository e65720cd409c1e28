"""Entries of the feature cache: deterministic features of a target, read or added."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from features.cache.cache import FeatureCache
from features.cache.entry import CorruptEntryError
from features.chemistry.residues import check_foldable
from features.complexes.cache import add_rows
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.logs import logger
from foldcli.outputs.target import TargetRun
from foldcli.pipeline.targets.settings import FeatureSettings
from model.chains import chain_names
from msa.alignments.files import Alignment
from msa.base.residues import RESTYPES

R = TypeVar("R")

# maximum number of residues that a warning names
_MAX_NAMED = 10


def load_or_make_features(
    name: str, alignments: list[Alignment], settings: FeatureSettings
) -> tuple[dict[str, np.ndarray], bool]:
    """Return deterministic features, and whether the cache had them; see `replace_damaged`.

    Raises:
        InputError: the alignments have different queries.
    """
    cache = FeatureCache(settings.cache)
    load = partial(cache.load_or_make, alignments, verify=settings.verify)
    return replace_damaged(name, load, settings.overwrite)


def replace_damaged(name: str, load: Callable[..., R], overwrite: bool) -> R:
    """Return what a function returns for an entry of the cache; warn of a damaged one, which is replaced.

    Args:
        name: the target, for the warning.
        load: loads the entry or makes it, given `overwrite`; raises CorruptEntryError if it is damaged.
        overwrite: value for the first call.
    """
    try:
        return load(overwrite=overwrite)
    except CorruptEntryError as error:
        logger.warning("%s: %s; computed again", name, error)
        return load(overwrite=True)


def record_size(target: TargetRun, features: dict[str, np.ndarray]) -> None:
    """Add the size of the alignment of a single chain to the facts of a target; warn of what it lacks."""
    sequence = features["sequence"][0].decode("ascii")
    check_foldable(sequence)
    num_rows, residues = features["msa"].shape
    record_alignment_size(target, int(num_rows), int(residues))
    warn_of_missing_residues(target, [sequence])


def warn_of_missing_residues(target: TargetRun, chains: Sequence[str]) -> None:
    """Warn of residues that the target's structures lack: all but the 20 standard amino acids."""
    names = chain_names(len(chains))
    missing = [
        f"{letter}{position}" if len(chains) == 1 else f"{letter}{position} of {name}"
        for name, sequence in zip(names, chains, strict=True)
        for position, letter in enumerate(sequence, 1)
        if letter not in RESTYPES
    ]
    if not missing:
        return
    listed = ", ".join(missing[:_MAX_NAMED])
    more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
    reason = f"left out of the structure, which has the 20 standard amino acids only: {listed}{more}"
    if reason not in target.warnings:
        target.warnings.append(reason)
    logger.warning("%s: %s", target.name, reason)


def record_alignment_size(target: TargetRun, num_rows: int, residues: int) -> None:
    """Add the size of a target's alignment to its facts; warn if the alignment has no row but the query."""
    target.facts.residues, target.facts.alignment_rows = residues, num_rows
    if num_rows == 1:
        target.warnings.append("the alignment holds the query alone")
        logger.warning("%s: the alignment holds the query alone; expect low confidence", target.name)


@dataclass(frozen=True)
class CachedFeatures:
    """The outcome of adding a target to a feature cache.

    Args:
        was_cached: whether the cache had the features before.
        rows: number of distinct rows of the alignment; for a complex, of all rows of its file, where the
            queries of all chains count as one row.
        residues: length of the query, or of all chains; for jobs of molecules, the number of tokens.
    """

    was_cached: bool
    rows: int
    residues: int


@dataclass(frozen=True)
class CacheTask:
    """A target to add to a feature cache, and the settings of the cache."""

    target: AlignmentTarget
    settings: FeatureSettings

    @property
    def name(self) -> str:
        """The target's file-safe name."""
        return self.target.name

    def add(self) -> CachedFeatures:
        """Add the features of the target to the cache, unless the cache has them.

        Raises:
            InputError: the alignments cannot be read, or have different queries.
        """
        target, settings = self.target, self.settings
        contents = target.read_contents()
        rows = target.parse_complex(contents)
        if rows is not None:
            num_rows = 1 + sum(len(block) - 1 for block in (rows.paired[0], *rows.unpaired))
            cache = FeatureCache(settings.cache)
            add = partial(add_rows, cache, target.name, rows, target.sources, verify=settings.verify)
            was_cached = replace_damaged(target.name, add, settings.overwrite)
            return CachedFeatures(was_cached, num_rows, rows.residues)
        features, was_cached = load_or_make_features(target.name, target.parse(contents), settings)
        num_rows, residues = features["msa"].shape
        return CachedFeatures(was_cached, num_rows, residues)
