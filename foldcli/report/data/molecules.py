"""Finished predictions of any molecules, read from their mmCIF and score files."""

from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, ClassVar

import gemmi
import numpy as np

from foldcli.outputs.layout import TargetFiles
from foldcli.report.data.result import (
    MAX_MODELS,
    MAX_PAE_CELLS,
    PaeMap,
    link_from_page,
    reduce_pae,
)
from msa.base.errors import InputError
from msa.base.json_files import read_json

# categories of the structure file that the page's viewer needs besides the atoms
_VIEWER_CATEGORIES = (
    "_entry.", "_entity.", "_entity_poly.", "_entity_poly_seq.", "_struct_asym.", "_chem_comp.",
    "_chem_comp_bond.", "_struct_conn.", "_pdbx_entity_branch.", "_pdbx_entity_branch_list.",
    "_pdbx_entity_branch_link.", "_pdbx_branch_scheme.", "_pdbx_nonpoly_scheme.", "_pdbx_entity_nonpoly.",
)  # fmt: skip
_COORDINATES = ("Cartn_x", "Cartn_y", "Cartn_z")
# columns of an atom before and after its coordinates, as the viewer reads them
BEFORE = (
    "group_PDB", "id", "type_symbol", "label_atom_id", "label_alt_id", "label_comp_id", "label_asym_id",
    "label_entity_id", "label_seq_id",
)  # fmt: skip
AFTER = ("pdbx_formal_charge", "auth_seq_id", "auth_asym_id", "pdbx_PDB_model_num")
_TRACE = ("CA", "P", "C4'")


@dataclass(frozen=True, eq=False)
class AtomTable:
    """The atoms of a target, which all its models share.

    Args:
        header: the categories that the viewer needs, as mmCIF.
        before: each atom's columns before its coordinates, as mmCIF.
        after: those after its B-factor.
        chain: object [A], names of the chains.
        number: int [A], number of the residue in its chain.
        component: object [A].
        name: object [A].
        lines: int [L, 2], atoms to join in a simple drawing: traces of polymers, and bonds of ligands.
    """

    header: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    chain: np.ndarray
    number: np.ndarray
    component: np.ndarray
    name: np.ndarray
    lines: np.ndarray


@dataclass(frozen=True, eq=False)
class MoleculeModel:
    """One structure.

    Args:
        rank: 1 is the best.
        positions: float [A, 3], Å.
        atom_plddt: float [A], 0 to 100.
        pae: PAE of tokens, reduced to a displayable size.
        files: the model's files as links from the page.
    """

    rank: int
    tag: str
    positions: np.ndarray
    atom_plddt: np.ndarray
    scores: dict[str, Any]
    pae: PaeMap
    files: tuple[str, ...]

    @property
    def plddt(self) -> np.ndarray:
        """The pLDDT of each token, float64 [N], 0 to 100."""
        return np.asarray(self.scores["plddt"], np.float64)


@dataclass(frozen=True, eq=False)
class MoleculeResult:
    """The models of a target.

    Args:
        models: best first, at most MAX_MODELS.
        done: content of done.json, empty if there is none.
    """

    unit: ClassVar[str] = "token"
    confidence: ClassVar[str] = "pLDDT"
    copied_from: ClassVar[str | None] = None

    files: TargetFiles
    atoms: AtomTable
    models: tuple[MoleculeModel, ...]
    model_count: int
    done: dict[str, Any] = field(default_factory=dict)

    @property
    def is_untrained(self) -> bool:
        """True if any of the networks was untrained."""
        return any(model.scores.get("untrained") for model in self.models)

    @property
    def tokens(self) -> dict[str, list[Any]]:
        """Chain, residue, component and atom of each token."""
        tokens: dict[str, list[Any]] = self.models[0].scores["tokens"]
        return tokens

    @property
    def chains(self) -> tuple[tuple[str, int], ...]:
        """Name and number of tokens of each chain, in order."""
        return tuple((name, len(list(group))) for name, group in groupby(self.tokens["chain"]))

    @property
    def chain_kinds(self) -> dict[str, str]:
        """The kind of each chain by its name, in order."""
        return dict(self.models[0].scores["chains"])


def read_molecules(files: TargetFiles, done: dict[str, Any]) -> MoleculeResult:
    """Read the ranked models of a target of any molecules.

    Raises:
        InputError: a file is missing, unreadable or inconsistent with the others; names it.
    """
    score_files = files.score_files()
    shown = score_files[:MAX_MODELS]
    side = int((MAX_PAE_CELLS / len(shown)) ** 0.5)
    atoms: AtomTable | None = None
    models = []
    for rank, tag, path in shown:
        structure = files.model_path("cif", rank, tag)
        if not structure.is_file():
            raise InputError(f"its structure {structure.name} is missing", path)
        block = _read_block(structure)
        atoms = atoms or _read_table(block, structure)
        models.append(_read_model(files, rank, tag, path, structure, block, side))
        if len(models[-1].positions) != len(atoms.name):
            raise InputError("other atoms than at rank 1", structure)
    assert atoms is not None
    return MoleculeResult(files, atoms, tuple(models), len(score_files), done)


def _read_block(path: Path) -> gemmi.cif.Block:
    try:
        return gemmi.cif.read(str(path)).sole_block()
    except (RuntimeError, ValueError) as error:
        raise InputError("not an mmCIF file of a structure", path) from error


def _read_model(
    files: TargetFiles, rank: int, tag: str, path: Path, structure: Path, block: gemmi.cif.Block, side: int
) -> MoleculeModel:
    try:
        scores = read_json(path)
        pae = np.asarray(scores["pae"], np.float32)
        tokens = len(scores["tokens"]["chain"])
        plddt = np.asarray(scores["atom_plddt"], np.float64)
        if pae.shape != (tokens, tokens) or len(scores["plddt"]) != tokens:
            raise ValueError("the scores have different numbers of tokens")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"not the scores of a model ({type(error).__name__}: {error})", path) from error
    try:
        positions = np.array(
            [list(map(float, block.find_values(f"_atom_site.{axis}"))) for axis in _COORDINATES]
        ).T
    except ValueError as error:
        raise InputError("an atom without coordinates", structure) from error
    if len(positions) != len(plddt):
        raise InputError(f"{len(positions)} atoms, but its scores have {len(plddt)}", structure)
    existing = [
        item for kind in ("cif", "pdb", "contacts") if (item := files.model_path(kind, rank, tag)).is_file()
    ]
    links = tuple(link_from_page(files, item) for item in [*existing, path])
    return MoleculeModel(rank, tag, positions, plddt, scores, reduce_pae(pae, side), links)


def _read_table(block: gemmi.cif.Block, path: Path) -> AtomTable:
    """Return what all models of a target share."""
    columns = {name: list(block.find_values(f"_atom_site.{name}")) for name in (*BEFORE, *AFTER)}
    if not columns["id"] or any(len(column) != len(columns["id"]) for column in columns.values()):
        raise InputError("no table of atoms", path)
    text = {
        name: np.array([gemmi.cif.as_string(value) for value in columns[name]], object)
        for name in ("auth_asym_id", "label_comp_id", "label_atom_id")
    }
    header = gemmi.cif.Document()
    copy = header.add_new_block("model")
    for category in _VIEWER_CATEGORIES:
        table = block.find_mmcif_category(category)
        if len(table):
            tags = [tag.split(".")[1] for tag in table.tags]
            loop = copy.init_loop(category, tags)
            for row in table:
                loop.add_row(list(row))
    numbers = np.array([int(value) for value in columns["auth_seq_id"]])
    return AtomTable(
        header.as_string(),
        tuple(" ".join(row) for row in zip(*(columns[name] for name in BEFORE), strict=True)),
        tuple(" ".join(row) for row in zip(*(columns[name] for name in AFTER), strict=True)),
        text["auth_asym_id"],
        numbers,
        text["label_comp_id"],
        text["label_atom_id"],
        _lines(block, text["auth_asym_id"], numbers, text["label_comp_id"], text["label_atom_id"], columns),
    )


def _lines(
    block: gemmi.cif.Block,
    chain: np.ndarray,
    number: np.ndarray,
    component: np.ndarray,
    name: np.ndarray,
    columns: dict[str, list[str]],
) -> np.ndarray:
    """Return the pairs of atoms that a simple drawing joins, int [L, 2]."""
    polymer = np.array([value not in (".", "?") for value in columns["label_seq_id"]])
    trace = [
        index
        for index in np.flatnonzero(polymer & np.isin(name.astype(str), _TRACE)).tolist()
        if name[index] != "CA" or columns["type_symbol"][index] == "C"
    ]
    pairs = [(a, b) for a, b in pairwise(trace) if chain[a] == chain[b]]
    rows = {(chain[i], int(number[i]), name[i]): i for i in range(len(name))}
    bonds: dict[str, list[tuple[str, str]]] = {}
    for row in block.find("_chem_comp_bond.", ["comp_id", "atom_id_1", "atom_id_2"]):
        code, first, second = (gemmi.cif.as_string(cell) for cell in row)
        bonds.setdefault(code, []).append((first, second))
    for index in np.flatnonzero(~polymer).tolist():
        for first, second in bonds.get(component[index], []):
            other = rows.get((chain[index], int(number[index]), second))
            if name[index] == first and other is not None:
                pairs.append((index, other))
    return np.array(pairs, np.int64).reshape(-1, 2)
