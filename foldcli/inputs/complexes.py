"""Complexes: targets of several protein chains, from records, from a table of pairs, or all against all."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from foldcli.inputs.formats.json_with_lines import decode_utf8
from model.chains import chain_names
from msa.base.errors import InputError
from msa.io.compression import read_bytes
from msa.io.fasta import FastaRecord, JoinedRecord, UnsupportedRecord

if TYPE_CHECKING:
    from foldcli.inputs.failures import Failures


@dataclass(frozen=True)
class Complex:
    """A target of several protein chains.

    Args:
        chains: the chains in the order of the input; copies are repeated.
        stop_codons: see FastaRecord; the sum over all distinct chains.
        cyclic: names of the chains that are cyclic, such as "A".
        templates: the same for each chain, see FastaRecord; empty if the file does not say.
    """

    name: str
    chains: tuple[FastaRecord, ...]
    stop_codons: int = field(default=0, kw_only=True, compare=False)
    seeds: tuple[int, ...] = field(default=(), kw_only=True, compare=False)
    cyclic: tuple[str, ...] = field(default=(), kw_only=True, compare=False)
    templates: tuple[tuple[Any, ...] | None, ...] = field(default=(), kw_only=True, compare=False)
    path: str = field(default="", kw_only=True, compare=False)
    line: int | None = field(default=None, kw_only=True, compare=False)

    @property
    def id(self) -> str:
        """The name; other kinds of queries call it `id`."""
        return self.name

    @property
    def sequence(self) -> str:
        """The sequences of all chains, joined by `:`."""
        return ":".join(chain.sequence for chain in self.chains)

    def distinct_chains(self) -> dict[str, FastaRecord]:
        """Return the first copy of each distinct sequence, by its chain name, such as A."""
        by_sequence: dict[str, tuple[str, FastaRecord]] = {}
        for name, chain in zip(chain_names(len(self.chains)), self.chains, strict=True):
            by_sequence.setdefault(chain.sequence, (name, chain))
        return dict(by_sequence.values())

    @property
    def residues(self) -> int:
        """The number of residues of all chains."""
        return sum(len(chain.sequence) for chain in self.chains)


def chain_query(chain: FastaRecord) -> FastaRecord:
    """Return the query that a chain is searched with; the same for equal chains of all targets."""
    return replace(chain, header="query")


def split_chains(record: JoinedRecord) -> Complex:
    """Split the sequence of a record at each `:` into the chains of a complex."""
    location = record.path, record.line
    chains = [FastaRecord("", sequence, location=location) for sequence in record.sequence.split(":")]
    return Complex(
        record.id,
        name_chains(record.id, chains),
        stop_codons=record.stop_codons,
        path=record.path,
        line=record.line,
    )


def name_chains(name: str, chains: Sequence[FastaRecord]) -> tuple[FastaRecord, ...]:
    """Return the chains of a complex with headers such as `name_A`; copies get the header of the first."""
    renamed: dict[FastaRecord, FastaRecord] = {}
    for letter, chain in zip(chain_names(len(chains)), chains, strict=True):
        renamed.setdefault(chain, replace(chain, header=f"{name}_{letter}"))
    return tuple(renamed[chain] for chain in chains)


def refuse_complexes(
    targets: Iterable[tuple[str, FastaRecord | Complex]],
) -> list[tuple[str, FastaRecord]]:
    """Replace complexes by UnsupportedRecords, so that only these targets fail."""
    return [
        (
            name,
            UnsupportedRecord(
                target.id,
                target.sequence,
                f"{len(target.chains)} protein chains",
                target.path,
                target.line,
                supported="a search of a part of a database takes single chains",
            ),
        )
        if isinstance(target, Complex)
        else (name, target)
        for name, target in targets
    ]


def pair_all(first: Sequence[FastaRecord], second: Sequence[FastaRecord]) -> list[Complex]:
    """Return the complexes of each chain in `first` with each chain in `second`.

    If both lists contain two chains, their pair occurs in both orders; it is returned once.
    """
    pairs: dict[frozenset[tuple[str, str]], Complex] = {}
    for left in first:
        for right in second:
            key = frozenset(((left.id, left.sequence), (right.id, right.sequence)))
            pairs.setdefault(key, _join_chains((left, right)))
    return list(pairs.values())


def read_pairs(
    path: str | os.PathLike[str], chains: Mapping[str, FastaRecord], failures: "Failures"
) -> list[Complex]:
    """Read a table of complexes, with the names of two or more chains in each row.

    Names are separated by tabs or commas; a repeated name is a copy. Empty lines and lines that begin with
    `#` are ignored. A row with an unknown name, or with only one name, is added to `failures`.

    Args:
        path: the table; `-` is standard input. Compression is recognised by content.
        chains: the chains by their ids.
        failures: failures of the run.

    Returns:
        The complexes in the order of the table, named as A_and_B.

    Raises:
        InputError: the file has no rows, or is not text.
    """
    file = os.fspath(path)
    text = decode_utf8(read_bytes(path), file)
    complexes: list[Complex] = []
    num_rows = 0
    for line, content in enumerate(text.splitlines(), 1):
        if not content.strip() or content.startswith("#"):
            continue
        num_rows += 1
        try:
            complexes.append(_read_pair(content, chains, file, line))
        except InputError as error:
            failures.add(file, error)
    if not num_rows:
        raise InputError("no row with names of chains", file)
    return complexes


def _read_pair(content: str, chains: Mapping[str, FastaRecord], path: str, line: int) -> Complex:
    names = [name.strip() for name in content.split("\t" if "\t" in content else ",")]
    if len(names) < 2 or not all(names):
        raise InputError("expected the names of two or more chains, separated by tabs or commas", path, line)
    for name in names:
        if name not in chains:
            close = get_close_matches(name, chains, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise InputError(f"no sequence has the id {name!r}{hint}", path, line)
    return _join_chains([chains[name] for name in names], path=path, line=line)


def _join_chains(chains: Sequence[FastaRecord], path: str = "", line: int | None = None) -> Complex:
    stop_codons = sum(chain.stop_codons for chain in dict.fromkeys(chains))
    name = "_and_".join(chain.id for chain in chains)
    cyclic = tuple(
        chain_name for chain_name, chain in zip(chain_names(len(chains)), chains, strict=True) if chain.cyclic
    )
    own = [next(iter(chain.templates), None) for chain in chains]
    templates = tuple(own) if any(each is not None for each in own) else ()
    return Complex(
        name,
        tuple(chains),
        stop_codons=stop_codons,
        cyclic=cyclic,
        templates=templates,
        path=path,
        line=line,
    )
