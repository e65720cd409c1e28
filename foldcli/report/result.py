"""A finished target as its files tell it: ranked models with structure and scores."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldcli.outputs.layout import STRUCTURE_KINDS, TargetFiles
from msa.errors import InputError

if TYPE_CHECKING:
    import numpy as np

# the page of a run with hundreds of seeds stays of a size that a browser opens
MOST_MODELS = 25
# cells of all PAE maps of one page together, one byte each
PAE_CELLS = 1_500_000
# Å; what eight bits in steps of 1/8 Å hold is a little more than the largest PAE, 31.75 Å
PAE_STEP = 0.125

_ONE_LETTER = {
    "ALA": "A", "ARG": "R", "ASN": "N", "ASP": "D", "CYS": "C", "GLN": "Q", "GLU": "E", "GLY": "G",
    "HIS": "H", "ILE": "I", "LEU": "L", "LYS": "K", "MET": "M", "PHE": "F", "PRO": "P", "SER": "S",
    "THR": "T", "TRP": "W", "TYR": "Y", "VAL": "V",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class PaeMap:
    """Predicted aligned error, small enough to be looked at.

    Args:
        cells: uint8 [S, S], mean PAE of a block in steps of PAE_STEP; row: the residue aligned on.
        block: residues that one cell stands for, along each axis.
        highest, mean: Å, of all pairs of residues.
    """

    cells: "np.ndarray"
    block: int
    highest: float
    mean: float


@dataclass(frozen=True, eq=False)
class RankedModel:
    """One model of a target.

    Args:
        rank: 1 is best.
        tag: such as alphafold2_ptm_model_3_seed_000.
        plddt: float64 [N], 0–100.
        ca: float64 [N, 3], Å; NaN where a residue has no atoms.
        ptm: None without a PAE head.
        pae: None without a PAE head.
        untrained: its network's parameters mean nothing.
        files: what it is written in, best known first, as links from the target's page.
    """

    rank: int
    tag: str
    plddt: "np.ndarray"
    ca: "np.ndarray"
    ptm: float | None
    pae: PaeMap | None
    untrained: bool
    files: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Result:
    """A target's models and what is known of how they were made.

    Args:
        files: of the target.
        sequence: one letter a residue, X where it is not known.
        models: best first, at most MOST_MODELS.
        models_in_all: how many there are.
        done: what done.json says, empty where there is none.
    """

    files: TargetFiles
    sequence: str
    models: tuple[RankedModel, ...]
    models_in_all: int
    done: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.files.name

    @property
    def untrained(self) -> bool:
        return any(model.untrained for model in self.models)


def read_result(files: TargetFiles, done: dict[str, Any]) -> Result:
    """Read the ranked models of one target.

    Args:
        files: of the target.
        done: the content of its done.json.

    Raises:
        InputError: a file that is missing, unreadable or at odds with the others; it is named.
        OSError: the folder cannot be read.
    """
    ranked = files.scores()
    if not ranked:
        raise InputError(f"no ranked models of {files.name}", files.structures_folder)
    shown = ranked[:MOST_MODELS]
    side = int((PAE_CELLS / len(shown)) ** 0.5)
    models: list[RankedModel] = []
    sequence = ""
    for rank, tag, path in shown:
        model, letters = _read_model(files, rank, tag, path, side)
        if models and len(model.plddt) != len(models[0].plddt):
            raise InputError(f"{len(model.plddt)} residues, and {len(models[0].plddt)} at rank 1", path)
        models.append(model)
        sequence = sequence or letters
    return Result(files, sequence, tuple(models), len(ranked), done)


def _read_model(files: TargetFiles, rank: int, tag: str, path: Path, side: int) -> tuple[RankedModel, str]:
    import numpy as np

    try:
        scores = json.loads(path.read_text())
        plddt = np.asarray(scores["plddt"], np.float64)
        pae = None if scores.get("pae") is None else np.asarray(scores["pae"], np.float32)
        ptm = None if scores.get("ptm") is None else float(scores["ptm"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"not the scores of a model ({type(error).__name__}: {error})", path) from error
    count = len(plddt)
    if plddt.ndim != 1 or not count or (pae is not None and pae.shape != (count, count)):
        raise InputError("pLDDT and PAE are not of one length", path)
    structure, links = _structure(files, rank, tag, path)
    ca, letters = read_ca(structure, count)
    shrunk = None if pae is None else shrink_pae(pae, side)
    return RankedModel(rank, tag, plddt, ca, ptm, shrunk, bool(scores.get("untrained")), links), letters


def _structure(files: TargetFiles, rank: int, tag: str, scores: Path) -> tuple[Path, tuple[str, ...]]:
    """The structure to show, and links to all files of the model."""
    there = [path for kind in STRUCTURE_KINDS if (path := files.model(kind, rank, tag)).is_file()]
    for path in there:
        if path.suffix == ".pdb":
            links = (Path(os.path.relpath(each, files.folder)).as_posix() for each in (*there, scores))
            return path, tuple(links)
    raise InputError(f"its structure {files.model('pdb', rank, tag).name} is missing", scores)


def read_ca(path: Path, count: int) -> "tuple[np.ndarray, str]":
    """Cα coordinates [N, 3] (Å, NaN where there is none) and the sequence of a PDB file.

    Args:
        path: PDB file of one model.
        count: residues of the target. A file that lacks some has them by number, from 1.

    Raises:
        InputError: more residues than the target, or a line without coordinates; named with its number.
    """
    import numpy as np

    found: list[tuple[int, str, tuple[float, float, float]]] = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if line.startswith("ATOM") and line[12:16] == " CA ":
            try:
                place = (float(line[30:38]), float(line[38:46]), float(line[46:54]))
                found.append((int(line[22:26]), line[17:20], place))
            except ValueError as error:
                raise InputError("an atom without number or coordinates", path, number) from error
        elif line.startswith("ENDMDL"):
            break
    if len(found) > count:
        raise InputError(f"{len(found)} residues, and its scores have {count}", path)
    whole = len(found) == count
    ca, letters = np.full((count, 3), np.nan), ["X"] * count
    for order, (residue, name, place) in enumerate(found):
        i = order if whole else residue - 1
        if not 0 <= i < count:
            raise InputError(f"residue {residue} of {count}", path)
        ca[i], letters[i] = place, _ONE_LETTER.get(name, "X")
    return ca, "".join(letters)


def shrink_pae(pae: "np.ndarray", side: int) -> PaeMap:
    """PAE [N, N] (Å) as at most side × side cells of one byte, each the mean of a block of residue pairs."""
    import numpy as np

    count = len(pae)
    block = -(-count // side)
    means = pae
    if block > 1:
        starts = np.arange(0, count, block)
        sizes = np.diff(np.append(starts, count))
        sums = np.add.reduceat(np.add.reduceat(pae, starts, 0, dtype=np.float64), starts, 1)
        means = sums / np.outer(sizes, sizes)
    cells = np.clip(np.rint(means / PAE_STEP), 0, 255).astype(np.uint8)
    return PaeMap(cells, block, float(pae.max()), float(pae.mean(dtype=np.float64)))
