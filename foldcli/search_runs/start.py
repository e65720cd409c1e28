"""The run that `foldcli search` starts: its options are checked, then its results are made."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldcli.errors import OptionError
from foldcli.inputs.queries import QueryReaders, QuerySources
from foldcli.inputs.shard import Shard
from foldcli.paths import default_feature_cache
from foldcli.pipeline.search.opening import DatabaseSource, open_searcher
from foldcli.pipeline.search.searcher import ExactSearcher
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings, option_of
from foldcli.search_runs.settings import SearchRun
from foldcli.search_runs.split import MergedSearcher, PartSearchRun, ResultFormat
from foldcli.search_runs.table import write_table
from foldcli.server.client import RemoteSearcher
from msa.alignments.filter_settings import AlignmentFilter
from msa.alignments.m8 import DEFAULT_COLUMNS, parse_columns
from msa.engines.search_settings import MAX_SEQS
from msa.io.molecules import RNA
from msa.profile.matrices import RNA as RNA_MATRIX

if TYPE_CHECKING:
    from foldcli.pipeline.search.protocols import Searcher
    from msa.gpu.worker.process_start import GpuProcess

_TABLE_FORMATS = ("m8", "a3m", "sto")
_NOT_RNA = {"matrix", "exact", "server", "params", "qsc", "pair_mode", "pair_strategy", "cache"}
# options without effect on exact searches
_NOT_EXACT = "num_iterations", "fast", "e_profile", "min_ungapped_score", "comp_bias_corr"
# those with a place for alignments of RNA
_RNA_FORMATS = ("af3", "openfold3", "protenix")


def run_search(
    values: dict[str, Any],
    given: Collection[str],
    inputs: Sequence[str],
    db: str,
    started: "GpuProcess | None",
    export_jobs: Callable[[SearchRun, SearchRun | None], None],
) -> None:
    """Search a database, and write the hits, alignments or jobs.

    Args:
        values: values of the options of `foldcli search`.
        given: names of those on the command line.
        inputs: the queries.
        db: the database; "" with a server.
        started: the process that is opening the GPU for this database; None if none is.
        export_jobs: writes the jobs of other programs, with the alignments of a run, and of one for RNA.

    Raises:
        OptionError: options exclude each other.
    """
    file_format, threads = values["file_format"], values["threads"]
    columns = _table_columns(file_format, values["format_output"])
    if values["molecule"] == RNA:
        values = _rna_options(values, given)
    settings = _alignment_settings(
        file_format, _exact_options(values, given) if values["exact"] else values, threads
    )
    search = settings.search
    sources = QuerySources(inputs, search.comp_bias_corr, search.matrix, values["profiles"])
    _check_combinations(values, given)
    if values["partial"]:
        _search_part(values, sources, settings, db, columns, started)
        return
    readers: QueryReaders = sources
    if values["params"] is not None:
        from foldcli.inputs.molecules.read import JobSources  # imports the dictionary of components

        readers = JobSources(inputs)
    run = SearchRun(
        readers,
        settings,
        _searcher_opener(values, db, started),
        values["shard"],
        values["save_profile"],
        values["overwrite"],
        values["cache"] or default_feature_cache(),
    )
    if file_format in _TABLE_FORMATS:
        write_results(run, values["out"], file_format, columns)
    else:
        export_jobs(run, _rna_run(run, values))


def write_results(run: SearchRun, out: str, file_format: str, columns: Sequence[str]) -> None:
    """Write a table of hits, a folder of alignments, or one alignment on standard output.

    Args:
        run: the run.
        out: path of the table or folder; "-" is standard output.
        file_format: "m8", "a3m" or "sto".
        columns: columns of the table.
    """
    if file_format == "m8":
        write_table(run, out, columns)
        return
    # imports the stores of runs, which tables do not need
    from foldcli.search_runs.folder import print_alignment, write_alignments

    if out == "-":
        print_alignment(run, file_format)
    else:
        write_alignments(run, Path(out), file_format)


def merge_hits(parts: Sequence[str], out: str, threads: int, overwrite: bool) -> None:
    """Write the result of a search from those of all parts of a split database; see `foldcli merge-hits`."""
    merged = MergedSearcher.open(parts, threads)
    result = merged.hits.result
    run = SearchRun(merged, merged.hits.settings, lambda: merged, Shard(), None, overwrite)
    write_results(run, out, result.file_format, result.columns)


def _table_columns(file_format: str, format_output: str | None) -> tuple[str, ...]:
    if format_output is None:
        return DEFAULT_COLUMNS
    if file_format != "m8":
        raise OptionError("--format-output is for --format m8 only.")
    try:
        return parse_columns(format_output)
    except ValueError as error:
        raise OptionError(f"--format-output: {error}") from error


def _exact_options(values: dict[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Return the values of the options without default limits on E-value and number of hits."""
    unsupported = {
        "--format " + values["file_format"]: values["file_format"] != "m8",
        "--server": values["server"] is not None,
        "--partial": values["partial"],
        "--profile": bool(values["profiles"]),
        "--save-profile": values["save_profile"] is not None,
        f"--device {values['device']}": "device" in given and values["device"] != "cpu",
        **{option_of(name): name in given for name in _NOT_EXACT},
    }
    if option := next((option for option, is_given in unsupported.items() if is_given), None):
        raise OptionError(f"--exact cannot be combined with {option}.")
    limits = {"evalue": math.inf, "max_seqs": MAX_SEQS}
    return {**values, **{name: limit for name, limit in limits.items() if values[name] is None}}


def _rna_options(values: dict[str, Any], given: Collection[str]) -> dict[str, Any]:
    if values["file_format"] not in _TABLE_FORMATS:
        raise OptionError(f"--format {values['file_format']} takes a database of RNA with --rna-db.")
    if for_proteins := _NOT_RNA.intersection(given):
        raise OptionError(f"--molecule rna cannot be combined with {option_of(min(for_proteins))}.")
    return {**values, "matrix": RNA_MATRIX}


def _rna_run(run: SearchRun, values: dict[str, Any]) -> SearchRun | None:
    """Return the search for the RNA chains of jobs, if it is requested."""
    if (db := values["rna_db"]) is None:
        return None
    local = {**values, "databases": (db,), "molecule": RNA, "server": None}
    return replace(run, settings=run.settings.for_rna(), open_searcher=_searcher_opener(local, db, None))


def _alignment_settings(file_format: str, values: dict[str, Any], threads: int) -> AlignmentSettings:
    settings = AlignmentSettings.from_options(values, threads, tables=file_format == "m8")
    if file_format == "m8" and settings.row_filter != AlignmentFilter():
        raise OptionError(
            "--max-seq-id, --qid, --qsc, --cov, --diff and --filter-min-enable are for --format a3m and sto: "
            "tables keep all hits."
        )
    return settings


def _search_part(
    values: dict[str, Any],
    sources: QuerySources,
    settings: AlignmentSettings,
    db: str,
    columns: tuple[str, ...],
    started: "GpuProcess | None",
) -> None:
    """Search one part of a split database."""
    run = PartSearchRun(
        sources,
        settings,
        ResultFormat(values["file_format"], columns),
        _source(values, db, started),
        values["previous"],
        values["shard"],
        values["overwrite"],
    )
    run.to_file(Path(values["out"]))


def _check_combinations(values: Mapping[str, Any], given: Collection[str]) -> None:
    """Refuse options that exclude or need each other."""
    if "strand" in given and values["molecule"] != RNA and values["rna_db"] is None:
        raise OptionError("--strand is for --molecule rna and --rna-db.")
    _check_partial(values)
    _check_jobs(values, given)
    if values["params"] is not None:
        _check_molecules(values)
    if values["databases"][1:] and (values["partial"] or values["exact"]):
        raise OptionError(f"--{'partial' if values['partial'] else 'exact'} takes one database.")


def _check_molecules(values: Mapping[str, Any]) -> None:
    """Check that jobs of molecules can be searched."""
    from foldcli.families.registry import find_family  # imports gemmi and safetensors

    family = find_family(values["params"])
    if not family.prepares_jobs:
        raise OptionError("--params: only all-atom networks have jobs of molecules; leave it out")
    profiles = values["profiles"] or values["save_profile"] is not None
    if values["file_format"] != "a3m" or profiles or values["partial"]:
        raise OptionError("--params: jobs are searched with --format a3m, and without profiles or parts.")
    family.check_options({})


def _check_partial(values: Mapping[str, Any]) -> None:
    """Refuse options that --partial does not support, and one that needs it."""
    if not values["partial"]:
        if values["previous"]:
            raise OptionError("--previous is for --partial.")
        return
    if values["server"] is not None or values["save_profile"] is not None:
        raise OptionError("--partial cannot be combined with --server or --save-profile.")
    if values["out"] == "-":
        raise OptionError("--partial writes a file: name it with -o.")


def _check_jobs(values: Mapping[str, Any], given: Collection[str]) -> None:
    """Refuse options that cannot be combined with jobs of other programs, and one that needs them."""
    file_format = values["file_format"]
    for name in {"msa_files", "templates"} & set(given):
        if file_format != "af3":
            raise OptionError(f"{option_of(name)} is for --format af3.")
    for name in {"pair_mode", "pair_strategy", "cache"} & set(given):
        if file_format in ("m8", "sto"):
            raise OptionError(f"{option_of(name)} is for --format a3m and jobs.")
    if values["rna_db"] is not None and file_format not in _RNA_FORMATS:
        raise OptionError(f"--rna-db is for --format {', '.join(_RNA_FORMATS)}.")
    if file_format in _TABLE_FORMATS:
        return
    unsupported = {
        "--partial": values["partial"],
        "--profile": bool(values["profiles"]),
        "--save-profile": values["save_profile"] is not None,
        "-o -": values["out"] == "-",
    }
    if option := next((option for option, is_given in unsupported.items() if is_given), None):
        raise OptionError(f"--format {file_format} cannot be combined with {option}.")


def _searcher_opener(
    values: Mapping[str, Any], db: str, started: "GpuProcess | None"
) -> "Callable[[], Searcher]":
    """Return a function that opens the database, or connects to a server."""
    if values["server"] is not None:
        return lambda: RemoteSearcher(values["server"])
    if values["exact"]:
        return lambda: ExactSearcher(DatabaseSource(db, "cpu").open())
    return lambda: open_searcher(_source(values, db, started))


def _source(values: Mapping[str, Any], db: str, started: "GpuProcess | None") -> DatabaseSource:
    molecule, others = values["molecule"], values["databases"][1:]
    both_strands = molecule == RNA and values["strand"] == "both"
    return DatabaseSource(db, values["device"], others, started, molecule, both_strands)
