"""The runs that `foldcli fold`, `screen` and `predict` start: where their targets come from."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from foldcli.families.registry import find_family
from foldcli.inputs.failures import Failures
from foldcli.inputs.queries import QuerySources
from foldcli.inputs.screen import Background
from foldcli.inputs.targets import FoldInput, find_fold_targets
from foldcli.pipeline.runs.prediction import SearchOptions, run_predictions
from foldcli.pipeline.search.rna import RnaSearch


def run_fold(queries: Sequence[str], rna_db: str | None, values: dict[str, Any]) -> int | None:
    """Predict queries, with searches; return the exit code of a process that only takes part.

    Args:
        queries: the inputs.
        rna_db: the database of RNA, or None.
        values: see `run_predictions`.
    """
    search, family = SearchOptions.from_options(values), find_family(values["params"])
    if rna_db is not None and not family.prepares_jobs:
        raise click.UsageError("--rna-db is for all-atom networks (--params openfold3).")

    def find_targets(cache: Path, failures: Failures) -> list[tuple[str, FoldInput]]:
        settings = search.alignment.search
        arguments = queries, settings.comp_bias_corr, settings.matrix, cache, failures
        targets = find_fold_targets(*arguments, family.read_queries)
        if rna_db is None:
            return targets
        rna = RnaSearch(rna_db, search.alignment, cache)
        return rna.add_alignments(targets, failures, values["dry_run"])

    return run_predictions(find_targets, search, **values)


def run_screen(
    files: Sequence[str], pairs: str | None, background: int | None, values: dict[str, Any]
) -> int | None:
    """Predict complexes of chains, with searches; see `run_fold`.

    Args:
        files: files of chains.
        pairs: table of the complexes, or None for all pairs.
        background: number of pairs of the background, or None for none.
        values: see `run_predictions`.
    """
    search = SearchOptions.from_options(values)

    def find_targets(cache: Path, failures: Failures) -> list[tuple[str, FoldInput]]:
        settings = search.alignment.search
        sources = QuerySources(files, settings.comp_bias_corr, settings.matrix)
        drawn = None if background is None else Background(background, values["random_seed"] or 0)
        return find_family(values["params"]).read_screen(files, pairs, sources, failures, drawn)

    return run_predictions(find_targets, search, **values)


def run_predict(targets: Sequence[str], all_cached: bool, values: dict[str, Any]) -> int | None:
    """Predict alignments, features or jobs; see `run_fold`."""
    find_targets = find_family(values["params"]).find_predict_targets
    return run_predictions(partial(find_targets, targets, all_cached), None, **values)
