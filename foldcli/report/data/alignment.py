"""The report's view of an alignment: coverage, identity with the query, and the best hits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np

from features.cache.entry import read_entry
from model.chains import chain_names
from msa.alignments import stockholm
from msa.alignments.a3m import parse_chain_line
from msa.alignments.complex_a3m import (
    ComplexAlignment,
    first_row_name,
    is_complex_a3m,
    parse_a3m_rows,
    parse_complex_a3m,
)
from msa.alignments.files import Alignment, parse_alignment
from msa.base.errors import InputError
from msa.base.residues import RESTYPES
from msa.io.compression import read_bytes
from msa.io.molecules import is_annotation

MAX_HITS = 50
# maximum size of the coverage image; rows and columns of larger alignments are averaged
IMAGE_ROWS, IMAGE_COLUMNS = 200, 600
_CHUNK_ROWS = 4096
_GAP = ord("-")
# more rows of annotations than an A3M file has
_MAX_ANNOTATIONS = 8
# dots pad the insertions of other rows; NUL ends the A3M files that MMseqs2 writes
_PADDING = {ord("."): None, 0: None}
# letters of the residue codes in cached features
_CACHED_LETTERS = f"{RESTYPES}X-".encode()


@dataclass(frozen=True, eq=False)
class Coverage:
    """An image of an alignment of N columns, its rows sorted by identity with the query, highest first.

    Args:
        covered: int64 [N], number of rows with a residue at each position.
        identity: float64 [R], share of positions at which a row has the query's residue; mean over the
            alignment rows of each image row.
        occupancy: float64 [R, C], share of residues (not gaps) in each image cell.
        row_starts: int64 [R], index of each image row's first row in the sorted alignment.
    """

    depth: int
    covered: np.ndarray
    identity: np.ndarray
    occupancy: np.ndarray
    row_starts: np.ndarray


@dataclass(frozen=True)
class HitRow:
    """One line of the table of hits; None stands for unknown values.

    Args:
        identity: share of identical residues, 0 to 1.
        query_span: first and last position in the query, from 1.
        target_span: first and last position in the target, from 1.
        aligned: query and target, of equal length, with `-` for gaps.
    """

    name: str
    identity: float
    evalue: str | None
    bits: str | None
    query_span: tuple[int, int] | None
    target_span: tuple[int, int] | None
    aligned: tuple[str, str] | None


@dataclass(frozen=True, eq=False)
class AlignmentSummary:
    """The parts of an alignment that a report shows."""

    coverage: Coverage
    hits: tuple[HitRow, ...]
    hit_count: int


def read_alignment_summary(path: Path, m8: Path | None, chains: Sequence[str]) -> AlignmentSummary:
    """Read an alignment, or an entry of the feature cache, and the table of hits.

    Args:
        path: A3M, ColabFold's A3M of a complex, Stockholm, aligned FASTA, or .safetensors.
        m8: table of hits, best first; for a complex, one chain after another. If it is None, the hits of a
            single chain are the rows after the query, and a complex has none.
        chains: sequences of the target's chains; X for unknown residues.

    Raises:
        InputError: a file is not an alignment or a table of hits, or the alignment has other chains or
            another length than the target.
    """
    letters, rows = _read_rows(path, chains)
    length = sum(map(len, chains))
    if letters.shape[1] != length:
        raise InputError(f"an alignment of {letters.shape[1]} residues; the target has {length}", path)
    coverage = compute_coverage(letters)
    query = rows[0][1] if rows else ""
    if m8 is None:
        hits = tuple(_hit_from_row(header, row, query) for header, row in rows[1:])
        return AlignmentSummary(coverage, hits, len(letters) - 1)
    lines = m8.read_text(errors="replace").splitlines()
    if len(chains) > 1:
        return AlignmentSummary(coverage, _hits_of_complex(lines, path, m8, chains), len(lines))
    rows_by_key = {_row_key(header): row for header, row in rows[1:]}
    hits = tuple(
        _hit_from_line(line, rows_by_key, query, m8, number)
        for number, line in enumerate(lines[:MAX_HITS], 1)
    )
    return AlignmentSummary(coverage, hits, len(lines))


def _hits_of_complex(lines: Sequence[str], path: Path, m8: Path, chains: Sequence[str]) -> tuple[HitRow, ...]:
    """Return the best hits of all chains, from lines whose query names end in the chain, as NAME_A."""
    rows = _chain_rows(path)
    queries = {
        name: next((query for query in rows if _is_same_chain(chain, query)), "")
        for name, chain in zip(chain_names(len(chains)), chains, strict=True)
    }
    hits = []
    for number, line in enumerate(lines, 1):
        name = line.partition("\t")[0].rpartition("_")[2]
        query = queries.get(name, "")
        hit = _hit_from_line(line, rows.get(query, {}), query, m8, number)
        hits.append(replace(hit, name=f"{name}: {hit.name}"))
    return tuple(sorted(hits, key=lambda hit: float(hit.evalue or "inf"))[:MAX_HITS])


def _chain_rows(path: Path) -> dict[str, dict[tuple[str, ...], str]]:
    """Return the unpaired rows of each chain's query in the A3M file of a complex, by `_row_key`."""
    data = read_bytes(path)
    chain_line = parse_chain_line(data, str(path))
    if chain_line is None:
        raise InputError("no lengths of the complex's chains, such as #76,56<TAB>1,1", path, 1)
    lengths, _ = chain_line
    ends = list(accumulate(lengths))
    rows: dict[str, dict[tuple[str, ...], str]] = {}
    queries: dict[int, str] = {}
    for header, text in parse_a3m_rows(data):
        # an unpaired row has gaps for the chains before its own, and these have no insertions
        start = len(text) - len(text.lstrip("-"))
        number = next((index for index, end in enumerate(ends) if start < end), 0)
        part = text[ends[number] - lengths[number] :][: len(text) - (ends[-1] - lengths[number])]
        if header == first_row_name(number):
            queries[number] = part
            rows[part] = {}
        elif number in queries:
            rows[queries[number]][_row_key(header)] = part
    return rows


def compute_coverage(letters: np.ndarray) -> Coverage:
    """Compute the image of an alignment.

    Args:
        letters: uint8 [rows, N], upper-case ASCII letters and `-`; the query first.
    """
    depth, length = letters.shape
    chunks = [letters[i : i + _CHUNK_ROWS] for i in range(0, depth, _CHUNK_ROWS)]
    identity = np.concatenate([(chunk == letters[0]).mean(1) for chunk in chunks])
    covered = np.sum([(chunk != _GAP).sum(0) for chunk in chunks], axis=0)
    # a stable sort keeps the query before other rows of identity 1
    order = np.argsort(-identity, kind="stable")
    row_starts = np.unique(np.linspace(0, depth, min(depth, IMAGE_ROWS), endpoint=False).astype(np.int64))
    column_starts = np.unique(
        np.linspace(0, length, min(length, IMAGE_COLUMNS), endpoint=False).astype(np.int64)
    )
    widths = np.diff(np.append(column_starts, length))
    occupancy, mean_identity = [], []
    for start, end in zip(row_starts, np.append(row_starts[1:], depth), strict=True):
        is_residue = letters[order[start:end]] != _GAP
        occupancy.append(np.add.reduceat(is_residue.mean(0), column_starts) / widths)
        mean_identity.append(identity[order[start:end]].mean())
    return Coverage(depth, covered, np.array(mean_identity), np.array(occupancy), row_starts)


def _read_rows(path: Path, chains: Sequence[str]) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Return letters, uint8 [rows, N], and the result of `_first_rows` if the file has headers."""
    if path.suffix == ".safetensors":
        return np.frombuffer(_CACHED_LETTERS, np.uint8)[read_entry(path)["msa"]], []
    data = read_bytes(path)
    if is_complex_a3m(data, str(path)):
        return _letters_of_complex(parse_complex_a3m(data, str(path)), chains, path), []
    alignment = parse_alignment(data, str(path))
    return alignment.letters, _first_rows(data, alignment)


def _letters_of_complex(alignment: ComplexAlignment, chains: Sequence[str], path: Path) -> np.ndarray:
    """Return the rows of a complex over all chains, uint8 [rows, N]: query, paired and unpaired rows."""
    numbers = []
    for chain in chains:
        matching = [number for number, query in enumerate(alignment.queries) if _is_same_chain(chain, query)]
        if not matching:
            raise InputError("an alignment of other chains than the target's", path)
        # an unknown residue matches any, so equal sequences come first
        numbers.append(min(matching, key=lambda number: alignment.queries[number] != chain))
    parts = [np.concatenate([alignment.paired[number].letters for number in numbers], axis=1)]
    for number, unpaired in enumerate(alignment.unpaired):
        rows = unpaired.letters[unpaired.query == alignment.queries[number] :]
        if alignment.order is not None:
            # chains have their complete alignments; the network gets only the rows that are not paired
            paired_rows = set(map(bytes, alignment.paired[number].letters))
            rows = rows[[bytes(row) not in paired_rows for row in rows]]
        blocks = [
            rows if other == number else np.full((len(rows), len(alignment.queries[other])), _GAP, np.uint8)
            for other in numbers
        ]
        parts.append(np.concatenate(blocks, axis=1))
    return np.concatenate(parts)


def _is_same_chain(chain: str, query: str) -> bool:
    """Return True if a chain has the residues of a query, except where its own are unknown."""
    return len(chain) == len(query) and all(a in (b, "X") for a, b in zip(chain, query, strict=True))


def _first_rows(data: bytes, alignment: Alignment) -> list[tuple[str, str]]:
    """Return (header, row) of the query and the first hits; rows of A3M files include their insertions."""
    count, letters = MAX_HITS + 1, alignment.letters
    rows = []
    if not data.lstrip().startswith(stockholm.START):
        most = count + _MAX_ANNOTATIONS
        for record in data[data.find(b">") + 1 :].split(b"\n>", most)[:most]:
            header, _, body = record.decode("utf-8", "replace").partition("\n")
            if not is_annotation(header):
                rows.append((header.strip(), "".join(body.translate(_PADDING).split())))
        rows = rows[:count]
        if all(sum(c.isupper() or c == "-" for c in row) == letters.shape[1] for _, row in rows):
            return rows
    # Stockholm and aligned FASTA: the columns of the query only
    return [
        (name, row.tobytes().decode()) for name, row in zip(alignment.names, letters[:count], strict=False)
    ]


def _hit_from_line(
    line: str, rows_by_key: dict[tuple[str, ...], str], query: str, path: Path, number: int
) -> HitRow:
    """Parse a line of NAME.m8, and add the alignment if its row is present."""
    fields = line.split("\t")
    try:
        name, identity, mismatches, gaps = fields[1], float(fields[2]), int(fields[4]), int(fields[5])
        qstart, qend, tstart, tend = map(int, fields[6:10])
        evalue, bits = fields[10:12]
    except (IndexError, ValueError) as error:
        raise InputError("not a line of hits", path, number) from error
    aligned = None
    if (row := rows_by_key.get((name, str(qstart - 1), str(qend - 1)))) is not None:
        aligned = pair_with_query(query, row)
    elif not mismatches and not gaps and query:
        # the alignment has no row for this hit, because it repeats the query
        aligned = (query[qstart - 1 : qend],) * 2
    return HitRow(name, identity, evalue, bits, (qstart, qend), (tstart, tend), aligned)


def _hit_from_row(header: str, row: str, query: str) -> HitRow:
    """Return a row of an alignment as a hit; headers written by MMseqs2 have E-value and bit score."""
    aligned = pair_with_query(query, row)
    positions = [i for i, c in enumerate(c for c in row if not c.islower()) if c != "-"]
    query_span = (positions[0] + 1, positions[-1] + 1) if positions else None
    if (fields := _parse_mmseqs_header(header)) is not None:
        name, bits, identity, evalue, tstart, tend = fields
        return HitRow(name, identity, evalue, bits, query_span, (tstart, tend), aligned)
    pairs = [(a, b) for a, b in zip(*aligned, strict=True) if a != "-" != b]
    identity = sum(a == b for a, b in pairs) / len(pairs) if pairs else 0.0
    return HitRow(header, identity, None, None, query_span, None, aligned)


def _parse_mmseqs_header(header: str) -> tuple[str, str, float, str, int, int] | None:
    """Return name, bits, identity, E-value, target start and end (from 1); None for other headers."""
    fields = header.split("\t")
    try:
        name, bits, identity, evalue = fields[0], fields[1], float(fields[2]), fields[3]
        float(evalue)
        return name, bits, identity, evalue, int(fields[7]) + 1, int(fields[8]) + 1
    except (IndexError, ValueError):
        return None


def _row_key(header: str) -> tuple[str, ...]:
    """Return name and first and last query position (from 0, as text) of a row of `foldcli search`."""
    fields = header.split("\t")
    return (fields[0], *fields[4:6])


def pair_with_query(query: str, row: str) -> tuple[str, str]:
    """Return query and target of an A3M row as lines of equal length, cut to the part that both cover."""
    query_letters, target_letters = [], []
    residues = iter(query)
    for letter in row:
        query_letters.append("-" if letter.islower() else next(residues, "-"))
        target_letters.append(letter.upper())
    target = "".join(target_letters)
    start, end = len(target) - len(target.lstrip("-")), len(target.rstrip("-"))
    return "".join(query_letters)[start:end], target[start:end]
