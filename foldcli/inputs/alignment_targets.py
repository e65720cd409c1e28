"""Targets given as alignments: files, folders of files, and the target folders of AlphaFold and OpenFold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from features.entry import is_complex_entry, read_entry_metadata
from foldcli.inputs.names import (
    ALIGNMENT_SUFFIXES,
    ENTRY_SUFFIX,
    FASTA_SUFFIXES,
    check_unique_names,
    file_endings,
    file_safe_name,
)
from msa.errors import InputError
from msa.io.alignments import Alignment, parse_alignment
from msa.io.complex_a3m import ComplexAlignment, is_complex_a3m, parse_complex_a3m
from msa.io.compression import SUFFIXES, open_input, read_bytes

# the alignments of a target in the order in which AlphaFold concatenates them; alternatives share a line
_ALPHAFOLD_FILES = (
    ("uniref90_hits",),
    ("bfd_uniclust_hits", "bfd_uniref_hits", "small_bfd_hits"),
    ("mgnify_hits",),
)
_ALPHAFOLD_NAMES = frozenset(name for names in _ALPHAFOLD_FILES for name in names)
_ALPHAFOLD_SUFFIXES = (".a3m", ".sto")
# AlphaFold's subfolder of a target's folder for these files
_MSAS = "msas"
# enough for the first line of any complex
_FIRST_LINE_BYTES = 2**16


@dataclass(frozen=True)
class AlignmentTarget:
    """A target with its alignments.

    Args:
        name: file-safe name.
        files: alignment files, in the order in which their rows are concatenated; `-` is standard input.
        content: content of standard input, if it has already been read.
        is_complex: whether the file is an A3M or a cache entry of a complex.
    """

    name: str
    files: tuple[str, ...]
    content: bytes | None = None
    is_complex: bool = False

    def read_contents(self) -> list[bytes]:
        """Read the decompressed content of every file.

        Raises:
            InputError: a compressed file is truncated or damaged.
            OSError: a file cannot be read.
        """
        return [read_bytes(file) for file in self.files] if self.content is None else [self.content]

    def parse(self, contents: list[bytes]) -> list[Alignment]:
        """Parse the contents of all files.

        Raises:
            InputError: see `msa.io.alignments.read_alignment`.
        """
        return [parse_alignment(*each) for each in zip(contents, self.files, strict=True)]

    def read(self) -> list[Alignment]:
        """Read the alignments; raises the exceptions of `read_contents` and `parse`."""
        return self.parse(self.read_contents())

    def parse_complex(self, contents: list[bytes]) -> ComplexAlignment | None:
        """Parse the contents of all files if they are the A3M of a complex; return None for others.

        Raises:
            InputError: see `msa.io.complex_a3m.parse_complex_a3m`.
        """
        (content, *others), file = contents, self.files[0]
        if others or not is_complex_a3m(content, file):
            return None
        return parse_complex_a3m(content, file)

    def read_complex(self) -> ComplexAlignment:
        """Read the A3M file of a complex.

        Raises:
            InputError: the file is damaged; see `msa.io.complex_a3m.parse_complex_a3m`.
            OSError: the file cannot be read.
        """
        return parse_complex_a3m(self.read_contents()[0], self.files[0])


def starts_as_complex(target: AlignmentTarget) -> bool:
    """Return whether a target's file starts as an A3M or a cache entry of a complex.

    False if it cannot be read.
    """
    file = target.files[0]
    if len(target.files) > 1:
        return False
    try:
        if file.endswith(ENTRY_SUFFIX):
            return is_complex_entry(read_entry_metadata(file))
        if target.content is not None:
            return is_complex_a3m(target.content, file)
        with open_input(file) as stream:
            return is_complex_a3m(stream.read(_FIRST_LINE_BYTES), file)
    except (InputError, OSError):
        # reported when the whole file is read
        return False


def target_name(path: str) -> str:
    """Return the file-safe name of a target given as a file.

    It is the file's name without folder and known suffixes; for AlphaFold's and OpenFold's files, the name of
    the target's folder.
    """
    if path == "-":
        return "stdin"
    stem = _stem(Path(path).name)
    if stem in _ALPHAFOLD_NAMES:
        return _folder_name(Path(path).absolute().parent)
    return file_safe_name(stem)


def common_target_name(files: Sequence[str | None]) -> str | None:
    """Return the name of the target with these files; None if one is not a file or the names differ."""
    names = {None if file in (None, "-") else target_name(str(file)) for file in files}
    return names.pop() if len(names) == 1 else None


def find_alignment_targets(
    inputs: Sequence[str], suffixes: Sequence[str] = (*ALIGNMENT_SUFFIXES, *FASTA_SUFFIXES)
) -> list[AlignmentTarget]:
    """Return the targets in files and folders.

    Args:
        inputs: files; folders of files or of target folders; target folders; `-`.
        suffixes: suffixes of the files to use in a folder, compressed or not.

    Raises:
        InputError: a folder has no target, or two alignments of the same database, or two targets have the
            same name.
    """
    targets: list[AlignmentTarget] = []
    for path in inputs:
        if path != "-" and Path(path).is_dir():
            targets += _find_in_folder(Path(path), suffixes)
        else:
            targets.append(AlignmentTarget(target_name(path), (path,)))
    check_unique_names((target.name, target.files[0]) for target in targets)
    return targets


def find_alphafold_files(folder: Path) -> tuple[str, ...]:
    """Return the alignments in a folder written by AlphaFold or OpenFold, in AlphaFold's order.

    Other alignments, such as those for templates or for pairing chains, are ignored, as AlphaFold does for a
    single chain. The result is empty for any other folder.

    Raises:
        InputError: two files belong to the same database.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(folder.iterdir()):
        name = path.name.lower()
        stem = _stem(name)
        if stem in _ALPHAFOLD_NAMES and name[len(stem) :].startswith(_ALPHAFOLD_SUFFIXES):
            found.setdefault(stem, []).append(str(path))
    files = []
    for names in _ALPHAFOLD_FILES:
        alternatives = [path for name in names for path in found.get(name, [])]
        if len(alternatives) > 1:
            reason = f"an alignment of the same database as {Path(alternatives[0]).name}"
            raise InputError(reason, alternatives[1])
        files += alternatives
    return tuple(files)


def _find_in_folder(folder: Path, suffixes: Sequence[str]) -> Iterator[AlignmentTarget]:
    """Yield the target of a target folder; for any other folder, the targets of its files and subfolders."""
    whole = _target_of_folder(folder)
    if whole is not None:
        yield whole
        return
    endings = file_endings(suffixes)
    empty = True
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            target = _target_of_folder(path)
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
        expected = ", ".join(dict.fromkeys(suffixes))
        raise InputError(
            f"the folder has no file ending in {expected}, and no folder with uniref90_hits", folder
        )


def _target_of_folder(folder: Path) -> AlignmentTarget | None:
    """Return the target of a folder written by AlphaFold or OpenFold; None for any other folder."""
    subfolder = folder / _MSAS
    files = find_alphafold_files(folder) or (find_alphafold_files(subfolder) if subfolder.is_dir() else ())
    return AlignmentTarget(_folder_name(folder), files) if files else None


def _folder_name(folder: Path) -> str:
    folder = folder.absolute()
    return file_safe_name((folder.parent if folder.name == _MSAS else folder).name)


def _stem(name: str) -> str:
    """Return a file name without the suffixes of its compression and format."""
    for suffix in (*SUFFIXES, *ALIGNMENT_SUFFIXES, *FASTA_SUFFIXES, ENTRY_SUFFIX):
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    return name
