"""Searches and predictions from Python, by the machinery of `foldcli search` and `fold`."""

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from foldcli.api.results import Prediction, predictions_of
from foldcli.commands.fold import command
from foldcli.errors import IncompleteTarget, SomeTargetsFailed, TargetFailed
from foldcli.inputs.failures import Failures
from foldcli.inputs.queries import QuerySources, read_named_queries
from foldcli.inputs.shard import Shard
from foldcli.logs import logger
from foldcli.options.command import parse_python_values
from foldcli.paths import default_feature_cache
from foldcli.pipeline.runs.prediction import fold_targets, run_predictions
from foldcli.pipeline.runs.request import KeptState, PredictionRequest
from foldcli.pipeline.search.options import SearchOptions
from foldcli.process_state import keep_bytecode, make_cpu_products_reproducible, set_numba_cache_folder
from foldcli.search_runs.folder import write_alignments
from foldcli.search_runs.settings import SearchRun
from msa.alignments.files import Alignment, read_alignment
from msa.io.fasta import unique_names

if TYPE_CHECKING:
    from foldcli.progress import Report

T = TypeVar("T")
Queries: TypeAlias = "Mapping[str, str] | str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"
"""Sequences by name, with ":" between the chains of a complex; or a file or files as for `foldcli fold`."""

# names of temporary files: a file system allows 255 bytes
_FILE_NAME_LETTERS = 60
# options of the command that have no meaning here
_ABSENT = dict.fromkeys(("quiet", "verbose", "log_json", "dry_run", "as_json"), False)


class Session:
    """A database and networks that stay loaded, on a GPU if there is one, between searches and predictions.

    Nothing is printed: messages go to the logger "foldcli" of Python's `logging`.

    Args:
        db: path of the target database, or several; None is the small library that comes with foldcli.
        options: options of `foldcli fold` without their dashes, such as num_models=1 or fast=True.

    Raises:
        TypeError: there is no such option.
        ValueError: an option has no such value, or excludes another.
    """

    def __init__(
        self, db: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None, **options: Any
    ) -> None:
        # as in the command, before torch and numba are imported, which read the variables
        make_cpu_products_reproducible()
        keep_bytecode()
        set_numba_cache_folder()
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
        databases = [] if db is None else [db] if isinstance(db, str | os.PathLike) else list(db)
        self._options, self._databases = options, [os.fspath(path) for path in databases]
        self._values(["-"], Path())
        self.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the memory of the database and the networks; the next call loads them again."""
        self._kept = KeptState()

    def search(
        self,
        queries: Queries,
        out: str | os.PathLike[str] | None = None,
        progress: "Report | None" = None,
    ) -> list[Alignment]:
        """Search with sequences; return one alignment for each, as `foldcli search --format a3m` writes it.

        Args:
            queries: see `Queries`.
            out: folder for the A3M files; finished ones are not searched again. None writes none.
            progress: see `fold`.

        Returns:
            The alignments, in the order of the queries.
        """
        owner = None if out is not None else _TemporaryFolder()
        folder = owner.path if owner else Path(out or "")
        with _inputs(queries) as (paths, names_of_files):
            options, _ = self._values(paths, folder)
            search = SearchOptions.from_options(options).with_database()
            settings, shard = search.alignment, options["shard"]
            sources = QuerySources(paths, settings.search.comp_bias_corr, settings.search.matrix)
            run = SearchRun(
                sources,
                settings,
                lambda: self._kept.open(search, options["device"])[0].searcher,
                shard,
                None,
                options["overwrite"],
                options["cache"] or default_feature_cache(),
                None if progress is None else lambda done, total: progress(done, total or 0, "search"),
            )
            names = _names_of_shard(read_named_queries(sources, Failures(folder, shard)), shard)

            def read(name: str) -> list[Alignment]:
                alignment = read_alignment(folder / f"{name}.a3m", of_complex=True)
                return [replace(alignment, source=None) if owner else alignment]

            return _run(lambda: write_alignments(run, folder, "a3m"), names, names_of_files, read)

    def fold(
        self,
        queries: Queries,
        out: str | os.PathLike[str] | None = None,
        progress: "Report | None" = None,
    ) -> list[Prediction]:
        """Predict structures, as `foldcli fold` does.

        Args:
            queries: see `Queries`.
            out: folder for the results, in which finished targets are not predicted again; None is a
                temporary folder, which lasts as long as its predictions.
            progress: called with the steps done, the number of all steps, and a description, by any thread.
                An exception that it raises ends the run, and is raised here. So is a KeyboardInterrupt. The
                next call with the same `out` continues.

        Returns:
            All models, by target in the order of the queries, best first.

        Raises:
            ValueError: an option excludes another; InputError, a subclass, an input cannot be used.
            MissingError: parameters, a database or a device are missing.
            SomeTargetsFailed: some of several targets failed; `failed` has their errors, `results` the other
                predictions. The error of a single target is raised itself.
        """
        names: list[str] = []
        owner = None if out is not None else _TemporaryFolder()
        folder = owner.path if owner else Path(out or "")
        with _inputs(queries) as (paths, names_of_files):
            values, given = self._values(paths, folder)
            request = PredictionRequest.from_options(values, given)
            find = fold_targets(request, paths, values["rna_db"])

            def find_targets(cache: Path, failures: Failures) -> Any:
                targets = find(cache, failures)
                names.extend(_names_of_shard(targets, values["shard"]))
                return targets

            def run() -> None:
                self._kept.report = progress
                run_predictions(request, find_targets, self._kept)

            return _run(
                run, names, names_of_files, lambda name: predictions_of(request.output.files(name), owner)
            )

    def _values(self, paths: list[str], folder: Path) -> tuple[dict[str, Any], set[str]]:
        """Return the values of the command's parameters, and the names of those given."""
        fixed = _ABSENT | {"databases": self._databases, "out": str(folder)}
        return parse_python_values(command, paths, self._options, fixed)


def search(
    queries: Queries,
    db: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: "Report | None" = None,
    **options: Any,
) -> list[Alignment]:
    """Search a database in a session of its own; see `Session` and its method `search`."""
    with Session(db, **options) as session:
        return session.search(queries, out, progress)


def fold(
    queries: Queries,
    db: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: "Report | None" = None,
    **options: Any,
) -> list[Prediction]:
    """Predict structures in a session of its own; see `Session` and its method `fold`."""
    with Session(db, **options) as session:
        return session.fold(queries, out, progress)


class _TemporaryFolder:
    """A folder that is removed with the last object that refers to this one."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="foldcli-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@contextmanager
def _inputs(queries: Queries) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the files of queries, and the names of those that are temporary.

    Sequences are written to temporary files, so that each can fail alone.
    """
    if isinstance(queries, Mapping):
        for name, sequence in queries.items():
            if not isinstance(name, str) or name.split() != [name]:
                raise ValueError(f"not the name of a target: {name!r}")
            # such as None or NaN, whose text would be residues
            if not isinstance(sequence, str) or ">" in sequence:
                raise ValueError(f"{name!r} has no sequence but {sequence!r:.60}")
        with tempfile.TemporaryDirectory(prefix="foldcli-") as folder:
            file_names = unique_names([name.replace("/", "_")[:_FILE_NAME_LETTERS] for name in queries])
            paths = [Path(folder, f"{file}.fasta") for file in file_names]
            for path, (name, sequence) in zip(paths, queries.items(), strict=True):
                path.write_text(f">{name}\n{sequence}\n", encoding="utf-8")
            files = list(map(str, paths))
            yield files, dict(zip(files, queries, strict=True))
    else:
        given = [queries] if isinstance(queries, str | os.PathLike) else queries
        yield [os.fspath(path) for path in given], {}


def _names_of_shard(targets: Iterable[tuple[str, object]], shard: Shard) -> list[str]:
    """Return the names of a shard's targets, in the order of the input."""
    names = [name for name, _ in targets]
    selected = dict(shard.part((name, None) for name in names))
    return [name for name in names if name in selected]


def _run(
    call: Callable[[], object],
    names: list[str],
    names_of_files: Mapping[str, str],
    read: Callable[[str], list[T]],
) -> list[T]:
    """Run a command's function, and return the results of all targets.

    Args:
        call: runs it.
        names: names of the targets; known after the run.
        names_of_files: names for the failures of temporary files.
        read: returns the results of a target.
    """
    try:
        call()
    except TargetFailed as error:
        raise error.__cause__ or error from None
    except SomeTargetsFailed as error:
        finished = [name for name in names if not _has_failed(error.failed.get(name))]
        error.results = [result for name in finished for result in read(name)]
        error.failed = {names_of_files.get(name, name): each for name, each in error.failed.items()}
        raise
    return [result for name in names for result in read(name)]


def _has_failed(error: BaseException | None) -> bool:
    return error is not None and not isinstance(error, IncompleteTarget)
