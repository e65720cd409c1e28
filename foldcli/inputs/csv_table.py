"""Tables of queries as ColabFold takes them: a line of column names, then an id and a sequence a row."""

import csv
import io

from foldcli.inputs.json_with_lines import decode
from msa.errors import InputError
from msa.io.fasta import FastaRecord, clean_sequence, make_record

# ColabFold's columns of files that take part in a prediction; others it does not look at either
_FILES = {"a3mpath": "an alignment", "templatepath": "a template"}


def column_names(text: bytes) -> tuple[str, list[str]]:
    """The separator and the column names, in lower case, of the first line of a table."""
    first = text.lstrip().partition(b"\n")[0].decode("utf-8", "replace").strip().lower()
    separator = "\t" if "\t" in first else ","
    return separator, [name.strip().strip('"') for name in first.split(separator)]


def looks_like_table(text: bytes) -> bool:
    """Whether the first line names the columns that a table of queries has."""
    return {"id", "sequence"} <= set(column_names(text[:4096])[1])


def parse_table(data: bytes, path: str) -> list[FastaRecord]:
    """The queries in a table separated by commas or tabs; columns but id and sequence are not looked at.

    Args:
        data: decompressed.
        path: what errors call it.

    Returns:
        A record a row; blanks in an id become `_`. Rows of complexes are UnsupportedRecords.

    Raises:
        InputError: a column, an id or a sequence is missing, a character is no residue, a row names a file
            (`a3mpath`, `templatepath`); names the line.
    """
    text = decode(data, path)
    if not text.strip():
        raise InputError("empty file", path)
    separator, names = column_names(data.removeprefix(b"\xef\xbb\xbf"))
    missing = [name for name in ("id", "sequence") if name not in names]
    if missing:
        raise InputError(f"no column {missing[0]!r}: the first line must name `id` and `sequence`", path, 1)
    # strict: a quotation mark that is never closed is an error and does not swallow the rest
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    records = []
    begins, header_seen = 1, False
    try:
        for row in reader:
            line, begins = begins, reader.line_num + 1
            if not any(field.strip() for field in row):
                continue
            if header_seen:
                records.append(_record(dict(zip(names, row, strict=False)), len(row), len(names), path, line))
            header_seen = True
    except csv.Error as error:
        raise InputError(f"not a table: {error}", path, begins) from None
    if not records:
        raise InputError("no row after the column names", path)
    return records


def _record(fields: dict[str, str], found: int, expected: int, path: str, line: int) -> FastaRecord:
    if found != expected:
        raise InputError(f"{found} fields where the first line has {expected}", path, line)
    for name, what in _FILES.items():
        if fields.get(name, "").strip():
            raise InputError(f"{name} names {what}, which is not read from a table", path, line)
    identifier = "_".join(fields["id"].split())
    if not identifier:
        raise InputError("no id", path, line)
    sequence = clean_sequence(fields["sequence"], path, line)
    return make_record(identifier, sequence, path, line)
