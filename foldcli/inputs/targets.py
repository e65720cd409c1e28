"""The targets of a run, found in the command line's inputs; one function per command."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from features.cache.entry import read_entry_metadata
from foldcli.errors import OptionError
from foldcli.inputs.alignment_targets import AlignmentTarget, find_alignment_targets, starts_as_complex
from foldcli.inputs.cached_targets import CachedTarget, find_all_cached_targets, split_cached_names
from foldcli.inputs.complexes import Complex
from foldcli.inputs.names import (
    ALIGNMENT_SUFFIXES,
    ENTRY_SUFFIX,
    FASTA_SUFFIXES,
    check_unique_names,
    file_endings,
)
from foldcli.inputs.queries import (
    Query,
    QuerySources,
    is_unaligned_fasta,
    name_queries,
    read_named_queries,
    read_sequences,
)
from msa.alignments.files import without_separator
from msa.base.errors import InputError
from msa.io.compression import read_bytes
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from foldcli.inputs.failures import Failures

_ALIGNMENT_ENDINGS = file_endings(ALIGNMENT_SUFFIXES)

# the input of a target: queries to search with, alignments, or cached features
TargetInput: TypeAlias = FastaRecord | Complex | AlignmentTarget | CachedTarget
FoldInput: TypeAlias = FastaRecord | Complex | CachedTarget
PredictInput: TypeAlias = AlignmentTarget | CachedTarget
FeatureInput: TypeAlias = FastaRecord | Complex | AlignmentTarget


def is_complex(target: TargetInput) -> bool:
    """Return True if a target has several chains."""
    return isinstance(target, Complex) or (not isinstance(target, FastaRecord) and target.is_complex)


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


def find_fold_targets(
    inputs: Sequence[str],
    comp_bias_corr: bool,
    matrix: str,
    cache: Path,
    failures: "Failures",
    read: Callable[[QuerySources, "Failures"], list[tuple[str, Any]]] = read_named_queries,
) -> list[tuple[str, FoldInput]]:
    """Return the (name, target) pairs of `foldcli fold`.

    Args:
        inputs: query files, folders of them, `-`, names of cached targets.
        comp_bias_corr: see `read_queries`.
        matrix: see `read_queries`.
        cache: folder of the feature cache.
        failures: receives files that cannot be read and names that are not in the cache.
        read: reads the queries, and names them.

    Raises:
        InputError: two targets have the same name, or a folder is empty.
    """
    files, cached = split_cached_names(inputs, cache, failures)
    queries = read(QuerySources(files, comp_bias_corr, matrix), failures)
    check_unique_names(
        [(name, "the queries") for name, _ in queries]
        + [(target.name, str(target.path)) for target in cached]
    )
    return [*queries, *((target.name, target) for target in cached)]


def find_predict_targets(
    inputs: Sequence[str], all_cached: bool, cache: Path, failures: "Failures"
) -> list[tuple[str, PredictInput]]:
    """Return the (name, target) pairs of `foldcli predict`.

    Args:
        inputs: alignment files, cache entries, folders of them, `-`, names of cached targets.
        all_cached: use all targets of the cache instead of the inputs.
        cache: folder of the feature cache.
        failures: receives names that are not in the cache, and unreadable entries.

    Raises:
        InputError: two targets have the same name, a folder or the cache is empty, or standard input is
            damaged.
    """
    if all_cached:
        return [(target.name, target) for target in find_all_cached_targets(cache, failures)]
    files, cached = split_cached_names(inputs, cache, failures)
    aligned = [
        # standard input is read once, here, and identified by its content
        replace(target, content=read_bytes("-")) if "-" in target.files else target
        for target in find_alignment_targets(files, (*ALIGNMENT_SUFFIXES, *FASTA_SUFFIXES, ENTRY_SUFFIX))
    ]
    aligned = [replace(target, is_complex=starts_as_complex(target)) for target in aligned]
    check_unique_names(
        [(target.name, target.files[0]) for target in aligned]
        + [(target.name, str(target.path)) for target in cached]
    )
    return [*((target.name, target) for target in aligned), *((target.name, target) for target in cached)]


def find_feature_targets(
    inputs: Sequence[str], has_database: bool, failures: "Failures"
) -> list[tuple[str, FeatureInput]]:
    """Return the (name, target) pairs of `foldcli cache-features`.

    Args:
        inputs: files of alignments or sequences, folders of them, `-`.
        has_database: whether there is a database to search sequences in.
        failures: receives files that cannot be read.

    Raises:
        InputError: two targets have the same name, or a folder is empty.
        OptionError: a file holds sequences, and there is no database.
    """
    aligned: list[tuple[str, AlignmentTarget]] = []
    queries: list[Query] = []
    for target in find_alignment_targets(inputs):
        try:
            content = _queries_or_alignment(target)
        except (InputError, OSError) as error:
            failures.add(target.name, error)
            continue
        if isinstance(content, AlignmentTarget):
            aligned.append((content.name, content))
            continue
        if not has_database:
            source = "standard input" if target.files[0] == "-" else target.files[0]
            raise OptionError(
                f"{source} holds unaligned sequences, which need a search: give a database with --db "
                f"(an alignment of one sequence is a file ending in .a3m)"
            )
        queries += content
    named_queries = name_queries(queries)
    check_unique_names(
        [(name, target.files[0]) for name, target in aligned]
        + [(name, "the queries") for name, _ in named_queries]
    )
    return [*aligned, *named_queries]


def _queries_or_alignment(target: AlignmentTarget) -> list[Query] | AlignmentTarget:
    """Return the queries in a target's file if it is unaligned FASTA, else the target itself."""
    path = target.files[0]
    if len(target.files) > 1 or path.lower().endswith(_ALIGNMENT_ENDINGS):
        return target
    content = without_separator(read_bytes(path), path)
    if is_unaligned_fasta(content):
        return read_sequences(content, path)
    # standard input cannot be read again; other files are read by the worker that computes the features
    return AlignmentTarget(target.name, target.files, content if path == "-" else None)
