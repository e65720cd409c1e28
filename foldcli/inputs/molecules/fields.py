"""Fields that the job files of several programs share: sequences, chain ids, alignments."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from features.assembly.job import Bond, BondedAtom, Modification, MoleculeJob
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.formats.job_fields import (
    as_mapping,
    check_keys,
    read_number,
    required_text,
)
from foldcli.inputs.formats.json_with_lines import MappingWithLines
from foldcli.logs import logger
from msa.alignments.files import Alignment, parse_alignment
from msa.base.errors import InputError
from msa.io.fasta import clean_sequence
from msa.io.molecules import looks_like_nucleic_acid

T = TypeVar("T")
Refuse = Callable[[InputError], None]
"""A function that records the error of one job, so that the others of its file are read."""

_NUCLEOTIDES = {MoleculeKind.RNA: frozenset("ACGUN"), MoleculeKind.DNA: frozenset("ACGTN")}


def raise_error(error: InputError) -> None:
    """Raise the error of a job."""
    raise error


def read_each(items: Iterable[T], read: Callable[[T], MoleculeJob], refuse: Refuse) -> list[MoleculeJob]:
    """Return the jobs of a file that can be read; call `refuse` with the errors of the others."""
    jobs = []
    for item in items:
        try:
            jobs.append(read(item))
        except InputError as error:
            refuse(error)
    return jobs


def clean_polymer(text: str, kind: MoleculeKind, path: str, line: int) -> str:
    """Return a sequence in upper case without whitespace.

    Raises:
        InputError: there is none, a character is no letter of this kind of polymer, or a protein has the
            letters of a nucleic acid.
    """
    if kind == MoleculeKind.PROTEIN:
        sequence, stop_codons = clean_sequence(text, path, line)
        if ":" in sequence:
            raise InputError("a sequence of several chains (':')", path, line)
        if looks_like_nucleic_acid(sequence):
            reason = "a nucleic acid (its letters are A, C, G, T, U or N) as protein: name it rna or dna"
            raise InputError(reason, path, line)
        if stop_codons:
            logger.warning("%s:%d: stop codons ('*') read as X", path, line)
        return sequence
    sequence = "".join(text.split()).upper()
    if not sequence:
        raise InputError("no sequence", path, line)
    for letter in sequence:
        if letter not in _NUCLEOTIDES[kind]:
            expected = ", ".join(sorted(_NUCLEOTIDES[kind]))
            raise InputError(f"{letter!r} is no nucleotide of {kind.name} ({expected})", path, line)
    return sequence


def read_modifications(
    entity: MappingWithLines, code_key: str, position_key: str, path: str
) -> tuple[Modification, ...]:
    """Return the modified residues of a polymer; a prefix `CCD_` of their codes is dropped.

    Raises:
        InputError: an item has other keys, or a position that is no number.
    """
    items = entity.get("modifications") or []
    line = entity.line_of("modifications")
    if not isinstance(items, list):
        raise InputError("'modifications' is not a list", path, line)
    result = []
    for item in items:
        mapping = as_mapping(item, "a modification", path, line)
        check_keys(mapping, (code_key, position_key), path)
        position = read_number(mapping.get(position_key), position_key, path, mapping.line_of(position_key))
        result.append(Modification(position, required_text(mapping, code_key, path).removeprefix("CCD_")))
    return tuple(result)


def read_bond(ends: Any, name: str, path: str, line: int) -> Bond:
    """Return a bond from two lists of chain id, residue number and atom name.

    Raises:
        InputError: not two such lists.
    """
    if not isinstance(ends, list) or len(ends) != 2:
        raise InputError(f"{name}: expected two atoms", path, line)
    atoms = []
    for end in ends:
        shape = isinstance(end, list) and len(end) == 3
        if not shape or not isinstance(end[0], str) or not isinstance(end[2], str):
            reason = f"{name}: {end!r:.60} is not [chain id, residue number, atom name]"
            raise InputError(reason, path, line)
        atoms.append(BondedAtom(end[0], read_number(end[1], name, path, line), end[2]))
    return Bond(atoms[0], atoms[1], line)


def query_alignment(sequence: str) -> Alignment:
    """Return an alignment of the query alone, for a chain that shall have no other rows."""
    return parse_alignment(f">query\n{sequence}\n".encode())


def check_query(alignment: Alignment | None, sequence: str, path: str, line: int) -> Alignment | None:
    """Return an alignment whose first row must be the sequence; raise InputError if it is not."""
    if alignment is not None and alignment.query != sequence:
        raise InputError("the first row of the chain's alignment differs from its sequence", path, line)
    return alignment


def join_alignments(alignments: list[Alignment]) -> Alignment:
    """Return the rows of several alignments of one query, one below the other.

    Raises:
        InputError: they have different queries.
    """
    for alignment in alignments[1:]:
        if alignment.query != alignments[0].query:
            raise InputError(
                "the first row differs from that of the chain's other alignment", alignment.source
            )
    return Alignment(
        tuple(name for alignment in alignments for name in alignment.names),
        np.concatenate([alignment.letters for alignment in alignments]),
        np.concatenate([alignment.deletions for alignment in alignments]),
        alignments[0].source,
    )
