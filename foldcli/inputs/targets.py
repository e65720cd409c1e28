"""From what a user names (query files, folders, standard input) to targets with file-safe, unique names."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.logs import logger
from foldcli.pipeline.failures import Failures
from msa.errors import InputError
from msa.io.compression import SUFFIXES

if TYPE_CHECKING:
    from msa.io.fasta import FastaRecord

FASTA_SUFFIXES = (".fasta", ".fa", ".faa", ".fas", ".seq")
PROFILE_SUFFIXES = (".npz",)
OTHER_QUERY_SUFFIXES = (".a3m", ".sto", ".stockholm", *PROFILE_SUFFIXES)
JOB_SUFFIXES = (".csv", ".tsv", ".json", ".yaml", ".yml")
# what foldcli itself writes beside alignments
RECORD_SUFFIXES = (".a3m.json", ".sto.json", ".done.json")


def file_safe(name: str) -> str:
    """`name` with everything but letters, digits, '.', '_' and '-' replaced, as in sp|P0CG48|UBC_HUMAN."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")
    # leaves room for the longest suffix under the usual limit of 255 bytes a name
    return safe[:150] or "target"


def file_endings(suffixes: Sequence[str]) -> tuple[str, ...]:
    """What the names of files with these suffixes end with, compressed or not."""
    return tuple(suffix + packed for suffix in suffixes for packed in ("", *SUFFIXES))


def files_in(inputs: Sequence[str], suffixes: Sequence[str]) -> Iterator[str]:
    """The files that inputs name: themselves, or, of a folder, those with the suffixes (also compressed).

    Raises:
        InputError: a folder holds no such file.
    """
    endings = file_endings(suffixes)
    for given in inputs:
        if given == "-" or not Path(given).is_dir():
            yield given
            continue
        found = sorted(str(path) for path in Path(given).iterdir() if path.name.lower().endswith(endings))
        if not found:
            raise InputError(f"the folder has no file ending in {', '.join(suffixes)}", given)
        yield from found


def unique_names(named: Iterable[tuple[str, str]]) -> None:
    """Check that no two targets would write into one folder.

    Args:
        named: (file-safe name, where it comes from).

    Raises:
        InputError: two have one name.
    """
    seen: dict[str, str] = {}
    for name, source in named:
        if name in seen:
            raise InputError(f"two targets have the name {name!r} (the other is in {seen[name]})", source)
        seen[name] = source


def query_files(inputs: Sequence[str]) -> Iterator[str]:
    """The files of queries that inputs name: of a folder the FASTA files, or, without any, the others.

    Raises:
        InputError: a folder holds none.
    """
    others = (*FASTA_SUFFIXES, *OTHER_QUERY_SUFFIXES, *JOB_SUFFIXES)
    for given in inputs:
        try:
            yield from files_in([given], FASTA_SUFFIXES)
        except InputError:
            found = [path for path in files_in([given], others) if not path.endswith(RECORD_SUFFIXES)]
            if not found:
                raise
            yield from found


@dataclass(frozen=True)
class QuerySources:
    """Where queries come from.

    Args:
        inputs: see `query_files`.
        comp_bias_corr, matrix: see `foldcli.inputs.queries.read_queries`.
        profiles: files of saved profiles, or folders of them.
    """

    inputs: Sequence[str]
    comp_bias_corr: bool
    matrix: str
    profiles: Sequence[str] = ()

    def files(self) -> "Iterator[tuple[str, Callable[[], Sequence[FastaRecord]]]]":
        """Each file with what reads its queries.

        Raises:
            InputError: a folder holds none; when it is called, what is wrong with the file.
        """
        from foldcli.inputs.queries import read_queries
        from msa.io.saved_profiles import read_profiles

        for path in query_files(self.inputs):
            yield path, partial(read_queries, path, self.comp_bias_corr, self.matrix)
        for path in files_in(self.profiles, PROFILE_SUFFIXES):
            yield path, partial(read_profiles, path, self.matrix)


def read_targets(sources: QuerySources, failures: Failures) -> "list[tuple[str, FastaRecord]]":
    """(name, query) of every query there is.

    A file that cannot be read goes to `failures` under its own name, and the others are read.

    Raises:
        InputError: two queries would have the same name.
    """
    queries = []
    named: list[tuple[str, str]] = []
    for path, read in sources.files():
        try:
            records = read()
        except (InputError, OSError) as error:
            failures.add(path, error)
            continue
        queries += [(file_safe(record.id), record) for record in records]
        named += [(file_safe(record.id), path) for record in records]
    unique_names(named)
    tell_of_profiles(query for _, query in queries)
    return queries


def tell_of_profiles(queries: "Iterable[FastaRecord]") -> None:
    """Say under -v which queries are searched with a profile, and of what."""
    from msa.profile.pssm import ProfileQuery

    for query in queries:
        if isinstance(query, ProfileQuery):
            logger.debug("%s: searching with the profile of %s", query.id, query.made_from)
