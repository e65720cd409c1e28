"""A job: the molecules that a user asks for, the same whatever file they come from."""

from dataclasses import dataclass, field

from features.chemistry.residue_classes import MoleculeKind
from msa.alignments.files import Alignment


@dataclass(frozen=True)
class Modification:
    """A modified residue.

    Attributes:
        position: 1-based position in the sequence.
    """

    position: int
    code: str


@dataclass(frozen=True)
class JobTemplate:
    """A structure that the user gives as template of a chain.

    Attributes:
        query_positions: 0-based positions in the sequence.
        template_positions: 0-based positions in the template's chain, one for each of the query's.
        chain: id of the template's chain; None for its only one.
        path, line: its place in a job file, for errors.
    """

    text: str = field(repr=False)
    query_positions: tuple[int, ...] = field(repr=False)
    template_positions: tuple[int, ...] = field(repr=False)
    chain: str | None = None
    path: str | None = field(default=None, compare=False)
    line: int | None = field(default=None, compare=False)

    @property
    def content(self) -> tuple[str, str | None, tuple[int, ...], tuple[int, ...]]:
        """All that features depend on."""
        return self.text, self.chain, self.query_positions, self.template_positions


@dataclass(frozen=True)
class Polymer:
    """A protein, RNA or DNA with its copies.

    Attributes:
        sequence: upper-case letters.
        chains: chain ids, one per copy.
        modifications: modified residues.
        alignment: its alignment; None without, and then no row of the network's alignment covers it.
        paired: rows that belong to the rows of the other chains' paired alignments.
        templates: structures given by the user; None to search for templates.
        is_cyclic: whether its ends are joined.
        line: 1-based line in the file of the job.
    """

    kind: MoleculeKind
    sequence: str
    chains: tuple[str, ...]
    modifications: tuple[Modification, ...] = ()
    alignment: Alignment | None = field(default=None, repr=False)
    paired: Alignment | None = field(default=None, repr=False)
    templates: tuple[JobTemplate, ...] | None = None
    is_cyclic: bool = False
    line: int | None = None

    @property
    def has_rows(self) -> bool:
        """True if the job gives an alignment of it."""
        return self.alignment is not None or self.paired is not None


@dataclass(frozen=True)
class Ligand:
    """A ligand or an ion with its copies: component codes, or a SMILES string.

    Attributes:
        chains: chain ids, one per copy.
        codes: component codes; several are the residues of one molecule, such as a glycan.
        smiles: the SMILES string instead of codes.
        line: 1-based line in the file of the job.
        path: its file, if that is not the job's.
    """

    chains: tuple[str, ...]
    codes: tuple[str, ...] = ()
    smiles: str | None = None
    line: int | None = None
    path: str | None = None


Entity = Polymer | Ligand


@dataclass(frozen=True)
class BondedAtom:
    """One end of a covalent bond.

    Attributes:
        residue: 1-based number of the residue in its chain.
    """

    chain: str
    residue: int
    atom: str

    def __str__(self) -> str:
        return f"{self.chain}:{self.residue}:{self.atom}"


@dataclass(frozen=True)
class Bond:
    """A covalent bond that no sequence implies.

    Attributes:
        line: 1-based line in the file of the job.
    """

    first: BondedAtom
    second: BondedAtom
    line: int | None = None


@dataclass(frozen=True)
class MoleculeJob:
    """The molecules to predict, with their bonds and seeds.

    Attributes:
        bonds: covalent bonds between them.
        seeds: seeds of the predictions; empty if the file gives none.
        components: mmCIF of components that the user defines; empty without.
        line: 1-based line where it begins.
    """

    name: str
    entities: tuple[Entity, ...]
    bonds: tuple[Bond, ...] = ()
    seeds: tuple[int, ...] = ()
    components: str = field(default="", repr=False)
    path: str | None = None
    line: int | None = None

    def polymers(self) -> list[Polymer]:
        """Return the proteins and nucleic acids."""
        return [entity for entity in self.entities if isinstance(entity, Polymer)]

    def proteins(self) -> list[Polymer]:
        """Return the proteins."""
        return [polymer for polymer in self.polymers() if polymer.kind == MoleculeKind.PROTEIN]

    def proteins_to_search(self) -> list[Polymer]:
        """Return the proteins without an alignment of their own."""
        return [protein for protein in self.proteins() if not protein.has_rows]

    def location_of(self, entity: Entity) -> tuple[str | None, int | None]:
        """Return file and line of one of its molecules, for errors."""
        if isinstance(entity, Ligand) and entity.path is not None:
            return entity.path, entity.line
        return self.path, entity.line or self.line
