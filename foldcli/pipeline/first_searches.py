"""The searches with which a run begins, found before the run itself has started."""

from collections.abc import Sequence

from foldcli.inputs.complexes import Complex
from foldcli.inputs.targets import TargetInput
from foldcli.pipeline.alignment_settings import FIRST_BATCH
from foldcli.pipeline.settings import OutputSettings
from foldcli.pipeline.target_order import in_run_order
from msa.io.fasta import FastaRecord


def first_lengths(targets: Sequence[tuple[str, TargetInput]], output: OutputSettings) -> set[int]:
    """Return the residues of the sequences, and of the chains of complexes, that a run searches first.

    Args:
        targets: names and inputs of the targets.
        output: settings of the results; finished targets need no search.
    """
    unfinished = [target for _, target in _unfinished(targets, output)]
    chains = [
        target.chains if isinstance(target, Complex) else (target,) for target in unfinished[:FIRST_BATCH]
    ]
    return {len(chain.sequence) for each in chains for chain in each}


def first_queries(targets: Sequence[tuple[str, TargetInput]], output: OutputSettings) -> list[FastaRecord]:
    """Return the sequences of a run's first batch, if that can be known: none if there are complexes.

    Args:
        targets: names and inputs of the targets.
        output: settings of the results; finished and searched targets need no search.
    """
    unfinished = _unfinished(targets, output)
    if any(isinstance(target, Complex) for _, target in unfinished):
        return []
    queries = [
        target
        for name, target in unfinished
        if isinstance(target, FastaRecord) and not output.files(name).search_folder.exists()
    ]
    return queries[:FIRST_BATCH]


def _unfinished(
    targets: Sequence[tuple[str, TargetInput]], output: OutputSettings
) -> list[tuple[str, FastaRecord | Complex]]:
    """Return the names and inputs of unfinished targets that are searched, in the order of the run."""
    return [
        (name, target)
        for name, target in in_run_order(targets)
        if isinstance(target, FastaRecord | Complex) and not output.files(name).path("done").exists()
    ]
