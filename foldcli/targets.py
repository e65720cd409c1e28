"""From what a user names (FASTA files, folders, standard input) to targets with file-safe, unique names."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.failures import Failures
from msa.errors import InputError

if TYPE_CHECKING:
    from msa.fasta import FastaRecord

ALIGNMENT_SUFFIXES = (".a3m", ".sto", ".stockholm", ".fasta", ".fa", ".afa", ".safetensors")
FASTA_SUFFIXES = (".fasta", ".fa", ".faa", ".fas", ".seq")
COMPRESSED_SUFFIXES = ("", ".gz", ".bz2", ".xz", ".zst")


def file_safe(name: str) -> str:
    """`name` with everything but letters, digits, '.', '_' and '-' replaced, as in sp|P0CG48|UBC_HUMAN."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")
    # leaves room for the longest suffix under the usual limit of 255 bytes a name
    return safe[:150] or "target"


def files_in(inputs: Sequence[str], suffixes: Sequence[str]) -> Iterator[str]:
    """The files that inputs name: themselves, or, of a folder, those with the suffixes (also compressed).

    Raises:
        InputError: a folder holds no such file.
    """
    endings = tuple(suffix + packed for suffix in suffixes for packed in COMPRESSED_SUFFIXES)
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


def read_queries(inputs: Sequence[str], failures: Failures) -> "list[tuple[str, FastaRecord]]":
    """(name, record) of every sequence in FASTA files, folders of them, or standard input.

    A file that cannot be read goes to `failures` under its own name, and the others are read.

    Raises:
        InputError: two records would have the same name.
    """
    from msa.fasta import read_fasta

    queries = []
    sources: list[tuple[str, str]] = []
    for path in files_in(inputs, FASTA_SUFFIXES):
        try:
            records = list(read_fasta(path))
        except (InputError, OSError) as error:
            failures.add(path, error)
            continue
        queries += [(file_safe(record.id), record) for record in records]
        sources += [(file_safe(record.id), path) for record in records]
    unique_names(sources)
    return queries


def target_name(path: str) -> str:
    """The file-safe name of a target given as a file: its name without folder and known suffixes."""
    name = "stdin" if path == "-" else Path(path).name
    for suffix in (*filter(None, COMPRESSED_SUFFIXES), *ALIGNMENT_SUFFIXES):
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    return file_safe(name)


def alignment_targets(inputs: Sequence[str]) -> list[tuple[str, str]]:
    """(name, path) of every alignment or cache entry that inputs name, folders included.

    Raises:
        InputError: a folder has none, or two files would have the same name.
    """
    named = [(target_name(path), path) for path in files_in(inputs, ALIGNMENT_SUFFIXES)]
    unique_names(named)
    return named
