"""What the report shows of an alignment: how deep it is where, how like the query, and its best hits."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msa.errors import InputError
from msa.io import stockholm

if TYPE_CHECKING:
    import numpy as np

    from msa.io.alignments import Alignment

MOST_HITS = 50
# of the picture: rows and columns of the alignment are put together to so many
PICTURE_ROWS, PICTURE_COLUMNS = 200, 600
_GAP = ord("-")
# dots pad the insertions of other rows; NUL ends the A3M files that MMseqs2 writes
_PADDING = {ord("."): None, 0: None}
# the codes of cached features, as HHblits numbers residues: X is 20, a gap 21
_CACHED_LETTERS = b"ACDEFGHIKLMNPQRSTVWYX-"


@dataclass(frozen=True, eq=False)
class Coverage:
    """An alignment seen from afar, rows most like the query first.

    Args:
        depth: rows, the query included.
        covered: int64 [N], rows with a residue at each position.
        identity: float64 [R], share of the query's residues that a row has, mean of each picture row.
        occupancy: float64 [R, C], share of residues (not gaps) in each cell.
        rows: picture row → its first row of the sorted alignment, int64 [R].
    """

    depth: int
    covered: "np.ndarray"
    identity: "np.ndarray"
    occupancy: "np.ndarray"
    rows: "np.ndarray"


@dataclass(frozen=True)
class Hit:
    """One line of the table of hits; positions count from 1, None is not known."""

    name: str
    identity: float
    evalue: str | None
    bits: str | None
    query: tuple[int, int] | None
    target: tuple[int, int] | None
    # query and target, equally long, `-` for gaps
    aligned: tuple[str, str] | None


@dataclass(frozen=True, eq=False)
class AlignmentView:
    """What the report shows of an alignment."""

    coverage: Coverage
    hits: tuple[Hit, ...]
    hits_in_all: int


def view_alignment(path: Path, m8: Path | None, count: int) -> AlignmentView:
    """Read an alignment (or an entry of the feature cache) and the table of hits beside it.

    Args:
        path: A3M, Stockholm, aligned FASTA, or .safetensors.
        m8: the hits, best first; without it the rows that follow the query are the hits.
        count: residues of the target.

    Raises:
        InputError: not an alignment, or one of another length.
        OSError: it cannot be read.
    """
    letters, rows = _read(path)
    if letters.shape[1] != count:
        raise InputError(f"an alignment of {letters.shape[1]} residues; the target has {count}", path)
    coverage = cover(letters)
    query = rows[0][1] if rows else ""
    if m8 is None:
        hits = tuple(_hit_of_row(header, row, query) for header, row in rows[1:])
        return AlignmentView(coverage, hits, len(letters) - 1)
    lines = m8.read_text(errors="replace").splitlines()
    by_place = {_place(header): row for header, row in rows[1:]}
    hits = tuple(_hit_of_line(line, by_place, query, m8, i) for i, line in enumerate(lines[:MOST_HITS], 1))
    return AlignmentView(coverage, hits, len(lines))


def cover(letters: "np.ndarray") -> Coverage:
    """The picture of an alignment.

    Args:
        letters: uint8 [rows, N], upper-case ASCII letters and `-`; the query first.
    """
    import numpy as np

    depth, count = letters.shape
    chunks = range(0, depth, 4096)
    identity = np.concatenate([(letters[i : i + 4096] == letters[0]).mean(1) for i in chunks])
    covered = np.sum([(letters[i : i + 4096] != _GAP).sum(0) for i in chunks], axis=0)
    # the query itself stays first among equals
    order = np.argsort(-identity, kind="stable")
    rows = np.unique(np.linspace(0, depth, min(depth, PICTURE_ROWS), endpoint=False).astype(np.int64))
    columns = np.unique(np.linspace(0, count, min(count, PICTURE_COLUMNS), endpoint=False).astype(np.int64))
    widths = np.diff(np.append(columns, count))
    occupancy, means = [], []
    for start, end in zip(rows, np.append(rows[1:], depth), strict=True):
        block = letters[order[start:end]] != _GAP
        occupancy.append(np.add.reduceat(block.mean(0), columns) / widths)
        means.append(identity[order[start:end]].mean())
    return Coverage(depth, covered, np.array(means), np.array(occupancy), rows)


def _read(path: Path) -> "tuple[np.ndarray, list[tuple[str, str]]]":
    """Letters [rows, N], and (header, row) as far as the file has them; rows of A3M with insertions."""
    import numpy as np

    if path.suffix == ".safetensors":
        from features.cache import read_entry

        return np.frombuffer(_CACHED_LETTERS, np.uint8)[read_entry(path)["msa"]], []
    from msa.io.alignments import parse_alignment
    from msa.io.compression import read_bytes

    data = read_bytes(path)
    alignment = parse_alignment(data, str(path))
    return alignment.letters, _rows(data, alignment)


def _rows(data: bytes, alignment: "Alignment") -> list[tuple[str, str]]:
    """(header, row) of the query and the first hits, with the insertions of the rows if the file is A3M."""
    first, letters = MOST_HITS + 1, alignment.letters
    rows = []
    if not data.lstrip().startswith(stockholm.START):
        for record in data[data.find(b">") + 1 :].split(b"\n>", first)[:first]:
            header, _, body = record.decode("utf-8", "replace").partition("\n")
            rows.append((header.strip(), "".join(body.translate(_PADDING).split())))
        if all(sum(c.isupper() or c == "-" for c in row) == letters.shape[1] for _, row in rows):
            return rows
    # Stockholm and aligned FASTA: without what lies between the query's columns
    return [
        (name, row.tobytes().decode()) for name, row in zip(alignment.names, letters[:first], strict=False)
    ]


def _hit_of_line(line: str, rows: dict[tuple[str, ...], str], query: str, path: Path, number: int) -> Hit:
    """A line of NAME.m8, with the alignment if its row is there."""
    fields = line.split("\t")
    try:
        name, identity, mismatches, gaps = fields[1], float(fields[2]), int(fields[4]), int(fields[5])
        qstart, qend, tstart, tend = map(int, fields[6:10])
        evalue, bits = fields[10:12]
    except (IndexError, ValueError) as error:
        raise InputError("not a line of hits", path, number) from error
    aligned = None
    if (row := rows.get((name, str(qstart - 1), str(qend - 1)))) is not None:
        aligned = pair_with_query(query, row)
    elif not mismatches and not gaps and query:
        # a row that repeats the query is left out of the alignment
        aligned = (query[qstart - 1 : qend],) * 2
    return Hit(name, identity, evalue, bits, (qstart, qend), (tstart, tend), aligned)


def _hit_of_row(header: str, row: str, query: str) -> Hit:
    """A row of an alignment as a hit; headers as MMseqs2 writes them tell E-value and bits."""
    aligned = pair_with_query(query, row)
    covered = [i for i, c in enumerate(c for c in row if not c.islower()) if c != "-"]
    where = (covered[0] + 1, covered[-1] + 1) if covered else None
    if (told := _mmseqs_fields(header)) is not None:
        name, bits, identity, evalue, tstart, tend = told
        return Hit(name, identity, evalue, bits, where, (tstart, tend), aligned)
    pairs = [(a, b) for a, b in zip(*aligned, strict=True) if a != "-" != b]
    identity = sum(a == b for a, b in pairs) / len(pairs) if pairs else 0.0
    return Hit(header, identity, None, None, where, None, aligned)


def _mmseqs_fields(header: str) -> tuple[str, str, float, str, int, int] | None:
    """Name, bits, identity, E-value, target start and end (from 1) of a header as MMseqs2 writes it."""
    fields = header.split("\t")
    try:
        name, bits, identity, evalue = fields[0], fields[1], float(fields[2]), fields[3]
        float(evalue)
        return name, bits, identity, evalue, int(fields[7]) + 1, int(fields[8]) + 1
    except (IndexError, ValueError):
        return None


def _place(header: str) -> tuple[str, ...]:
    """Name and first and last position in the query (from 0) of a row, as `foldcli search` writes them."""
    fields = header.split("\t")
    return (fields[0], *fields[4:6])


def pair_with_query(query: str, row: str) -> tuple[str, str]:
    """Query and target of an A3M row, equally long, without the ends that the target lacks."""
    above, below = [], []
    residues = iter(query)
    for letter in row:
        above.append("-" if letter.islower() else next(residues, "-"))
        below.append(letter.upper())
    text = "".join(below)
    start, end = len(text) - len(text.lstrip("-")), len(text.rstrip("-"))
    return "".join(above)[start:end], text[start:end]
