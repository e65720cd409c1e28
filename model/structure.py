"""Molecules as tables of entities, chains, residues, atoms, bonds and tokens."""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import gemmi
import numpy as np


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
        metals = {str(x): gemmi.Element(str(x)).is_metal for x in set(self.atom_element)}
        return np.array([metals[str(element)] for element in self.atom_element], bool)

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


@dataclass(frozen=True, eq=False)
class AllAtomPrediction:
    """One predicted structure of molecules, with its confidence scores.

    Args:
        structure: the molecules.
        positions: float32 [A, 3], Å.
        plddt: float64 [A], 0 to 100.
        pae: float32 [N, N], Å; the row is the token whose frame is aligned.
        pde: float32 [N, N], Å.
        ptm: predicted TM-score.
        iptm: predicted TM-score of the interfaces; None for a single chain.
        chain_ptm: float64 [C].
        chain_pair_iptm: float64 [C, C], symmetric, NaN on the diagonal.
        ranking_score: the score of the network's authors, by which samples are ranked.
        has_clash: whether two polymer chains clash badly.
        fraction_disordered: share of exposed protein residues.
        contact_probs: float32 [N, N], probability of a contact; None if the network predicts none.
        gpde: mean of pde weighted by the probability of a contact, Å; None without.
    """

    structure: Structure
    positions: np.ndarray
    plddt: np.ndarray
    pae: np.ndarray
    pde: np.ndarray
    ptm: float
    iptm: float | None
    chain_ptm: np.ndarray
    chain_pair_iptm: np.ndarray
    ranking_score: float
    has_clash: bool
    fraction_disordered: float
    contact_probs: np.ndarray | None = None
    gpde: float | None = None

    @property
    def mean_plddt(self) -> float:
        """The mean of pLDDT over all atoms, 0 to 100."""
        return float(self.plddt.mean())

    @property
    def num_chains(self) -> int:
        """The number of chains."""
        return len(self.structure.chains)

    @cached_property
    def token_plddt(self) -> np.ndarray:
        """The mean of pLDDT over the atoms of each token, float64 [N]."""
        return self.structure.token_means(self.plddt)

    @cached_property
    def chain_plddt(self) -> np.ndarray:
        """The mean of pLDDT over the atoms of each chain, float64 [C]."""
        count = len(self.structure.chains)
        chain = self.structure.atom_chain
        return np.bincount(chain, self.plddt, count) / np.bincount(chain, minlength=count)

    @cached_property
    def chain_pair_pae_min(self) -> np.ndarray:
        """The smallest PAE between the tokens of each two chains, float64 [C, C]; rows are aligned on."""
        groups = [np.flatnonzero(self.structure.token_chain == c) for c in range(len(self.structure.chains))]
        return np.array(
            [[float(self.pae[np.ix_(first, second)].min()) for second in groups] for first in groups]
        )

    @property
    def chain_iptm(self) -> list[float | None]:
        """The mean ipTM of each chain with all others; None for a single chain."""
        if self.num_chains == 1:
            return [None]
        return [float(value) for value in np.nanmean(self.chain_pair_iptm, axis=1)]
