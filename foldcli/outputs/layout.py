"""Where each file of a target lies: in a folder of its own, flat as ColabFold has them, or beside each other.

The default layout is OUT/NAME/NAME…. In that of ColabFold, what it writes lies in OUT under its own names,
and what it does not know in OUT/foldcli/NAME/, so that scripts which list OUT find what they expect. In a
folder that foldcli did not lay out, such as ColabFold's own results or one target's folder by itself, all
files lie beside each other.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LayoutName = Literal["default", "colabfold", "beside"]
# those that a run can be asked for
LAYOUTS: tuple[LayoutName, ...] = ("default", "colabfold")
FileKind = Literal[
    "alignment",
    "hits",
    "coverage",
    "plddt",
    "pae",
    "thumbnail",
    "report",
    "done",
    "aligned_error",
    "finished_mark",
]
ModelKind = Literal["relaxed_pdb", "relaxed_cif", "pdb", "cif", "scores"]

# what follows NAME in a file's name, and whether ColabFold writes such a file
_FILES: dict[str, tuple[str, bool]] = {
    "alignment": (".a3m", True),
    "hits": (".m8", False),
    "coverage": ("_coverage.png", True),
    "plddt": ("_plddt.png", True),
    "pae": ("_pae.png", True),
    "thumbnail": ("_thumbnail.png", False),
    "report": (".html", False),
    "done": (".done.json", False),
    # these two are written in ColabFold's layout alone
    "aligned_error": ("_predicted_aligned_error_v1.json", True),
    "finished_mark": (".done.txt", True),
}
# what stands before the rank and after the tag in the name of a model's file, and whether ColabFold writes it
_MODEL_FILES: dict[ModelKind, tuple[str, str, bool]] = {
    # these two are never written here, but are in others' results
    "relaxed_pdb": ("relaxed", ".pdb", True),
    "relaxed_cif": ("relaxed", ".cif", False),
    "pdb": ("unrelaxed", ".pdb", True),
    "cif": ("unrelaxed", ".cif", False),
    "scores": ("scores", ".json", True),
}
# what is written of each model
MODEL_KINDS: tuple[ModelKind, ...] = ("pdb", "cif", "scores")
# the one to show first
STRUCTURE_KINDS: tuple[ModelKind, ...] = ("relaxed_pdb", "relaxed_cif", "pdb", "cif")
# others' results have other tags, and ranks of fewer digits
_SCORES = re.compile(r"(?P<name>.+)_scores_rank_(?P<rank>\d+)_(?P<tag>.+)\.json")
# as ModelResult.tag has it
_RANK_AND_TAG = r"rank_\d{3,}_alphafold2(_ptm)?_model_\d_seed_\d{3,}"


@dataclass(frozen=True)
class TargetFiles:
    """The places of one target's files.

    Args:
        name: file-safe name.
        out: the run's folder; of files beside each other, theirs.
        layout: "default", "colabfold" or "beside".
    """

    name: str
    out: Path
    layout: LayoutName = "default"

    @property
    def own(self) -> Path:
        """The folder of what ColabFold does not write: this target's alone, if there is one."""
        folders = {"default": (self.name,), "colabfold": ("foldcli", self.name), "beside": ()}
        return self.out.joinpath(*folders[self.layout])

    @property
    def work(self) -> Path:
        """The folder of what is half-way; gone once the target is finished."""
        return self.own / ".work"

    @property
    def shown(self) -> Path:
        """The folder in which a user finds the structures."""
        return self._folder(known=True)

    def path(self, kind: FileKind) -> Path:
        """Where the target's file of a kind lies, whether or not it is there."""
        ending, known = _FILES[kind]
        return self._folder(known) / f"{self.name}{ending}"

    def model(self, kind: ModelKind, rank: int, tag: str) -> Path:
        """Where a file of the model that came out at `rank` lies.

        Args:
            kind: see MODEL_KINDS and STRUCTURE_KINDS.
            rank: 1 is the best.
            tag: the model and its seed, such as alphafold2_ptm_model_3_seed_000.
        """
        middle, ending, known = _MODEL_FILES[kind]
        return self._folder(known) / f"{self.name}_{middle}_rank_{rank:03d}_{tag}{ending}"

    def models(self) -> list[Path]:
        """The files of MODEL_KINDS that are there, of whichever run."""
        found = []
        for middle, ending, known in (_MODEL_FILES[kind] for kind in MODEL_KINDS):
            # in a flat folder other targets' names may begin with this one's
            whole = re.compile(re.escape(f"{self.name}_{middle}_") + _RANK_AND_TAG + re.escape(ending))
            places = self._folder(known).glob(f"{self.name}_{middle}_rank_*{ending}")
            found += [path for path in places if whole.fullmatch(path.name)]
        return sorted(found)

    def scores(self) -> list[tuple[int, str, Path]]:
        """(rank, tag, file) of the scores that are there, best first, whoever wrote them."""
        there = _scores_in(self.shown)
        return sorted(
            (int(match["rank"]), match["tag"], path) for match, path in there if match["name"] == self.name
        )

    def _folder(self, known: bool) -> Path:
        return self.out if known and self.layout == "colabfold" else self.own


def partial_name(kind: ModelKind, tag: str) -> str:
    """The name of a model's file before the models are ranked."""
    middle, ending, _ = _MODEL_FILES[kind]
    return f"{middle}_{tag}{ending}"


def targets_in(folder: Path) -> list[TargetFiles]:
    """The targets whose scores lie in a folder, by name, in the layout that they are found to have.

    Args:
        folder: a run's in the layout of ColabFold, one target's own, or ColabFold's results.
    """
    names = sorted({match["name"] for match, _ in _scores_in(folder)})
    return [_found(folder, name) for name in names]


def records_in(out: Path) -> list[Path]:
    """Every done.json of a folder of results, in whichever layout, sorted."""
    layouts: tuple[LayoutName, ...] = (*LAYOUTS, "beside")
    return sorted(path for layout in layouts for path in out.glob(str(_any(layout).path("done"))))


def unfinished_in(out: Path) -> list[str]:
    """The names of the targets of a run that are half-way."""
    return [path.parent.name for layout in LAYOUTS for path in out.glob(str(_any(layout).work))]


def _scores_in(folder: Path) -> Iterator[tuple[re.Match[str], Path]]:
    for path in folder.glob("*_scores_rank_*.json"):
        if match := _SCORES.fullmatch(path.name):
            yield match, path


def _found(folder: Path, name: str) -> TargetFiles:
    """The files of a target whose scores lie in a folder."""
    flat = TargetFiles(name, folder, "colabfold")
    # where a run put each target into a folder of its own, files are beside each other in that
    return flat if flat.own.is_dir() else TargetFiles(name, folder, "beside")


def _any(layout: LayoutName) -> TargetFiles:
    """Patterns of all targets' files, from the run's folder on."""
    return TargetFiles("*", Path(), layout)
