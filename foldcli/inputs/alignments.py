"""Alignments that a user names: files, folders of them, and AlphaFold's and OpenFold's folders per target."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.inputs.targets import FASTA_SUFFIXES, file_endings, file_safe, unique_names
from msa.errors import InputError
from msa.io.compression import SUFFIXES

if TYPE_CHECKING:
    from msa.io.alignments import Alignment

# by these names a file is an alignment whatever it holds; of the others the content is asked
ALIGNMENT_SUFFIXES = (".a3m", ".sto", ".stockholm", ".afa")
ENTRY_SUFFIX = ".safetensors"
# one target's files, in the order in which AlphaFold joins them; of each line there is one
MERGED = (
    ("uniref90_hits",),
    ("bfd_uniclust_hits", "bfd_uniref_hits", "small_bfd_hits"),
    ("mgnify_hits",),
)
_MERGED_NAMES = frozenset(name for names in MERGED for name in names)
_MERGED_SUFFIXES = (".a3m", ".sto")
# AlphaFold keeps the files in a folder of this name within the target's
_MSAS = "msas"


@dataclass(frozen=True)
class AlignmentTarget:
    """One target and the alignments of it.

    Args:
        name: file-safe.
        files: in the order in which their rows follow each other; `-` is standard input.
        content: what was read of standard input, where that has been done.
    """

    name: str
    files: tuple[str, ...]
    content: bytes | None = None

    def contents(self) -> list[bytes]:
        """What the files hold, decompressed.

        Raises:
            InputError, OSError: see `msa.io.compression.read_bytes`.
        """
        from msa.io.compression import read_bytes

        return [read_bytes(file) for file in self.files] if self.content is None else [self.content]

    def parse(self, contents: list[bytes]) -> "list[Alignment]":
        """The alignments in `contents`.

        Raises:
            InputError: see `msa.io.alignments.read_alignment`.
        """
        from msa.io.alignments import parse_alignment

        return [parse_alignment(*each) for each in zip(contents, self.files, strict=True)]

    def read(self) -> "list[Alignment]":
        """The alignments; raises what `contents` and `parse` do."""
        return self.parse(self.contents())


def target_name(path: str) -> str:
    """The file-safe name of a target given as a file.

    Its name without folder and known suffixes; of a file that AlphaFold or OpenFold named, its folder's.
    """
    if path == "-":
        return "stdin"
    stem = _stem(Path(path).name)
    if stem in _MERGED_NAMES:
        return _folder_name(Path(path).absolute().parent)
    return file_safe(stem)


def name_of_files(files: Sequence[str | None]) -> str | None:
    """The name of the target that was made of these files; None if one is no file or they differ."""
    names = {None if file in (None, "-") else target_name(str(file)) for file in files}
    return names.pop() if len(names) == 1 else None


def alignment_targets(
    inputs: Sequence[str], suffixes: Sequence[str] = (*ALIGNMENT_SUFFIXES, *FASTA_SUFFIXES)
) -> list[AlignmentTarget]:
    """The targets that inputs name.

    Args:
        inputs: files; folders of files or of folders of one target each; one target's folder; `-`.
        suffixes: of the files that are taken of a folder, compressed or not.

    Raises:
        InputError: a folder has none, or two alignments of one database, or two targets have one name.
    """
    targets: list[AlignmentTarget] = []
    for given in inputs:
        if given != "-" and Path(given).is_dir():
            targets += _in_folder(Path(given), suffixes)
        else:
            targets.append(AlignmentTarget(target_name(given), (given,)))
    unique_names((target.name, target.files[0]) for target in targets)
    return targets


def merged_files(folder: Path) -> tuple[str, ...]:
    """The alignments of a target's folder as AlphaFold or OpenFold leaves it, in AlphaFold's order.

    Others, such as those of templates or for the pairing of chains, are left out, as AlphaFold does for a
    single chain. Nothing where the folder is no such folder.

    Raises:
        InputError: two files are of one database.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(folder.iterdir()):
        name = path.name.lower()
        stem = _stem(name)
        if stem in _MERGED_NAMES and name[len(stem) :].startswith(_MERGED_SUFFIXES):
            found.setdefault(stem, []).append(str(path))
    files = []
    for names in MERGED:
        of_one = [path for name in names for path in found.get(name, [])]
        if len(of_one) > 1:
            raise InputError(f"an alignment of the same database as {Path(of_one[0]).name}", of_one[1])
        files += of_one
    return tuple(files)


def _in_folder(folder: Path, suffixes: Sequence[str]) -> Iterator[AlignmentTarget]:
    """The targets of a folder: one whose folder it is, or those of its files and folders."""
    own = _of_one_target(folder)
    if own is not None:
        yield own
        return
    endings = file_endings(suffixes)
    empty = True
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            target = _of_one_target(path)
        elif path.name.lower().endswith(endings):
            target = AlignmentTarget(target_name(str(path)), (str(path),))
        else:
            continue
        if target is not None:
            empty = False
            yield target
    if empty:
        if next(folder.glob(f"??/*{ENTRY_SUFFIX}"), None) is not None:
            raise InputError("a feature cache: predict from it with --cache and names, or --all", folder)
        wanted = ", ".join(dict.fromkeys(suffixes))
        raise InputError(
            f"the folder has no file ending in {wanted}, and no folder with uniref90_hits", folder
        )


def _of_one_target(folder: Path) -> AlignmentTarget | None:
    inner = folder / _MSAS
    files = merged_files(folder) or (merged_files(inner) if inner.is_dir() else ())
    return AlignmentTarget(_folder_name(folder), files) if files else None


def _folder_name(folder: Path) -> str:
    folder = folder.absolute()
    return file_safe((folder.parent if folder.name == _MSAS else folder).name)


def _stem(name: str) -> str:
    """A file's name without what says how it is compressed and what it holds."""
    for suffix in (*SUFFIXES, *ALIGNMENT_SUFFIXES, *FASTA_SUFFIXES, ENTRY_SUFFIX):
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    return name
