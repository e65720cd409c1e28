"""Queries: sequences, alignments, saved profiles, tables and jobs, told apart by what a file holds.

An alignment or a saved profile is one query that is searched with a profile; a FASTA file has a query a
record, ColabFold's table one a row, AlphaFold 3's JSON and Boltz's YAML one a job. A file that shows nothing
of what it is has the format that its name ends in. What begins like FASTA is an alignment when there are
several records and

- a gap is in one of them, or
- the first is in upper case, another has lower case as well, and all have as many upper-case letters.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from foldcli.inputs.csv_table import looks_like_table, parse_table
from msa.alphabet import encode
from msa.errors import InputError
from msa.io import stockholm
from msa.io.alignments import Alignment, parse_alignment
from msa.io.compression import SUFFIXES, read_bytes
from msa.io.fasta import UTF8_MARK, FastaRecord, read_records
from msa.io.mmseqs_files import is_mmseqs
from msa.io.query_columns import GAP as GAP_LETTER
from msa.io.saved_profiles import is_profile_archive, parse_profiles
from msa.profile.matrices import DEFAULT_MATRIX
from msa.profile.pssm import ProfileQuery

_GAP_IN_SEQUENCE = re.compile(rb"^[^>#\n]*[-.]", re.MULTILINE)
_LOWER_IN_SEQUENCE = re.compile(rb"^[^>#\n]*[a-z]", re.MULTILINE)
_NEXT_STOCKHOLM = re.compile(rb"^# STOCKHOLM", re.MULTILINE)
# the first line of a Boltz file that is no comment; `#` also begins Stockholm and A3M files
_YAML_START = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\r?\n)*(?:---\s+)?(?:version|sequences)[ \t]*:")
_FORMATS = {".csv": "table", ".tsv": "table", ".json": "json", ".yaml": "yaml", ".yml": "yaml"}
_NOT_UPPER = bytes(byte for byte in range(256) if not 65 <= byte <= 90)
_NOT_LOWER = bytes(byte for byte in range(256) if not 97 <= byte <= 122)


def read_queries(
    path: str | os.PathLike[str], comp_bias_corr: bool = True, matrix: str = DEFAULT_MATRIX
) -> list[FastaRecord]:
    """The queries in a file; compression is recognised by content.

    Args:
        path: FASTA, A3M, Stockholm, aligned FASTA, saved profiles, ColabFold's table, AlphaFold 3's JSON or
            Boltz's YAML, or the name of an MMseqs2 database of sequences or profiles; `-` is standard input.
        comp_bias_corr: correct the profile of an alignment for local composition; see `family_profile`.
        matrix: the substitution matrix of the search.

    Returns:
        FastaRecord of a sequence, ProfileQuery of an alignment of several different rows and of a profile,
        UnsupportedRecord of what is more or other than one protein chain.

    Raises:
        InputError: none of these, or one with an error; names file, line and column as far as they are known.
        OSError: the file cannot be read.
    """
    if os.fspath(path) != "-" and is_mmseqs(path):
        from msa.io.mmseqs_records import read_mmseqs_queries

        return list(read_mmseqs_queries(path, comp_bias_corr, matrix))
    name, data = os.fspath(path), read_bytes(path)
    if is_profile_archive(data):
        return list(parse_profiles(data, name, matrix))
    data = data.removeprefix(UTF8_MARK)
    text = data.lstrip()
    kind = _format(text, name)
    if kind is not None:
        return [_with_profile(record, comp_bias_corr, matrix) for record in _records(kind, data, name)]
    if text.startswith((stockholm.START, b"#")):
        second = _NEXT_STOCKHOLM.search(text, 1)
        if second is not None:
            line = data.count(b"\n", 0, len(data) - len(text) + second.start()) + 1
            raise InputError("a second alignment begins here: give each in a file of its own", name, line)
        return [alignment_query(parse_alignment(data, name), comp_bias_corr, matrix)]
    if _is_alignment(text):
        try:
            return [alignment_query(parse_alignment(data, name), comp_bias_corr, matrix)]
        except InputError as error:
            reason = f"gaps or insertions make this an alignment, but {error.reason}"
            raise InputError(reason, name, error.line, error.column) from None
    return list(read_records(BytesIO(data), name))


def alignment_query(
    alignment: Alignment, comp_bias_corr: bool = True, matrix: str = DEFAULT_MATRIX
) -> FastaRecord:
    """The first row of an alignment with the profile of all, made as iterations make one of their hits.

    Args:
        alignment: its rows' insertions count for nothing.
        comp_bias_corr, matrix: see `family_profile`.

    Returns:
        a ProfileQuery, or the first row alone where no other says anything new.
    """
    # sequences, which most queries are, need no numba
    from msa.profile.family_profile import GAP, distinct_rows, family_profile
    from msa.search.families import MAX_MEMBER_IDENTITY

    header, sequence = alignment.names[0], alignment.query
    rows = encode(alignment.letters.tobytes()).reshape(alignment.letters.shape)
    rows[alignment.letters == GAP_LETTER] = GAP
    distinct = distinct_rows(rows, MAX_MEMBER_IDENTITY)
    if len(distinct) == 1:
        return FastaRecord(header, sequence)
    made_from = f"an alignment of {len(rows):,} rows, {len(distinct):,} of them different"
    return ProfileQuery(header, sequence, family_profile(distinct, comp_bias_corr, matrix), made_from)


def holds_sequences(data: bytes) -> bool:
    """Whether a file's content is FASTA of unaligned sequences, which a single sequence is too."""
    text = data.removeprefix(UTF8_MARK).lstrip()
    return text.startswith(b">") and not _is_alignment(text)


def _format(text: bytes, name: str) -> str | None:
    """What a file is if it is neither FASTA nor an alignment."""
    if text.startswith(b">"):
        return None
    if text.startswith((b"{", b"[")):
        return "json"
    if _YAML_START.match(text):
        return "yaml"
    if looks_like_table(text):
        return "table"
    return _FORMATS.get(_plain_path(name).suffix.lower())


def _plain_path(name: str) -> Path:
    """A file's path without the suffix of its compression."""
    path = Path(name)
    return path.with_suffix("") if path.suffix.lower() in SUFFIXES else path


def _records(kind: str, data: bytes, name: str) -> Iterable[FastaRecord]:
    if kind == "table":
        return parse_table(data, name)
    if not data.strip():
        raise InputError("empty file", name)
    if kind == "json":
        from foldcli.inputs.alphafold3_json import parse_alphafold3

        return parse_alphafold3(data, name)
    from foldcli.inputs.boltz_yaml import parse_boltz

    return parse_boltz(data, name, "stdin" if name == "-" else _plain_path(name).stem)


def _with_profile(record: FastaRecord, comp_bias_corr: bool, matrix: str) -> FastaRecord:
    """A chain that comes with its alignment as the query that an alignment is, under its own name."""
    from foldcli.inputs.jobs import AlignedRecord

    if not isinstance(record, AlignedRecord):
        return record
    return replace(alignment_query(record.alignment, comp_bias_corr, matrix), header=record.header)


def _is_alignment(text: bytes) -> bool:
    """Whether text that begins like FASTA is an alignment."""
    if not text.startswith(b">") or b"\n>" not in text:
        return False
    if _GAP_IN_SEQUENCE.search(text):
        return True
    if not _LOWER_IN_SEQUENCE.search(text):
        return False
    records = [record.partition(b"\n")[2] for record in text.split(b"\n>")]
    columns = {len(record.translate(None, _NOT_UPPER)) for record in records}
    return len(columns) == 1 and columns != {0} and not records[0].translate(None, _NOT_LOWER)
