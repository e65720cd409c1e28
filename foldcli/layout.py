"""Where each file of a target lies: in a folder of its own, or flat as ColabFold has them.

The default layout is OUT/NAME/NAME…. In that of ColabFold, what it writes lies in OUT under its own names,
and what it does not know in OUT/foldcli/NAME/, so that scripts which list OUT find what they expect.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LayoutName = Literal["default", "colabfold"]
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
ModelKind = Literal["pdb", "cif", "scores"]

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
    "pdb": ("unrelaxed", ".pdb", True),
    "cif": ("unrelaxed", ".cif", False),
    "scores": ("scores", ".json", True),
}
MODEL_KINDS: tuple[ModelKind, ...] = tuple(_MODEL_FILES)
# as ModelResult.tag has it
_RANK_AND_TAG = r"rank_\d{3,}_alphafold2(_ptm)?_model_\d_seed_\d{3,}"


@dataclass(frozen=True)
class TargetFiles:
    """The places of one target's files.

    Args:
        name: file-safe name.
        out: the run's folder.
        layout: "default" or "colabfold".
    """

    name: str
    out: Path
    layout: LayoutName = "default"

    @property
    def own(self) -> Path:
        """The folder of this target alone; in the layout of ColabFold, of what ColabFold does not write."""
        return self.out / self.name if self.layout == "default" else self.out / "foldcli" / self.name

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
            kind: see MODEL_KINDS.
            rank: 1 is the best.
            tag: the model and its seed, such as alphafold2_ptm_model_3_seed_000.
        """
        middle, ending, known = _MODEL_FILES[kind]
        return self._folder(known) / f"{self.name}_{middle}_rank_{rank:03d}_{tag}{ending}"

    def models(self) -> list[Path]:
        """The files of all ranked models that are there, of whichever run."""
        found = []
        for middle, ending, known in _MODEL_FILES.values():
            # in a flat folder other targets' names may begin with this one's
            whole = re.compile(re.escape(f"{self.name}_{middle}_") + _RANK_AND_TAG + re.escape(ending))
            places = self._folder(known).glob(f"{self.name}_{middle}_rank_*{ending}")
            found += [path for path in places if whole.fullmatch(path.name)]
        return sorted(found)

    def _folder(self, known: bool) -> Path:
        return self.out if known and self.layout == "colabfold" else self.own


def partial_name(kind: ModelKind, tag: str) -> str:
    """The name of a model's file before the models are ranked."""
    middle, ending, _ = _MODEL_FILES[kind]
    return f"{middle}_{tag}{ending}"


def own_folder(folder: Path, name: str) -> Path:
    """Where what ColabFold does not write of a target lies: aside in a flat folder of ours, else beside."""
    aside = TargetFiles(name, folder, "colabfold").own
    return aside if aside.is_dir() else folder
