"""Finished targets, read from their files: ranked models with structure and scores."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from foldcli.outputs.done import read_done_record
from foldcli.outputs.layout import TargetFiles, find_targets
from foldcli.report.data.interfaces import ChainInterface, read_interfaces
from foldcli.report.data.model_atoms import ModelAtoms, read_model_atoms
from msa.base.errors import InputError
from msa.base.json_files import read_json

# maximum number of models on a page; hundreds, from many seeds, would be too large for browsers
MAX_MODELS = 25
# maximum number of cells in all PAE maps of a page together, one byte each
MAX_PAE_CELLS = 1_500_000
# Å; one byte in steps of 1/8 Å can store the largest possible PAE, 31.75 Å
PAE_STEP = 0.125


@dataclass(frozen=True, eq=False)
class PaeMap:
    """Predicted aligned error, reduced to a displayable size.

    Args:
        cells: uint8 [S, S], mean PAE of a block in steps of PAE_STEP. Rows are the residues that the
            structures are aligned on, columns the residues whose error is predicted.
        block: number of residues per cell, along each axis.
        maximum: largest PAE of all residue pairs, Å.
        mean: mean PAE of all residue pairs, Å.
    """

    cells: np.ndarray
    block: int
    maximum: float
    mean: float


@dataclass(frozen=True, eq=False)
class RankedModel:
    """One model of a target of N residues.

    Args:
        rank: 1 is the best.
        tag: name in files, such as alphafold2_ptm_model_3_seed_000.
        plddt: float64 [N], 0 to 100.
        ptm: predicted TM-score; None without a PAE head.
        pae: None without a PAE head.
        files: the model's files as links from the target's page, preferred structure first.
        copied_from: the template of a copied model, in words; None for predictions.
        iptm: ipTM of a complex; None for a single chain, or if the scores lack it.
        interfaces: scores and contacts of pairs of chains; empty for a single chain.
    """

    rank: int
    tag: str
    plddt: np.ndarray
    atoms: ModelAtoms
    ptm: float | None
    pae: PaeMap | None
    is_untrained: bool
    files: tuple[str, ...]
    copied_from: str | None = None
    iptm: float | None = None
    interfaces: tuple[ChainInterface, ...] = ()


@dataclass(frozen=True, eq=False)
class TargetResult:
    """The models of a target, and the record of how they were made.

    Args:
        sequence: one-letter codes, X for unknown residues.
        models: best first, at most MAX_MODELS.
        done: content of done.json, empty if there is none.
    """

    unit: ClassVar[str] = "residue"

    files: TargetFiles
    sequence: str
    models: tuple[RankedModel, ...]
    model_count: int
    done: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the target."""
        return self.files.name

    @property
    def is_untrained(self) -> bool:
        """True if any of the networks was untrained."""
        return any(model.is_untrained for model in self.models)

    @property
    def chains(self) -> tuple[tuple[str, int], ...]:
        """Name and number of residues of each chain."""
        return self.models[0].atoms.chains

    @property
    def chain_sequences(self) -> list[str]:
        """The sequence of each chain."""
        starts = self.models[0].atoms.chain_starts
        lengths = [length for _, length in self.chains]
        return [self.sequence[start : start + n] for start, n in zip(starts, lengths, strict=True)]

    @property
    def copied_from(self) -> str | None:
        """The template of the best model in words, if it was copied; None for predictions."""
        return self.models[0].copied_from

    @property
    def confidence(self) -> str:
        """The name of the residues' confidence: pLDDT, or expected lDDT for copies of templates."""
        return "pLDDT" if self.copied_from is None else "expected lDDT"


def finished_targets(out: Path) -> list[TargetFiles]:
    """Return all targets with ranked models in a folder and its direct subfolders."""
    subfolders = sorted(path for path in out.iterdir() if path.is_dir() and not path.name.startswith("."))
    targets = [files for folder in (out, *subfolders) for files in find_targets(folder)]
    return [
        # OUT/NAME is the folder of a target in a run's default layout, which has the same paths
        TargetFiles(files.name, out) if files.folder == out / files.name != out else files
        for files in targets
    ]


def read_done(files: TargetFiles) -> dict[str, Any]:
    """Return the content of a target's done.json; empty if there is none, as in ColabFold's results."""
    try:
        return read_done_record(files.path("done"))
    except (OSError, ValueError):
        return {}


def read_result(files: TargetFiles, done: dict[str, Any]) -> TargetResult:
    """Read the ranked models of one target.

    Raises:
        InputError: a file is missing, unreadable or inconsistent with the others; names it.
    """
    score_files = files.score_files()
    if not score_files:
        raise InputError(f"no ranked models of {files.name}", files.structures_folder)
    shown_files = score_files[:MAX_MODELS]
    max_side = int((MAX_PAE_CELLS / len(shown_files)) ** 0.5)
    models: list[RankedModel] = []
    for rank, tag, path in shown_files:
        model = _read_model(files, rank, tag, path, max_side)
        if models and len(model.plddt) != len(models[0].plddt):
            raise InputError(f"{len(model.plddt)} residues, but {len(models[0].plddt)} at rank 1", path)
        if models and model.atoms.chains != models[0].atoms.chains:
            raise InputError("other chains than at rank 1", path)
        models.append(model)
    return TargetResult(files, models[0].atoms.sequence, tuple(models), len(score_files), done)


def _read_model(files: TargetFiles, rank: int, tag: str, path: Path, max_side: int) -> RankedModel:
    """Read the scores and the structure of a model."""
    try:
        scores = read_json(path)
        plddt = np.asarray(scores["plddt"], np.float64)
        pae = None if scores.get("pae") is None else np.asarray(scores["pae"], np.float32)
        ptm = None if scores.get("ptm") is None else float(scores["ptm"])
        iptm = None if scores.get("iptm") is None else float(scores["iptm"])
        if not all(np.isfinite(values).all() for values in (plddt, pae, ptm, iptm) if values is not None):
            raise ValueError("a score is not finite")
        if plddt.ndim != 1:
            raise ValueError("pLDDT is no list of numbers")
        interfaces = read_interfaces(scores, files.model_path("contacts", rank, tag))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"not the scores of a model ({type(error).__name__}: {error})", path) from error
    length = len(plddt)
    if not length or (pae is not None and pae.shape != (length, length)):
        raise InputError("pLDDT and PAE have different lengths", path)
    structure, links = _find_structure(files, rank, tag, path)
    atoms = read_model_atoms(structure, length)
    pae_map = None if pae is None else reduce_pae(pae, max_side)
    copied_from = scores.get("copied_from")
    return RankedModel(
        rank, tag, plddt, atoms, ptm, pae_map, bool(scores.get("untrained")), links,
        None if copied_from is None else str(copied_from), iptm, interfaces,
    )  # fmt: skip


def link_from_page(files: TargetFiles, path: Path) -> str:
    """Return a file's path relative to the folder of the target's page, with slashes."""
    return Path(os.path.relpath(path, files.folder)).as_posix()


def _find_structure(files: TargetFiles, rank: int, tag: str, scores: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the structure to show, in PDB format if possible, and links to all files of the model."""
    existing = files.existing_structures(rank, tag, scores)
    if not existing:
        raise InputError(f"its structure {files.model_path('pdb', rank, tag).name} is missing", scores)
    contacts = files.model_path("contacts", rank, tag)
    model_files = [*existing, scores, *([contacts] if contacts.is_file() else [])]
    shown = min(existing, key=lambda path: path.suffix != ".pdb")
    return shown, tuple(link_from_page(files, path) for path in model_files)


def reduce_pae(pae: np.ndarray, max_side: int) -> PaeMap:
    """Return a PAE, float [N, N] in Å, averaged over blocks to at most max_side × max_side cells."""
    length = len(pae)
    block = -(-length // max_side)
    means = pae
    if block > 1:
        starts = np.arange(0, length, block)
        sizes = np.diff(np.append(starts, length))
        sums = np.add.reduceat(np.add.reduceat(pae, starts, 0, dtype=np.float64), starts, 1)
        means = sums / np.outer(sizes, sizes)
    cells = np.clip(np.rint(means / PAE_STEP), 0, 255).astype(np.uint8)
    return PaeMap(cells, block, float(pae.max()), float(pae.mean(dtype=np.float64)))
