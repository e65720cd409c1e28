"""Names of targets, and the input files in a folder."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from foldcli.logs import logger
from msa.base.errors import InputError
from msa.io.compression import SUFFIXES, list_folder

FASTA_SUFFIXES = (".fasta", ".fa", ".faa", ".fas", ".seq")
# a file with one of these suffixes is an alignment; otherwise, the content decides
ALIGNMENT_SUFFIXES = (".a3m", ".sto", ".stockholm", ".afa")
PROFILE_SUFFIXES = (".npz",)
JOB_SUFFIXES = (".csv", ".tsv", ".json", ".yaml", ".yml")
# an entry of a feature cache
ENTRY_SUFFIX = ".safetensors"
_OTHER_QUERY_SUFFIXES = (*ALIGNMENT_SUFFIXES, *PROFILE_SUFFIXES, *JOB_SUFFIXES)
# JSON files that foldcli writes next to its results
_RECORD_SUFFIXES = (".a3m.json", ".sto.json", ".done.json")
# names of the pairs that `screen --background` draws begin with it
BACKGROUND_PREFIX = "background--"
# maximum number of names that a message lists
_MAX_NAMED = 5


# files and folders that belong to the whole run, and endings by which results are found
_RUN_FILES = re.compile(
    r"((?:summary|screen).*\.tsv|failures.*\.jsonl|index\.html|cite\.bibtex|methods\.txt|log\.txt|foldcli|viewer|.*\.json)",
    re.IGNORECASE,
)
_LETTER = re.compile(r"(?:GREEK|LATIN) (SMALL|CAPITAL) LETTER (?:FINAL )?([A-Z]+)(?: WITH .*)?")


def file_safe_name(name: str) -> str:
    """Return a name of ASCII letters, digits, '.', '_' and '-' that begins with a letter or digit.

    Runs of other characters become '_', except that accents are dropped, and Greek letters written out.
    Names of files of the run, such as summary.tsv, get '_' instead of dots, or '_target' at their end.
    """
    text = name if name.isascii() else "".join(map(_to_ascii, unicodedata.normalize("NFKD", name)))
    # leaves room for the longest suffix within the usual limit of 255 bytes per file name
    safe = _replace_unsafe(text).lstrip("._-")[:150] or "target"
    if not _RUN_FILES.fullmatch(safe):
        return safe
    return safe.replace(".", "_") if "." in safe else f"{safe}_target"


def log_unusual_names(ids_and_names: Iterable[tuple[str, str]]) -> None:
    """Log the names that differ from their ids in more than characters that became '_'."""
    unusual = [
        f"{old or 'no id'} → {new}"
        for old, new in ids_and_names
        if not old.isascii() or _replace_unsafe(old) != new
    ]
    if unusual:
        more = f" and {len(unusual) - _MAX_NAMED} more" if len(unusual) > _MAX_NAMED else ""
        logger.info("names of files: %s%s", ", ".join(unusual[:_MAX_NAMED]), more)


def _replace_unsafe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")


def _to_ascii(character: str) -> str:
    """Return a character, or in ASCII the name of a Greek letter or a Latin letter without its accents."""
    if unicodedata.combining(character):
        return ""
    letter = _LETTER.fullmatch(unicodedata.name(character, ""))
    if character.isascii() or letter is None:
        return character
    return letter[2].lower() if letter[1] == "SMALL" else letter[2].capitalize()


def check_unique_names(names_and_sources: Iterable[tuple[str, str]]) -> None:
    """Check that no two targets would be written to the same folder.

    Raises:
        InputError: two targets have the same name.
    """
    seen: dict[str, str] = {}
    for name, source in names_and_sources:
        if name in seen:
            raise InputError(f"two targets have the name {name!r} (the other is in {seen[name]})", source)
        seen[name] = source


def file_endings(suffixes: Sequence[str]) -> tuple[str, ...]:
    """Return the endings of file names with these suffixes, compressed or not."""
    return tuple(suffix + compression for suffix in suffixes for compression in ("", *SUFFIXES))


def list_files(inputs: Sequence[str], suffixes: Sequence[str]) -> Iterator[str]:
    """Yield the input files; for a folder, its files with one of the suffixes, compressed or not.

    Raises:
        InputError: a folder contains no such file.
    """
    endings = file_endings(suffixes)
    for path in inputs:
        if path == "-" or not Path(path).is_dir():
            yield path
            continue
        files = [str(file) for file in list_folder(Path(path)) if file.name.lower().endswith(endings)]
        if not files:
            raise InputError(f"the folder has no file ending in {', '.join(suffixes)}", path)
        yield from files


def list_query_files(inputs: Sequence[str]) -> Iterator[str]:
    """Yield the query files; for a folder, its FASTA files or, if there are none, its other query files.

    Raises:
        InputError: a folder contains no query file.
    """
    for path in inputs:
        try:
            yield from list_files([path], FASTA_SUFFIXES)
        except InputError:
            suffixes = (*FASTA_SUFFIXES, *_OTHER_QUERY_SUFFIXES)
            files = [file for file in list_files([path], suffixes) if not file.endswith(_RECORD_SUFFIXES)]
            if not files:
                raise
            yield from files
