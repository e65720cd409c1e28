"""Tables of queries, as ColabFold reads them."""

import csv
import io
from collections.abc import Sequence

from foldcli.inputs.formats.json_with_lines import decode_utf8
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord, clean_header, clean_sequence, make_record

_USED_COLUMNS = ("id", "sequence")
# columns in which ColabFold expects names of files; any other column is ignored, as by ColabFold
_FILE_COLUMNS = {"a3mpath": "an alignment", "templatepath": "a template"}


def looks_like_table(text: bytes) -> bool:
    """Return True if the first line names the columns of a table of queries."""
    return set(_USED_COLUMNS) <= set(_read_column_names(text[:4096])[1])


def parse_table(data: bytes, path: str) -> list[FastaRecord]:
    """Parse a ColabFold table, separated by commas or tabs; only the columns id and sequence are used.

    Returns:
        One record per row, see `make_record`; whitespace in an id becomes `_`.
    """
    return [_table_record(row, path, line) for line, row in table_rows(data, path)]


def table_rows(
    data: bytes, path: str, used: Sequence[str] = _USED_COLUMNS
) -> list[tuple[int, dict[str, str]]]:
    """Return the line and the values by column of each row of a table with these columns and any others.

    Raises:
        InputError: a column is missing or repeated, or a row has another number of fields; names the line.
    """
    text = decode_utf8(data, path)
    if not text.strip():
        raise InputError("empty file", path)
    separator, names = _read_column_names(text.encode())
    repeated = [name for name in (*used, *_FILE_COLUMNS) if names.count(name) > 1]
    if repeated:
        raise InputError(f"two columns have the name {repeated[0]!r}", path, 1)
    missing = [name for name in used if name not in names]
    if missing:
        expected = " and ".join(f"`{name}`" for name in used)
        raise InputError(f"no column {missing[0]!r}: the first line must name {expected}", path, 1)
    # strict, so that an unclosed quotation mark is an error instead of quoting the rest of the file
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows = []
    next_line, header_seen = 1, False
    try:
        for row in reader:
            line, next_line = next_line, reader.line_num + 1
            if not any(value.strip() for value in row):
                continue
            if header_seen:
                if len(row) != len(names):
                    reason = f"{len(row)} fields, but the first line has {len(names)}"
                    raise InputError(reason, path, line)
                rows.append((line, dict(zip(names, row, strict=True))))
            header_seen = True
    except csv.Error as error:
        raise InputError(f"not a table: {error}", path, next_line) from None
    if not rows:
        raise InputError("no row after the column names", path)
    return rows


def _read_column_names(text: bytes) -> tuple[str, list[str]]:
    """Return the separator and the lower-case column names in the first line of a table."""
    first = text.lstrip().partition(b"\n")[0].decode("utf-8", "replace").strip().lower()
    separator = "\t" if "\t" in first else ","
    return separator, [name.strip().strip('"') for name in first.split(separator)]


def _table_record(values: dict[str, str], path: str, line: int) -> FastaRecord:
    name = row_name(values, path, line)
    return make_record(name, *clean_sequence(values["sequence"], path, line), path, line)


def row_name(values: dict[str, str], path: str, line: int) -> str:
    """Return the name of a query in a row; whitespace in its id becomes `_`.

    Raises:
        InputError: the row has no id, or names a file.
    """
    for name, description in _FILE_COLUMNS.items():
        if values.get(name, "").strip():
            raise InputError(f"{name} names {description}: not supported in a table", path, line)
    name = make_identifier(values["id"])
    if not name:
        raise InputError("no id", path, line)
    return name


def make_identifier(name: str) -> str:
    """Return a name as one word without control characters."""
    return clean_header("_".join(name.split()))
