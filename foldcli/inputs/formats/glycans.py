"""Glycans of AlphaFold Server, such as `NAG(NAG)(FUC)`, as ligands with bonds.

The notation names the sugars and which of them are linked, but not the atoms. These are assumed by the rules
of `_FREE_ATOMS`, which give N-glycans of vertebrates their usual linkages; the log names every bond.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from features.assembly.job import Bond, BondedAtom, Ligand
from foldcli.logs import logger
from msa.base.errors import InputError

# atoms of residues that carry glycans
_PROTEIN_ATOMS = {"N": "ND2", "S": "OG", "T": "OG1"}
# the anomeric carbon, where it is not C1
_ANOMERIC = {"SIA": "C2", "NGC": "C2", "SLB": "C2", "FRU": "C2", "BDF": "C2"}
# atoms of a sugar that take the next sugars, in this order; by (sugar, next sugar), else by sugar, else any
_FREE_ATOMS = {
    ("NAG", "FUC"): ("O6", "O3"),
    ("NAG", "GAL"): ("O4", "O3"),
    ("MAN", "NAG"): ("O2", "O4", "O6"),
    ("GAL", "SIA"): ("O3", "O6"),
    "NAG": ("O4", "O6", "O3"),
    "BMA": ("O3", "O6", "O4", "O2"),
    "MAN": ("O3", "O6", "O2", "O4"),
    "GAL": ("O3", "O4", "O6", "O2"),
}
_ANY_FREE_ATOMS = ("O4", "O6", "O3", "O2")
_TOKEN = re.compile(r"[A-Za-z0-9]{1,5}|[()]|\s+|.")
_MAX_SUGARS = 200


@dataclass(frozen=True)
class Glycan:
    """A glycan of one chain.

    Attributes:
        position: 1-based position of the residue that carries it.
        codes: codes of its sugars, the one bonded to the residue first.
        parents: for each sugar the index of the one that it is linked to; None for the first.
    """

    position: int
    codes: tuple[str, ...]
    parents: tuple[int | None, ...]


def parse_glycan(text: str, position: int, path: str, line: int) -> Glycan:
    """Parse the server's notation: a sugar, followed by each sugar linked to it in parentheses.

    Raises:
        InputError: the text is not such a notation.
    """
    codes: list[str] = []
    parents: list[int | None] = []
    enclosing: list[int] = []
    previous, closed = "", 0
    for token in (match[0] for match in _TOKEN.finditer(text)):
        if token.isspace():
            continue
        if token == "(" and codes and previous != "(":
            # after a sugar its branch, after a closed branch another one of the same sugar
            enclosing.append(len(codes) - 1 if previous != ")" else closed)
        elif token == ")" and enclosing and previous != "(":
            closed = enclosing.pop()
        elif token.isalnum() and previous in ("", "(") and len(codes) < _MAX_SUGARS:
            parents.append(enclosing[-1] if enclosing else None)
            codes.append(token.upper())
        else:
            previous = "?"
            break
        previous = token
    if enclosing or not codes or previous in ("?", "("):
        reason = f"glycan {text!r:.80}: expected sugars such as NAG(NAG)(FUC), at most {_MAX_SUGARS}"
        raise InputError(reason, path, line)
    return Glycan(position, tuple(codes), tuple(parents))


def attach_glycans(
    sequence: str,
    chains: Iterable[str],
    glycans: Iterable[Glycan],
    free_names: Iterable[str],
    path: str,
    line: int,
) -> tuple[list[Ligand], list[Bond]]:
    """Return the ligands and bonds of the glycans of every copy of a protein.

    Raises:
        InputError: a residue cannot carry a glycan, or a sugar has more branches than free atoms.
    """
    names = iter(free_names)
    ligands, bonds = [], []
    for glycan in glycans:
        letter = sequence[glycan.position - 1] if 1 <= glycan.position <= len(sequence) else None
        if letter not in _PROTEIN_ATOMS:
            found = (
                f"residue {glycan.position:,} is {letter}" if letter else f"no residue {glycan.position:,}"
            )
            raise InputError(f"glycan: {found}; asparagine, serine and threonine carry them", path, line)
        inner = _inner_bonds(glycan, path, line)
        for chain in chains:
            name = next(names)
            ligands.append(Ligand((name,), glycan.codes, line=line))
            first = BondedAtom(name, 1, _ANOMERIC.get(glycan.codes[0], "C1"))
            outer = Bond(BondedAtom(chain, glycan.position, _PROTEIN_ATOMS[letter]), first, line)
            added = [outer] + [
                Bond(BondedAtom(name, i, a), BondedAtom(name, j, b), line) for i, a, j, b in inner
            ]
            bonds += added
            described = ", ".join(f"{bond.first}–{bond.second}" for bond in added)
            logger.warning("%s:%d: bonds of the glycan are assumed: %s", path, line, described)
    return ligands, bonds


def _inner_bonds(glycan: Glycan, path: str, line: int) -> list[tuple[int, str, int, str]]:
    """Return the bonds between the sugars: 1-based number and atom of both ends."""
    taken: set[tuple[int, str]] = set()
    bonds = []
    for index, parent in enumerate(glycan.parents):
        if parent is None:
            continue
        sugar, following = glycan.codes[parent], glycan.codes[index]
        preferred = _FREE_ATOMS.get((sugar, following)) or _FREE_ATOMS.get(sugar, _ANY_FREE_ATOMS)
        atoms = [atom for atom in (*preferred, *_ANY_FREE_ATOMS) if (parent, atom) not in taken]
        if not atoms:
            raise InputError(f"glycan: {sugar} has more than four branches", path, line)
        taken.add((parent, atoms[0]))
        bonds.append((parent + 1, atoms[0], index + 1, _ANOMERIC.get(following, "C1")))
    return bonds
