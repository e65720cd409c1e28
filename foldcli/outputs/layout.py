"""Paths of a target's files in the layouts that foldcli writes and reads.

In the default layout everything is in OUT/NAME/. In ColabFold's layout, OUT has the files that ColabFold also
writes, under its names, so that scripts which list OUT find what they expect; all other files are in
OUT/foldcli/NAME/. The layout "single_folder" has all files in one folder, such as ColabFold's own results, or
the folder of one target without the rest of its run.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from model.chains import MAX_PDB_CHAINS

LayoutName = Literal["default", "colabfold", "single_folder"]
# the choices of --layout
LAYOUTS: tuple[LayoutName, ...] = ("default", "colabfold")
# a key of FILES
FileKind = str
# a key of _MODEL_FILES, or "recycle_N": the structure after N recycles
ModelKind = str

# for each kind: the part of the file name after NAME, and whether ColabFold writes this file too
FILES: dict[FileKind, tuple[str, bool]] = {
    "alignment": (".a3m", True),
    "hits": (".m8", False),
    "templates": ("_templates.tsv", False),
    "coverage": ("_coverage.png", True),
    "plddt": ("_plddt.png", True),
    "pae": ("_pae.png", True),
    "thumbnail": ("_thumbnail.png", False),
    "comparison": ("_comparison.json", False),
    "chimerax": (".cxc", False),
    "pymol": (".pml", False),
    "similar": ("_similar.tsv", False),
    "similar_structure": ("_similar.cif", False),
    "report": (".html", False),
    "done": (".done.json", False),
    "archive": (".result.zip", True),
    # these two are written in ColabFold's layout only
    "aligned_error": ("_predicted_aligned_error_v1.json", True),
    "finished_mark": (".done.txt", True),
}
# for each kind: the parts of the file name before the rank and after the tag, and whether ColabFold writes it
_MODEL_FILES: dict[ModelKind, tuple[str, str, bool]] = {
    "relaxed_pdb": ("relaxed", ".pdb", True),
    # read only: `foldcli relax` and other programs write it
    "relaxed_cif": ("relaxed", ".cif", False),
    "pdb": ("unrelaxed", ".pdb", True),
    "cif": ("unrelaxed", ".cif", False),
    "scores": ("scores", ".json", True),
    "contacts": ("contacts", ".tsv", False),
    # of all-atom networks: AlphaFold 3's two files, and the scores of pairs as ModelCIF
    "summary_confidences": ("summary_confidences", ".json", False),
    "confidences": ("confidences", ".json", False),
    "pairwise": ("pairwise", ".cif", False),
    "single": ("single_repr", ".npy", True),
    "pair": ("pair_repr", ".npy", True),
    "all": ("all", ".npz", True),
}
_RECYCLE = "recycle_"
# kinds of the files that every model of a single chain has
MODEL_KINDS: tuple[ModelKind, ...] = ("pdb", "cif", "scores")
# structure files, the preferred one first
STRUCTURE_KINDS: tuple[ModelKind, ...] = ("relaxed_pdb", "relaxed_cif", "pdb", "cif")
# also matches other programs' files, whose tags differ and whose ranks may have fewer digits
_SCORES = re.compile(r"(?P<name>.+)_scores_rank_(?P<rank>\d+)_(?P<tag>.+)\.json")
TAG = r"(?!.*rank_\d)[A-Za-z0-9_]{1,100}"
"""The pattern of the tags of foldcli's models: any name, so that no network has to be known here.

Without a rank inside it, a tag never includes a part of the name of another target."""
_RECYCLE_ENDING = r"(\.r\d+)?"


@dataclass(frozen=True)
class TargetFiles:
    """Paths of one target's files.

    Args:
        out: the run's folder; in the layout "single_folder", the folder of the files themselves.
        layout: "default", "colabfold" or "single_folder".
    """

    name: str
    out: Path
    layout: LayoutName = "default"

    @property
    def folder(self) -> Path:
        """The folder of the files that ColabFold does not write."""
        folders = {"default": (self.name,), "colabfold": ("foldcli", self.name), "single_folder": ()}
        return self.out.joinpath(*folders[self.layout])

    @property
    def work_folder(self) -> Path:
        """The folder of intermediate files; removed when the target is finished."""
        return self.folder / ".work"

    @property
    def staging_folder(self) -> Path:
        """The folder, below `work_folder`, of finished models until all are published."""
        return self.work_folder / "models"

    @property
    def search_folder(self) -> Path:
        """The folder, below `work_folder`, of the alignment and hits until they are published."""
        return self.work_folder / "search"

    @property
    def replaced_record(self) -> Path:
        """The path to which an earlier done.json is moved while a run publishes the target again."""
        return self.work_folder / "replaced.done.json"

    @property
    def lock_path(self) -> Path:
        """The path of the lock file, which exists while a run works on the target."""
        return self.folder / ".lock"

    def staged_path(self, kind: FileKind) -> Path:
        """Return the path of a file in `search_folder`."""
        return self.search_folder / f"{self.name}{FILES[kind][0]}"

    @property
    def structures_folder(self) -> Path:
        """The folder of the structure files."""
        return self._folder_of(colabfold_writes=True)

    @property
    def pattern(self) -> str:
        """The folder of the target's structures, or a pattern if all targets share it."""
        shared = bool(self.shared_prefixes())
        return f"{self.structures_folder}/{self.name}_*" if shared else f"{self.structures_folder}/"

    def path(self, kind: FileKind) -> Path:
        """Return the path of a file of the target, whether or not the file exists."""
        ending, colabfold_writes = FILES[kind]
        return self._folder_of(colabfold_writes) / f"{self.name}{ending}"

    def model_path(self, kind: ModelKind, rank: int, tag: str, digits: int = 3) -> Path:
        """Return the path of a file of a ranked model, whether or not the file exists.

        Args:
            kind: one of `model_kinds` or STRUCTURE_KINDS.
            rank: 1 is the best.
            tag: the model and its seed, such as alphafold2_ptm_model_3_seed_000.
            digits: least number of digits of the rank.
        """
        middle, ending, colabfold_writes = _model_file(kind)
        name = f"{self.name}_{middle}_rank_{rank:0{digits}d}_{tag}{ending}"
        return self._folder_of(colabfold_writes) / name

    def existing_structures(self, rank: int, tag: str, scores: Path | None = None) -> list[Path]:
        """Return the existing structure files of a model, the preferred one first.

        Args:
            rank: see `model_path`.
            tag: see `model_path`.
            scores: its score file, whose rank has as many digits: earlier versions of ColabFold write one.
        """
        digits = 3 if scores is None else len(scores.name[: -len(f"_{tag}.json")].rpartition("_")[2])
        paths = [self.model_path(kind, rank, tag, digits) for kind in STRUCTURE_KINDS]
        return [path for path in paths if path.is_file()]

    def structure_path(self, rank: int, tag: str) -> Path:
        """Return the path of a ranked model's unrelaxed structure: PDB, or mmCIF if there is no PDB file."""
        pdb, cif = self.model_path("pdb", rank, tag), self.model_path("cif", rank, tag)
        return cif if cif.is_file() and not pdb.is_file() else pdb

    def model_files(self) -> list[Path]:
        """Return the existing files of models, from this and earlier runs."""
        existing = []
        # `foldcli relax` and other programs write the other kind
        kinds = (kind for kind in _MODEL_FILES if kind != "relaxed_cif")
        # in a folder of several targets, another target's name may begin with this one's
        endings_of_targets = tuple(ending for ending, _ in FILES.values())
        for middle, ending, colabfold_writes in map(_model_file, kinds):
            prefix = re.escape(f"{self.name}_{middle}_rank_")
            pattern = re.compile(rf"{prefix}\d{{3,}}_{TAG}{_RECYCLE_ENDING}{re.escape(ending)}")
            paths = self._folder_of(colabfold_writes).glob(f"{self.name}_{middle}_rank_*{ending}")
            existing += [
                path
                for path in paths
                if pattern.fullmatch(path.name) and not path.name.endswith(endings_of_targets)
            ]
        return sorted(existing)

    @property
    def has_molecules(self) -> bool:
        """True if the target has models of an all-atom network, whose files are other ones."""
        return any(self.folder.glob(f"{self.name}_summary_confidences_rank_*.json"))

    def files_to_archive(self) -> list[Path]:
        """Return the existing files of the target that belong in its archive, without done.json."""
        excluded = ("archive", "done", "finished_mark")
        paths = [self.path(kind) for kind in FILES if kind not in excluded]
        return [path for path in paths if path.is_file()] + self.model_files()

    def score_files(self) -> list[tuple[int, str, Path]]:
        """Return (rank, tag, path) of the existing score files of any program, best rank first."""
        return sorted(
            (int(match["rank"]), match["tag"], path)
            for match, path in _score_files(self.structures_folder)
            if match["name"] == self.name
        )

    def shared_prefixes(self) -> list[str]:
        """Return the name prefixes of this target's files in a folder that all targets share."""
        if self.layout != "colabfold":
            return []
        target_files = [
            f"{self.name}{ending}" for ending, colabfold_writes in FILES.values() if colabfold_writes
        ]
        return target_files + [
            f"{self.name}_{middle}_rank_"
            for middle, _, colabfold_writes in _MODEL_FILES.values()
            if colabfold_writes
        ]

    def _folder_of(self, colabfold_writes: bool) -> Path:
        return self.out if colabfold_writes and self.layout == "colabfold" else self.folder


def model_kinds(extras: Sequence[str], num_recycles: int, num_chains: int = 1) -> tuple[ModelKind, ...]:
    """Return the kinds of the files of a model.

    Models of more than MAX_PDB_CHAINS chains have no files in PDB format.
    """
    passes = range(num_recycles + 1) if "recycles" in extras else ()
    kinds = [*MODEL_KINDS, *(f"{_RECYCLE}{number}" for number in passes)]
    if num_chains > MAX_PDB_CHAINS:
        kinds = [kind for kind in kinds if not _model_file(kind)[1].endswith(".pdb")]
    contacts = ["contacts"] if num_chains > 1 else []
    return (*kinds, *contacts, *(extra for extra in extras if extra != "recycles"))


def is_model_kind(kind: str) -> bool:
    """Return True for the kinds of files that models can have."""
    return kind in _MODEL_FILES or (kind.startswith(_RECYCLE) and kind.removeprefix(_RECYCLE).isdecimal())


def unranked_name(kind: ModelKind, tag: str) -> str:
    """Return the name of a model's file before the models are ranked."""
    middle, ending, _ = _model_file(kind)
    return f"{middle}_{tag}{ending}"


def _model_file(kind: ModelKind) -> tuple[str, str, bool]:
    """Return the parts of the name of a model's file; see _MODEL_FILES."""
    if kind.startswith(_RECYCLE):
        middle, ending, colabfold_writes = _MODEL_FILES["pdb"]
        return middle, f".r{kind.removeprefix(_RECYCLE)}{ending}", colabfold_writes
    return _MODEL_FILES[kind]


def find_targets(folder: Path) -> list[TargetFiles]:
    """Return the targets whose score files are directly in a folder, sorted by name.

    Args:
        folder: a run's folder in ColabFold's layout, the folder of one target, or ColabFold's own results.
    """
    names = sorted({match["name"] for match, _ in _score_files(folder)})
    targets = [TargetFiles(name, folder, "colabfold") for name in names]
    return [each if each.folder.is_dir() else replace(each, layout="single_folder") for each in targets]


def find_done_files(out: Path) -> list[Path]:
    """Return every done.json in a folder of results, in any layout, sorted."""
    layouts: tuple[LayoutName, ...] = (*LAYOUTS, "single_folder")
    return sorted(path for layout in layouts for path in out.glob(str(_pattern(layout).path("done"))))


def find_unfinished_names(out: Path) -> list[str]:
    """Return the names of the targets of a run that were started and not finished."""
    return [path.parent.name for layout in LAYOUTS for path in out.glob(str(_pattern(layout).work_folder))]


def _score_files(folder: Path) -> Iterator[tuple[re.Match[str], Path]]:
    for path in folder.glob("*_scores_rank_*.json"):
        if match := _SCORES.fullmatch(path.name):
            yield match, path


def _pattern(layout: LayoutName) -> TargetFiles:
    """Return glob patterns, relative to the run's folder, for the files of all targets."""
    return TargetFiles("*", Path(), layout)
