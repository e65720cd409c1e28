"""The searches with which a run begins, found before the run itself has started."""

from collections.abc import Iterator, Sequence
from itertools import islice

from foldcli.inputs.complexes import Complex
from foldcli.inputs.targets import TargetInput
from foldcli.pipeline.alignment_settings import FIRST_BATCH
from foldcli.pipeline.settings import OutputSettings
from msa.io.fasta import FastaRecord


def first_lengths(targets: Sequence[tuple[str, TargetInput]], output: OutputSettings) -> set[int]:
    """Return the residues of the sequences, and of the chains of complexes, that a run searches first.

    Args:
        targets: names and inputs of the targets, in the order of the run.
        output: settings of the results; finished targets need no search.
    """
    chains = [
        target.chains if isinstance(target, Complex) else (target,)
        for _, target in islice(_unfinished(targets, output), FIRST_BATCH)
    ]
    return {len(chain.sequence) for each in chains for chain in each}


def first_queries(targets: Sequence[tuple[str, TargetInput]], output: OutputSettings) -> list[FastaRecord]:
    """Return the sequences of a run's first batch, if that can be known: none if there are complexes.

    Args:
        targets: names and inputs of the targets, in the order of the run.
        output: settings of the results; finished and searched targets need no search.
    """
    complexes = [(name, target) for name, target in targets if isinstance(target, Complex)]
    if any(True for _ in _unfinished(complexes, output)):
        return []
    queries = (
        target
        for name, target in _unfinished(targets, output)
        if isinstance(target, FastaRecord) and not output.files(name).search_folder.exists()
    )
    return list(islice(queries, FIRST_BATCH))


def _unfinished(
    targets: Sequence[tuple[str, TargetInput]], output: OutputSettings
) -> Iterator[tuple[str, FastaRecord | Complex]]:
    """Yield the names and inputs of unfinished targets that are searched, one file looked up for each."""
    for name, target in targets:
        if isinstance(target, FastaRecord | Complex) and not output.files(name).path("done").exists():
            yield name, target
