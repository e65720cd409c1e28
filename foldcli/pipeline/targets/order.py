"""The order in which a run takes its targets."""

from collections.abc import Sequence
from pathlib import Path

from features.cache.entry import read_entry_metadata
from foldcli.inputs.cached_targets import CachedTarget
from foldcli.inputs.complexes import Complex
from foldcli.inputs.targets import TargetInput
from foldcli.pipeline.targets.alignment_settings import FIRST_BATCH
from msa.io.fasta import FastaRecord

# short targets come first if they are at most this share of the targets
_FIRST_SHARE = 0.25


def in_run_order(
    targets: Sequence[tuple[str, TargetInput]], at_once: int = 1
) -> list[tuple[str, TargetInput]]:
    """Return targets in the order in which they run: of many, a few short ones first; then the longest first.

    Memory that was allocated for one target suffices for the next, and targets that end a run on several
    devices are short. The first ones are short because their alignments and features are ready soon: the
    network works on them while those of the longest targets are made.

    Args:
        targets: names and inputs of a run's targets.
        at_once: number of targets that are predicted at the same time.
    """
    longest_first = sorted(targets, key=lambda target: -approximate_length(target[1]))
    count = FIRST_BATCH * at_once
    if _FIRST_SHARE * len(targets) < count:
        return longest_first
    return [*reversed(longest_first[-count:]), *longest_first[:-count]]


def approximate_length(target_input: TargetInput) -> int:
    """Return a number that grows with a target's length, to sort targets: residues or bytes; 0 if unknown."""
    if isinstance(target_input, FastaRecord | Complex):
        return len(target_input.sequence)
    try:
        if isinstance(target_input, CachedTarget):
            return int(read_entry_metadata(target_input.path)["tensors"]["msa"][1][1])
        # larger alignment files mostly have longer queries, and their sizes are known without reading them
        return len(target_input.content or b"") or Path(target_input.files[0]).stat().st_size
    except (OSError, ValueError, LookupError):
        return 0
