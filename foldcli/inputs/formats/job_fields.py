"""Values of the keys of job files, checked: text, numbers, chain ids, sequences, alignments and bonds."""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from features.assembly.job import Bond, BondedAtom, Modification, MoleculeJob
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.formats.json_with_lines import MappingWithLines, decode_utf8
from foldcli.logs import logger
from foldcli.values import MAX_SEED
from model.chains import iterate_chain_names
from msa.alignments.files import Alignment, parse_alignment, read_alignment
from msa.base.errors import InputError
from msa.io.compression import read_bytes
from msa.io.fasta import clean_sequence
from msa.io.molecules import describe_non_protein, looks_like_nucleic_acid

T = TypeVar("T")
Refuse = Callable[[InputError], None]
"""A function that records the error of one job, so that the others of its file are read."""

_SEED = re.compile("[0-9]{1,10}")
POLYMERS = {"protein": MoleculeKind.PROTEIN, "rna": MoleculeKind.RNA, "dna": MoleculeKind.DNA}
_NUCLEOTIDES = {MoleculeKind.RNA: frozenset("ACGUN"), MoleculeKind.DNA: frozenset("ACGTN")}


def read_chains(entity: MappingWithLines, key: str) -> tuple[str, ...]:
    """Return the chain ids of an entity: one text, or a list of them.

    Raises:
        InputError: there is none, or one is not a printable word, or has a comma.
    """
    value = entity.get(key)
    names: list[Any] = value if isinstance(value, list) else [value]
    if not names or any(not isinstance(name, str) or not name.strip() for name in names):
        raise entity.error(f"no {key!r}" if value is None else f"{key!r} is not a chain id", key)
    for name in names:
        if not name.isprintable() or " " in name:
            raise entity.error(f"{key!r} {name!r:.40} is not a printable word", key)
        if "," in name:
            raise entity.error(f"chain id {name!r:.40} has a comma: give several ids as a list", key)
    return tuple(names)


def read_codes(entity: MappingWithLines, key: str) -> tuple[str, ...]:
    """Return component codes, one text or a list of them, in upper case and without the prefix `CCD_`.

    Raises:
        InputError: a code is no text.
    """
    value = entity.get(key)
    codes = value if isinstance(value, list) else [value]
    if not codes or any(not isinstance(code, str) or not code.strip() for code in codes):
        raise entity.error(f"no {key!r}" if value is None else f"{key!r} is not a component code", key)
    return tuple(map(clean_code, codes))


def clean_code(text: str) -> str:
    """Return the component code that a file writes like `ATP`, `atp` or `CCD_ATP`."""
    return text.strip().upper().removeprefix("CCD_")


def named_paths(path: str, name: str) -> list[Path]:
    """Return the places where a file or folder may be that a job names; see `find_named_file`."""
    return [Path(name)] if path == "-" else [Path(path).parent / name, Path(name)]


def find_named_file(path: str, name: str, description: str, line: int) -> Path:
    """Return a file that a job names, relative to the folder of the job file or to the current folder.

    Raises:
        InputError: there is no such file.
    """
    for candidate in named_paths(path, name):
        with contextlib.suppress(OSError, ValueError):  # such as a name that is too long
            if candidate.is_file():
                return candidate
    raise InputError(f"{description} not found: {name:.200}", path, line)


def text_or_file(mapping: MappingWithLines, key: str, path_key: str) -> str:
    """Return mmCIF text from the job, or from the file that it names.

    Raises:
        InputError: neither is given, or both are, or the file cannot be read.
    """
    if mapping.get(key) and mapping.get(path_key):
        raise mapping.error(f"both {key!r} and {path_key!r} are given", path_key)
    if not mapping.get(path_key):
        return mapping.text(key)
    name = mapping.text(path_key)
    file = find_named_file(mapping.path, name, path_key, mapping.line_of(path_key))
    try:
        return decode_utf8(read_bytes(file), str(file))
    except OSError as error:
        raise mapping.error(f"{path_key}: {name:.200}: {error.strerror or error}", path_key) from None


def read_seeds(content: MappingWithLines, key: str) -> tuple[int, ...]:
    """Return the seeds of a job; AlphaFold Server writes them as text, and leaves the list empty.

    Raises:
        InputError: they are not a list of numbers.
    """
    values = content.get(key)
    seeds = []
    for value in [] if values is None else values if isinstance(values, list) else [values]:
        if isinstance(value, str) and _SEED.fullmatch(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_SEED:
            raise content.error(f"{key} has {value!r:.40}: expected numbers from 0 to {MAX_SEED:,}", key)
        seeds.append(value)
    return tuple(seeds)


def read_entities(mapping: MappingWithLines) -> list[tuple[str, MappingWithLines]]:
    """Return (kind, entity) of each item of the list `sequences`; each item is a mapping with one key.

    Raises:
        InputError: the list is missing, an item is not such a mapping, or two chains have one id.
    """
    if not mapping.elements("sequences", "a list of chains"):
        is_absent = mapping.get("sequences") is None
        raise mapping.error("no list 'sequences'" if is_absent else "'sequences' is empty", "sequences")
    entities = []
    for entry in mapping.mappings("sequences", "an item of 'sequences'"):
        if len(entry) != 1:
            raise entry.error("an item of 'sequences' must have one key, such as protein")
        (kind,) = entry
        entities.append((kind, entry.mapping(kind)))
    check_chains([entity for _, entity in entities], "id")
    return entities


def check_chains(entities: Iterable[MappingWithLines], key: str) -> None:
    """Check that no two chains of a job have the same id.

    Raises:
        InputError: two chains have one id; names the line.
    """
    seen: set[str] = set()
    for entity in entities:
        for chain in _given_chains(entity, key):
            if chain in seen:
                raise entity.error(f"two chains are called {chain!r:.40}", key)
            seen.add(chain)


def free_chain_names(entities: Iterable[tuple[str, MappingWithLines]]) -> Iterator[str]:
    """Return an iterator over the chain ids that no entity has: A, B and so on."""
    used = {chain for _, entity in entities for chain in _given_chains(entity, "id")}
    return (name for name in iterate_chain_names() if name not in used)


def _given_chains(entity: MappingWithLines, key: str) -> list[str]:
    chains = entity.get(key)
    return [chain for chain in (chains if isinstance(chains, list) else [chains]) if isinstance(chain, str)]


def read_named_alignment(path: str, name: str, line: int) -> Alignment:
    """Read an alignment that a job names; see `find_named_file`.

    Raises:
        InputError: the file is missing, or it is not an alignment.
    """
    return read_alignment(os.fspath(find_named_file(path, name, "alignment file", line)))


class OtherContent(InputError):
    """Content of a job that networks of proteins do not take."""

    @classmethod
    def check(cls, descriptions: Iterable[str], job: MappingWithLines) -> None:
        """Raise an error that lists the descriptions, such as "a ligand", if there are any."""
        if reason := ", ".join(dict.fromkeys(descriptions)):
            raise cls(reason, job.path, job.line)


def other_content_of_protein(entity: MappingWithLines) -> Iterator[str]:
    """Yield descriptions of what networks of proteins do not take of a protein in a job."""
    if entity.get("modifications"):
        yield "modified residues"
    if entity.get("glycans"):
        yield "glycans"
    sequence = "".join(str(entity.get("sequence")).split()).upper()
    if ":" in sequence:
        yield "a sequence of several chains (':')"
    elif (molecule := describe_non_protein("", sequence)) is not None:
        yield f"{molecule} as protein"


def raise_error(error: InputError) -> NoReturn:
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


def read_sequence(entity: MappingWithLines, kind: MoleculeKind) -> str:
    """Return the value of `sequence`; see `clean_polymer`."""
    return clean_polymer(entity.text("sequence"), kind, entity.path, entity.line_of("sequence"))


def read_modifications(
    entity: MappingWithLines, code_key: str, position_key: str
) -> tuple[Modification, ...]:
    """Return the modified residues of a polymer; see `clean_code`.

    Raises:
        InputError: an item has other keys, or a position that is no number.
    """
    return tuple(
        Modification(item.number(position_key), clean_code(item.text(code_key)))
        for item in entity.mappings("modifications", "a modification", (code_key, position_key))
    )


def read_bond(mapping: MappingWithLines, key: str, ends: Any) -> Bond:
    """Return a bond from two lists of chain id, residue number and atom name.

    Args:
        mapping: mapping that has the bond.
        key: its key; names it in errors.
        ends: the two lists.

    Raises:
        InputError: not two such lists.
    """
    if not isinstance(ends, list) or len(ends) != 2:
        raise mapping.error(f"{key}: expected two atoms", key)
    atoms = []
    for end in ends:
        shape = isinstance(end, list) and len(end) == 3
        if not shape or not isinstance(end[0], str) or not isinstance(end[2], str):
            raise mapping.error(f"{key}: {end!r:.60} is not [chain id, residue number, atom name]", key)
        atoms.append(BondedAtom(end[0], mapping.number(key, end[1]), end[2]))
    return Bond(atoms[0], atoms[1], mapping.line_of(key))


def query_alignment(sequence: str) -> Alignment:
    """Return an alignment of the query alone, for a chain that shall have no other rows."""
    return parse_alignment(f">query\n{sequence}\n".encode())


def check_query(alignment: Alignment | None, sequence: str, path: str, line: int) -> Alignment | None:
    """Return an alignment whose first row must be the sequence; raise InputError if it is not."""
    if alignment is not None and alignment.query != sequence:
        raise InputError("the first row of the chain's alignment differs from its sequence", path, line)
    return alignment
