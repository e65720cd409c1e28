"""One job of another predictor's input file, and whether it is one protein chain."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foldcli.inputs.json_with_lines import Located
from msa.errors import InputError
from msa.io.alignments import Alignment, read_alignment
from msa.io.fasta import FastaRecord, UnsupportedRecord, clean_sequence


@dataclass(frozen=True)
class AlignedRecord(FastaRecord):
    """A chain that comes with its alignment."""

    alignment: Alignment = field(repr=False)


@dataclass
class Job:
    """What a job holds, gathered while it is read.

    Args:
        name: the query's id; blanks become `_`.
        path, line: where it begins.
        chains: sequences of its protein chains, each as often as it occurs.
        others: what it has beside them that is not supported, such as "a ligand".
        alignment: of its protein chain, if it brings one.
    """

    name: str
    path: str
    line: int
    chains: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    alignment: Alignment | None = None

    def note(self, what: str) -> None:
        """Take down something that is not supported, once."""
        if what not in self.others:
            self.others.append(what)

    def add_chains(self, entity: Located, copies: int) -> str:
        """Take up the protein chains of an entity, and return their sequence.

        Raises:
            InputError: there is no sequence, or a character in it that is no residue.
        """
        sequence = text_of(entity, "sequence", self.path)
        sequence = clean_sequence(sequence, self.path, entity.line_of("sequence"))
        self.chains += [sequence] * copies
        return sequence

    def record(self) -> FastaRecord:
        """The query, or an UnsupportedRecord that says what stands in the way.

        Raises:
            InputError: its alignment is that of another sequence.
        """
        header = "_".join(self.name.split())
        count = sum(chain.count(":") + 1 for chain in self.chains)
        holds = [f"{count} protein chains" if count else "no protein chain"] if count != 1 else []
        if holds or self.others:
            sequence = ":".join(self.chains)
            holds += self.others
            return UnsupportedRecord(header, sequence, ", ".join(holds), self.path, self.line)
        if self.alignment is None:
            return FastaRecord(header, self.chains[0])
        if self.alignment.query != self.chains[0]:
            raise InputError(
                f"{header!r}: the first row of its alignment is another sequence", self.path, self.line
            )
        return AlignedRecord(header, self.chains[0], self.alignment)


def alignment_beside(path: str, named: str, line: int) -> Alignment:
    """The alignment that a job names by its file, from the folder of the job's file or the current one.

    Raises:
        InputError: there is no such file, or what is in it is no alignment.
    """
    places = (Path(path).parent / named, Path(named)) if path != "-" else (Path(named),)
    for place in places:
        if place.is_file():
            return read_alignment(os.fspath(place))
    raise InputError(f"there is no alignment {named}", path, line)


def known_keys(mapping: Located, known: Iterable[str], path: str) -> None:
    """Refuse keys that the format does not have, which are most often misspelt.

    Raises:
        InputError: there is one; names its line.
    """
    for key in mapping:
        if key not in known:
            raise InputError(f"unknown key {key!r}", path, mapping.line_of(key))


def text_of(mapping: Located, key: str, path: str) -> str:
    """The text at a key that must be there.

    Raises:
        InputError: it is not there, or not text.
    """
    value = mapping.get(key)
    if not isinstance(value, str) or not value.strip():
        reason = f"{key!r} is not text" if value not in (None, "") else f"no {key!r}"
        raise InputError(reason, path, mapping.line_of(key))
    return value


def mapping_of(value: Any, what: str, path: str, line: int) -> Located:
    """A value that must be a mapping.

    Raises:
        InputError: it is none.
    """
    if not isinstance(value, Located):
        raise InputError(f"{what} is not a mapping", path, line)
    return value


def entities_of(mapping: Located, path: str) -> list[tuple[str, Located]]:
    """(kind, entity) of each item of the list `sequences`, each a mapping with one key.

    Raises:
        InputError: there is no such list, or an item is something else.
    """
    line = mapping.line_of("sequences")
    items = mapping.get("sequences")
    if not isinstance(items, list) or not items:
        raise InputError(
            "no list 'sequences'" if items is None else "'sequences' is no list of chains", path, line
        )
    found = []
    for item in items:
        one = mapping_of(item, "an item of 'sequences'", path, line)
        if len(one) != 1:
            raise InputError("an item of 'sequences' must have one key, such as protein", path, one.line)
        ((kind, entity),) = one.items()
        found.append((kind, mapping_of(entity, repr(kind), path, one.line_of(kind))))
    return found
