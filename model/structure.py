"""Molecules as tables of entities, chains, residues, atoms, bonds and tokens."""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np

from model.chains import chain_names, chain_slices
from msa.base.residues import ATOM37, ATOM_ORDER, ELEMENTS, RESTYPE_NAMES

STANDARD_RESIDUES = frozenset((*RESTYPE_NAMES, "A", "C", "G", "U", "N", "DA", "DC", "DG", "DT", "DN"))
"""Codes of the residues that a sequence letter stands for; all others are HETATM in files."""


class EntityKind(StrEnum):
    """The kind of an entity."""

    PROTEIN = "protein"
    RNA = "RNA"
    DNA = "DNA"
    LIGAND = "ligand"
    ION = "ion"
    BRANCHED = "branched ligand"

    @property
    def is_polymer(self) -> bool:
        """True if a sequence describes it."""
        return self in (EntityKind.PROTEIN, EntityKind.RNA, EntityKind.DNA)


@dataclass(frozen=True, eq=False)
class ChemicalComponent:
    """A residue or ligand as the dictionary or the user describes it, without hydrogens.

    Args:
        code: its code in the Chemical Component Dictionary, or the name of a user's ligand.
        type: its type in the dictionary, such as "L-PEPTIDE LINKING".
        name: its name; "" if it has none.
        formula: its formula as the dictionary writes it; "" if it is not known.
        names: names of its atoms.
        elements: their symbols, such as "C" and "Zn".
        charges: formal charges of its atoms.
        bonds: two atoms by their index, the order of their bond, and whether it is aromatic.
        in_dictionary: whether the dictionary has it; otherwise the user defined it.
        smiles: the SMILES string that the user gave; None without.
    """

    code: str
    type: str
    name: str
    formula: str
    names: tuple[str, ...] = field(repr=False)
    elements: tuple[str, ...] = field(repr=False)
    charges: tuple[int, ...] = field(repr=False)
    bonds: tuple[tuple[int, int, int, bool], ...] = field(repr=False)
    in_dictionary: bool = True
    smiles: str | None = None


@dataclass(frozen=True)
class Entity:
    """A distinct molecule, of which chains are copies.

    Args:
        kind: its kind.
        codes: component codes of its residues.
        sequence: one letter per residue of a polymer, without its modifications; "" for ligands.
        description: a name for people.
    """

    kind: EntityKind
    codes: tuple[str, ...]
    sequence: str
    description: str


@dataclass(frozen=True)
class Chain:
    """A copy of an entity."""

    name: str
    entity: int


@dataclass(frozen=True, eq=False)
class Structure:
    """The molecules of a target: C chains with R residues, A atoms, B bonds and N tokens, all in one order.

    Args:
        entities: the entities.
        chains: the chains.
        components: components of all residues, by code.
        residue_chain: int [R], index of a residue's chain.
        residue_number: int [R], 1-based number in its chain; both its label and its author's number.
        residue_code: object [R], component code.
        atom_residue: int [A], index of an atom's residue.
        atom_name: object [A].
        atom_element: object [A], symbol such as "C" and "Zn".
        atom_charge: int [A], formal charge.
        bonds: int [B, 3], two atoms and the order of their bond.
        token_start: int [N], first atom of a token.
        token_count: int [N], number of its atoms.
        token_is_atom: bool [N], whether a token is a single atom of a residue or ligand.
    """

    entities: tuple[Entity, ...]
    chains: tuple[Chain, ...]
    components: dict[str, ChemicalComponent] = field(repr=False)
    residue_chain: np.ndarray = field(repr=False)
    residue_number: np.ndarray = field(repr=False)
    residue_code: np.ndarray = field(repr=False)
    atom_residue: np.ndarray = field(repr=False)
    atom_name: np.ndarray = field(repr=False)
    atom_element: np.ndarray = field(repr=False)
    atom_charge: np.ndarray = field(repr=False)
    bonds: np.ndarray = field(repr=False)
    token_start: np.ndarray = field(repr=False)
    token_count: np.ndarray = field(repr=False)
    token_is_atom: np.ndarray = field(repr=False)

    @cached_property
    def atom_chain(self) -> np.ndarray:
        """Index of each atom's chain, int [A]."""
        return self.residue_chain[self.atom_residue]

    @cached_property
    def token_residue(self) -> np.ndarray:
        """Index of each token's residue, int [N]."""
        if not self.token_is_atom.any():
            # every residue is a token, even without atoms
            return np.arange(len(self.token_start))
        return self.atom_residue[self.token_start]

    @cached_property
    def token_chain(self) -> np.ndarray:
        """Index of each token's chain, int [N]."""
        return self.residue_chain[self.token_residue]

    @cached_property
    def atom_token(self) -> np.ndarray:
        """Token of each atom, int [A]."""
        return np.repeat(np.arange(len(self.token_start)), self.token_count)

    @cached_property
    def chain_names(self) -> tuple[str, ...]:
        """Names of the chains."""
        return tuple(chain.name for chain in self.chains)

    def kind(self, chain: int) -> EntityKind:
        """Return the kind of a chain by its index."""
        return self.entities[self.chains[chain].entity].kind

    @cached_property
    def chain_is_polymer(self) -> np.ndarray:
        """Mask of the chains that are polymers, bool [C]."""
        return np.array([self.kind(index).is_polymer for index in range(len(self.chains))], bool)

    @cached_property
    def atom_is_metal(self) -> np.ndarray:
        """Mask of the atoms that are metals, bool [A]."""
        import gemmi  # commands start without it

        return np.array([gemmi.Element(element).is_metal for element in self.atom_element], bool)

    @cached_property
    def aatype(self) -> np.ndarray:
        """Index of each residue in `RESTYPE_NAMES`, int64 [R]; all but the twenty amino acids are unknown."""
        unknown = len(RESTYPE_NAMES) - 1
        codes = {name: index for index, name in enumerate(RESTYPE_NAMES)}
        return np.array([codes.get(code, unknown) for code in self.residue_code], np.int64)

    @cached_property
    def atom37(self) -> np.ndarray:
        """Index of each atom in `ATOM37`, int64 [A]; of the twenty amino acids only."""
        return np.array([ATOM_ORDER[name] for name in self.atom_name], np.int64)

    @cached_property
    def is_link(self) -> np.ndarray:
        """Mask of the bonds between two residues that are not neighbours in a sequence, bool [B]."""
        first, second = self.atom_residue[self.bonds[:, :2]].T
        names = np.sort(self.atom_name[self.bonds[:, :2]].astype(str), axis=1)
        sequential = (self.residue_chain[first] == self.residue_chain[second]) & (
            np.abs(self.residue_number[first] - self.residue_number[second]) == 1
        )
        backbone = np.all(names == ("C", "N"), axis=1) | np.all(names == ("O3'", "P"), axis=1)
        polymer = self.chain_is_polymer[self.residue_chain[first]]
        return (first != second) & ~(sequential & polymer & backbone)

    def residue_label(self, residue: int) -> str:
        """Return chain, code and number of a residue for people, such as "A:SER 12"; of a ligand "B:HEM"."""
        chain = int(self.residue_chain[residue])
        code = self.residue_code[residue]
        is_alone = (
            not self.kind(chain).is_polymer and len(self.entities[self.chains[chain].entity].codes) == 1
        )
        number = "" if is_alone else f" {self.residue_number[residue]}"
        return f"{self.chains[chain].name}:{code}{number}"

    def token_means(self, values: np.ndarray) -> np.ndarray:
        """Return the mean over the atoms of each token, float64 [N], of values [A]."""
        return np.add.reduceat(values.astype(np.float64), self.token_start) / self.token_count

    def residue_means(self, values: np.ndarray) -> np.ndarray:
        """Return the mean over the atoms of each residue, float64 [R], of values [A]; NaN without atoms."""
        count = np.bincount(self.atom_residue, minlength=len(self.residue_code))
        total = np.bincount(self.atom_residue, values.astype(np.float64), len(self.residue_code))
        with np.errstate(invalid="ignore"):
            return total / count


def protein_structure(
    aatype: np.ndarray, residue_index: np.ndarray, is_present: np.ndarray, asym_id: np.ndarray | None = None
) -> Structure:
    """Return the tables of chains of the twenty amino acids, without bonds and components.

    Tokens are residues. Copies of a chain are one entity. As in AlphaFold, unknown residues have no atoms.
    Codes [R] are indices into `msa.base.residues.RESTYPE_NAMES`; the residue index [R] is 0-based and
    restarts at 0 in every chain; `is_present` bool [R, 37] says whether each atom of `ATOM37` exists;
    `asym_id` [R] numbers the chain of each residue, None for a single chain.
    """
    codes = np.array([RESTYPE_NAMES[code] for code in aatype], object)
    slices = [slice(0, len(codes))] if asym_id is None else chain_slices(asym_id)
    entities: dict[tuple[str, ...], int] = {}
    chains = tuple(
        Chain(name, entities.setdefault(tuple(codes[residues]), len(entities)))
        for name, residues in zip(chain_names(len(slices)), slices, strict=True)
    )
    residue, atom = np.nonzero(is_present)
    names = np.array(ATOM37, object)[atom]
    return Structure(
        entities=tuple(Entity(EntityKind.PROTEIN, sequence, "", "") for sequence in entities),
        chains=chains,
        components={},
        residue_chain=np.repeat(np.arange(len(chains)), [part.stop - part.start for part in slices]),
        residue_number=residue_index + 1,
        residue_code=codes,
        atom_residue=residue,
        atom_name=names,
        atom_element=np.array([ELEMENTS[name] for name in names], object),
        atom_charge=np.zeros(len(names), np.int64),
        bonds=np.zeros((0, 3), np.int64),
        token_start=np.searchsorted(residue, np.arange(len(codes))),
        token_count=np.bincount(residue, minlength=len(codes)),
        token_is_atom=np.zeros(len(codes), bool),
    )
