"""Search queries, read from files whose format is recognised by content.

An alignment or a saved profile is one query, searched with a profile. A FASTA file has one query per record,
ColabFold's table one per row, AlphaFold 3's JSON and Boltz's YAML one per job. If the content is ambiguous,
the file's suffix determines the format. Text of several records that begins like FASTA is an alignment in
three cases:

- The file's name ends like that of an alignment, such as .a3m.
- A record has a gap.
- The first record is in upper case, another one has lower case as well, and all have the same number of
  upper-case letters.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from foldcli.inputs.complexes import Complex, refuse_complexes, split_chains
from foldcli.inputs.formats.tables import looks_like_table, parse_table
from foldcli.inputs.names import (
    ALIGNMENT_SUFFIXES,
    PROFILE_SUFFIXES,
    file_endings,
    file_safe_name,
    list_files,
    list_query_files,
    log_unusual_names,
)
from foldcli.inputs.protein_jobs import alphafold3_queries, boltz_query, query_from_alignment
from foldcli.logs import logger
from msa.alignments import stockholm
from msa.alignments.files import Alignment, check_protein, parse_alignment, without_separator
from msa.base.errors import InputError
from msa.io.compression import SUFFIXES, read_bytes
from msa.io.fasta import (
    FastaRecord,
    JoinedRecord,
    UnsupportedRecord,
    read_nucleotides,
    read_records,
    unique_names,
)
from msa.io.molecules import DeclaredMolecule, declared_molecule, declares_other_molecules, is_annotation
from msa.mmseqs.files import is_mmseqs
from msa.mmseqs.records import read_mmseqs_queries
from msa.profile.matrices import BLOSUM62, RNA
from msa.profile.profile_archive import is_profile_archive, parse_profiles, read_profiles
from msa.profile.pssm import ProfileRecord

if TYPE_CHECKING:
    from foldcli.inputs.failures import Failures

_GAP_IN_SEQUENCE = re.compile(rb"^[^>#\n]*[-.]", re.MULTILINE)
_LOWER_IN_SEQUENCE = re.compile(rb"^[^>#\n]*[a-z]", re.MULTILINE)
# the first key of a Boltz file, after comments; Stockholm and A3M files also begin with `#`
_YAML_START = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\r?\n)*(?:---\s+)?(?:version|sequences)[ \t]*:")
_ALIGNMENT_ENDINGS = file_endings(ALIGNMENT_SUFFIXES)
_JOB_FORMATS = {".csv": "table", ".tsv": "table", ".json": "json", ".yaml": "yaml", ".yml": "yaml"}
_NOT_UPPER = bytes(byte for byte in range(256) if not 65 <= byte <= 90)
_NOT_LOWER = bytes(byte for byte in range(256) if not 97 <= byte <= 122)
# enough for all molecules of a job
_START_BYTES = 2**20
# maximum number of queries that a warning names
_MAX_NAMED = 5


Query: TypeAlias = FastaRecord | Complex


class QueryReaders(Protocol):
    """A source of queries that are read file by file."""

    def readers(self) -> Iterator[tuple[str, Callable[[], Sequence[Query]]]]:
        """Yield each file with a function that reads its queries and raises the file's errors."""
        ...


@dataclass(frozen=True)
class QuerySources:
    """The inputs from which a run reads its queries."""

    inputs: Sequence[str]
    comp_bias_corr: bool
    matrix: str
    profiles: Sequence[str] = ()

    def readers(self) -> Iterator[tuple[str, Callable[[], Sequence[Query]]]]:
        """Yield each file with a function that reads its queries and raises the file's errors.

        Raises:
            InputError: a folder contains no query file.
        """
        for path in list_query_files(self.inputs):
            yield path, partial(read_queries, path, self.comp_bias_corr, self.matrix)
        for path in list_files(self.profiles, PROFILE_SUFFIXES):
            yield path, partial(read_profiles, path, self.matrix)


def read_named_queries(sources: QueryReaders, failures: "Failures") -> list[tuple[str, Query]]:
    """Read the queries of all files, and return pairs of name and query; see `name_queries`.

    Files that cannot be read are added to `failures`.

    Raises:
        InputError: a folder contains no query file.
    """
    queries: list[Query] = []
    for path, read in sources.readers():
        try:
            queries += read()
        except (InputError, OSError) as error:
            failures.add(path, error)
    return name_queries(queries)


def name_single_chains(queries: Iterable[Query]) -> list[tuple[str, FastaRecord]]:
    """Name queries as `name_queries` does, and replace complexes by UnsupportedRecords."""
    return refuse_complexes(name_queries(queries))


def name_queries(queries: Iterable[Query]) -> list[tuple[str, Query]]:
    """Give queries distinct ids, and distinct names for their files; log the changes.

    A query with the id and the sequence of an earlier one is left out. If only the id is that of an earlier
    one, _2, _3 and so on is appended to it. Names are file-safe ids, made distinct in the same way.

    Returns:
        Pairs of name and query, in order.
    """
    distinct: list[Query] = []
    seen: set[tuple[object, ...]] = set()
    repeated_ids = []
    for query in queries:
        if type(query) in (FastaRecord, Complex):
            content = (query.id, query.sequence, query.cyclic, query.templates)
            if content in seen:
                repeated_ids.append(query.id)
                continue
            seen.add(content)
        distinct.append(query)
    warn_queries("left out, because an earlier query has the same id and sequence", repeated_ids)
    unique_ids, names = distinct_ids_and_names([query.id for query in distinct])
    renamed = [
        query if new_id == query.id else _rename(query, new_id)
        for query, new_id in zip(distinct, unique_ids, strict=True)
    ]
    warn_queries("with stop codons ('*') read as X", [query.id for query in renamed if query.stop_codons])
    for query in renamed:
        if isinstance(query, ProfileRecord):
            logger.debug("%s: searching with the profile of %s", query.id, query.source)
    return list(zip(names, renamed, strict=True))


def distinct_ids_and_names(ids: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return distinct ids and distinct file-safe names for ids that may be repeated; log the changes."""
    unique_ids = unique_names(ids)
    renamings = [f"{old} → {new}" for old, new in zip(ids, unique_ids, strict=True) if new != old]
    warn_queries("renamed, because an earlier query has the same id", renamings)
    safe_names = [file_safe_name(new_id) for new_id in unique_ids]
    log_unusual_names(zip(unique_ids, safe_names, strict=True))
    return unique_ids, unique_names(safe_names)


def _rename(query: Query, new_id: str) -> Query:
    if isinstance(query, Complex):
        return replace(query, name=new_id)
    return replace(query, header=new_id + query.header[len(query.id) :])


def warn_queries(reason: str, query_ids: Sequence[str], kind: str = "query") -> None:
    """Log one warning about queries, or things of another kind, with the ids of the first ones."""
    if query_ids:
        plural = "queries" if kind == "query" else f"{kind}s"
        count = f"{len(query_ids)} {plural if len(query_ids) > 1 else kind}"
        listed = ", ".join(query_ids[:_MAX_NAMED])
        more = f" and {len(query_ids) - _MAX_NAMED} more" if len(query_ids) > _MAX_NAMED else ""
        logger.warning("%s %s: %s%s", count, reason, listed, more)


def read_queries(
    path: str | os.PathLike[str], comp_bias_corr: bool = True, matrix: str = BLOSUM62
) -> list[Query]:
    """Read the queries in a file; compression is recognised by content.

    Args:
        path: FASTA, A3M, Stockholm, aligned FASTA, saved profiles, ColabFold's table, AlphaFold 3's JSON or
            Boltz's YAML, or the name of an MMseqs2 database of sequences or profiles; `-` is standard input.
        comp_bias_corr: correct the profiles of alignments for local composition; see `family_profile`.
        matrix: substitution matrix of the search; with RNA, the file is FASTA of nucleic acids.

    Returns:
        FastaRecord for a sequence, ProfileRecord for a profile or an alignment with several different rows,
        Complex for several protein chains, UnsupportedRecord for anything else.

    Raises:
        InputError: an unknown format or invalid content; names file, line and column where known.
    """
    if os.fspath(path) != "-" and is_mmseqs(path):
        return list(read_mmseqs_queries(path, comp_bias_corr, matrix))
    name, data = os.fspath(path), read_bytes(path)
    if matrix == RNA:
        return list(read_nucleotides(BytesIO(data), name))
    if is_profile_archive(data):
        return list(parse_profiles(data, name, matrix))
    data = without_separator(data, name)
    text = data.lstrip()
    file_format = job_format(text, name)
    if file_format is not None:
        if file_format == "table":
            return split_complexes(parse_table(data, name))
        if not text:
            raise InputError("empty file", name)
        profile = partial(query_from_alignment, comp_bias_corr=comp_bias_corr, matrix=matrix)
        if file_format == "json":
            return alphafold3_queries(data, name, profile)
        return [boltz_query(data, name, name_of_file(name), profile)]
    alignment = find_alignment(data, name)
    if alignment is not None:
        check_protein(alignment.names[0], alignment.query, alignment.source)
        return [query_from_alignment(alignment, comp_bias_corr, matrix)]
    return read_sequences(data, name)


def find_alignment(data: bytes, name: str) -> Alignment | None:
    """Return the alignment in a file's content; None if it is FASTA or of another kind.

    Raises:
        InputError: the content or the name is that of an alignment, but it cannot be read.
    """
    text = data.lstrip()
    if text.startswith((stockholm.START, b"#")):
        return parse_alignment(data, name)
    is_aligned, has_suffix = _looks_like_alignment(text), name.lower().endswith(_ALIGNMENT_ENDINGS)
    if not is_aligned and not (has_suffix and text.startswith(b">")):
        return None
    try:
        return parse_alignment(data, name)
    except InputError as error:
        cause = "gaps or insertions make" if is_aligned else "its name makes"
        reason = f"{cause} this an alignment, but {error.reason}"
        raise InputError(reason, name, error.line, error.column) from None


def read_sequences(data: bytes, path: str) -> list[Query]:
    """Return the queries in the content of a FASTA file; log what headers of Boltz and Chai leave unread."""
    records = list(read_records(BytesIO(data), path))
    if not records:
        raise InputError("no sequences", path)
    declared = [found for record in records if (found := _declared_protein(record)) is not None]
    if len(declared) > 1:
        logger.warning(
            "%s: the %d protein chains are separate targets; write a complex as SEQUENCE:SEQUENCE",
            path, len(declared),
        )  # fmt: skip
    files = [found.alignment for found in declared if found.alignment not in ("", "empty")]
    if files:
        logger.warning("%s: alignments that headers name are not read: %s", path, ", ".join(files))
    return split_complexes(records)


def _declared_protein(record: FastaRecord) -> DeclaredMolecule | None:
    """Return the protein that a record's header declares, which its id precedes; None for other records."""
    if isinstance(record, UnsupportedRecord) and not isinstance(record, JoinedRecord):
        return None
    return declared_molecule(record.header.partition(" ")[2])


def split_complexes(records: Iterable[Query]) -> list[Query]:
    """Convert records of several chains, joined by `:`, to complexes; return the others unchanged."""
    return [split_chains(record) if isinstance(record, JoinedRecord) else record for record in records]


def is_unaligned_fasta(data: bytes) -> bool:
    """Return True if a file's content is FASTA of one or more unaligned sequences."""
    text = data.lstrip()
    return text.startswith(b">") and not _looks_like_alignment(text)


def job_format(text: bytes, name: str) -> str | None:
    """Return "table", "json" or "yaml"; None if the text may be FASTA or an alignment."""
    if text.startswith(b">"):
        return None
    if text.startswith((b"{", b"[")):
        return "json"
    if _YAML_START.match(text):
        return "yaml"
    if looks_like_table(text):
        return "table"
    return _JOB_FORMATS.get(_without_compression(name).suffix.lower())


def name_of_file(name: str) -> str:
    """Return the name of a job whose file states none: the file's, without suffixes."""
    return "stdin" if name == "-" else _without_compression(name).stem


def _without_compression(name: str) -> Path:
    """Return a file's path without the suffix of its compression."""
    path = Path(name)
    return path.with_suffix("") if path.suffix.lower() in SUFFIXES else path


def _looks_like_alignment(text: bytes) -> bool:
    """Return True if text that begins like FASTA is an alignment."""
    if not text.startswith(b">") or b"\n>" not in text:
        return False
    if declares_other_molecules(text[:_START_BYTES]):
        return False  # a SMILES string may have `-` and lower case
    if _GAP_IN_SEQUENCE.search(text):
        return True
    if not _LOWER_IN_SEQUENCE.search(text):
        return False
    headers_and_rows = (record.partition(b"\n")[::2] for record in text[1:].split(b"\n>"))
    records = [
        row for header, row in headers_and_rows if not is_annotation(header.decode("utf-8", "replace"))
    ]
    columns = {len(record.translate(None, _NOT_UPPER)) for record in records}
    return (
        len(records) > 1
        and len(columns) == 1
        and columns != {0}
        and not records[0].translate(None, _NOT_LOWER)
    )
