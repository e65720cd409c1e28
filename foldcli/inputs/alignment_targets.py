"""Targets given as alignments: files, folders of files, and the target folders of AlphaFold and OpenFold.

In AlphaFold-Multimer's folders, `msas/chain_id_map.json` has the ids and sequences of all chains. The
alignments of a chain are in a folder named after its id, such as `msas/A`; a copy of an earlier chain has no
folder. The rows of `uniprot_hits` are paired.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from features.alphafold2.deterministic import make_features
from features.cache.entry import is_complex_entry, read_entry_metadata
from features.chemistry.residues import check_foldable
from features.complexes.pairing import DEFAULT_PAIRING
from features.complexes.rows import ComplexRows, pair_chains, rows_of_file
from foldcli.inputs.formats.json_with_lines import MappingWithLines, parse_json_with_lines
from foldcli.inputs.names import (
    ALIGNMENT_SUFFIXES,
    ENTRY_SUFFIX,
    FASTA_SUFFIXES,
    check_unique_names,
    file_endings,
    file_safe_name,
    log_unusual_names,
)
from msa.alignments.complex_a3m import is_complex_a3m, parse_complex_a3m
from msa.alignments.files import Alignment, check_protein, parse_alignment
from msa.base.errors import InputError
from msa.io.compression import SUFFIXES, list_folder, open_input, read_bytes

# alignments of a target in the order in which AlphaFold concatenates them; one name of each line is present
_ALPHAFOLD_FILES = (
    ("uniref90_hits",),
    ("bfd_uniclust_hits", "bfd_uniref_hits", "small_bfd_hits"),
    ("mgnify_hits",),
)
# the alignment whose rows are paired
_PAIRING_NAME = "uniprot_hits"
_CHAIN_MAP = "chain_id_map.json"
_ALPHAFOLD_NAMES = frozenset(name for names in _ALPHAFOLD_FILES for name in names)
_ALPHAFOLD_SUFFIXES = (".a3m", ".sto")
# AlphaFold's subfolder of a target's folder for these files
_MSAS = "msas"
_SEQUENCE = re.compile("[A-Za-z]+")
_CHAIN_ID = re.compile("[A-Za-z0-9_-]{1,100}")
# enough for the first line of any complex
_FIRST_LINE_BYTES = 2**16


@dataclass(frozen=True)
class ChainFiles:
    """The alignments of a chain in a folder of AlphaFold-Multimer.

    Args:
        files: its alignments in AlphaFold's order; empty for a copy of an earlier chain.
        pairing_file: the alignment whose rows are paired; None if there is none.
    """

    name: str
    sequence: str
    files: tuple[str, ...] = ()
    pairing_file: str | None = None


@dataclass(frozen=True)
class AlignmentTarget:
    """A target with its alignments.

    Args:
        files: alignment files, in the order in which their rows are concatenated; `-` is standard input.
        content: content of standard input, if it has already been read.
        is_complex: whether the target is a complex, given as an A3M file, a cache entry or a folder.
        chains: the chains of an AlphaFold-Multimer folder; the first of `files` is then its list of chains.
    """

    name: str
    files: tuple[str, ...]
    content: bytes | None = None
    is_complex: bool = False
    chains: tuple[ChainFiles, ...] = ()

    def read_contents(self) -> list[bytes]:
        """Read the decompressed content of every file.

        Raises:
            InputError: a compressed file is truncated or damaged.
        """
        return [read_bytes(file) for file in self.files] if self.content is None else [self.content]

    def parse(self, contents: list[bytes]) -> list[Alignment]:
        """Parse the files' contents, one alignment per file."""
        alignments = [parse_alignment(*each) for each in zip(contents, self.files, strict=True)]
        for alignment in alignments:
            check_protein(alignment.names[0], alignment.query, alignment.source)
        return alignments

    def read(self) -> list[Alignment]:
        """Read the alignments; raises the exceptions of `read_contents` and `parse`."""
        return self.parse(self.read_contents())

    @property
    def sources(self) -> tuple[str, ...]:
        """The files that a cache entry records as the target's sources."""
        return self.files[:1] if self.chains else self.files

    def parse_complex(self, contents: list[bytes]) -> ComplexRows | None:
        """Return the rows of a complex, given the contents of all files; None for a single chain."""
        (content, *others), file = contents, self.files[0]
        if self.chains:
            rows = self._pair_chains(dict(zip(self.files, contents, strict=True)))
        elif others or not is_complex_a3m(content, file):
            return None
        else:
            rows = rows_of_file(parse_complex_a3m(content, file))
        for sequence in rows.sequences:
            check_foldable(sequence)
            check_protein("", sequence, file)
        return rows

    def _pair_chains(self, contents: dict[str, bytes]) -> ComplexRows:
        """Return the rows of the chains of a folder, given the contents of its files."""
        unpaired_features, pairing_features = {}, {}
        for chain in self.chains:
            alignments = [parse_alignment(contents[file], file) for file in chain.files]
            if chain.pairing_file is not None:
                alignments.append(parse_alignment(contents[chain.pairing_file], chain.pairing_file))
            for alignment in alignments:
                if alignment.query != chain.sequence:
                    reason = f"its query is not chain {chain.name} of {_CHAIN_MAP}"
                    raise InputError(reason, alignment.source)
            if chain.pairing_file is not None:
                pairing_features[chain.sequence] = make_features([alignments.pop()])
            if alignments:
                unpaired_features[chain.sequence] = make_features(alignments)
        sequences = [chain.sequence for chain in self.chains]
        if pairing_features and len(pairing_features) < len(unpaired_features):
            name = next(chain.name for chain in self.chains if chain.sequence not in pairing_features)
            raise InputError(f"chain {name} has no {_PAIRING_NAME}, which other chains have", self.files[0])
        return pair_chains(
            [unpaired_features[sequence] for sequence in sequences],
            DEFAULT_PAIRING,
            [pairing_features[sequence] for sequence in sequences] if pairing_features else None,
        )


def starts_as_complex(target: AlignmentTarget) -> bool:
    """Return True if the start of a target's file is that of a complex; False if it cannot be read."""
    file = target.files[0]
    if len(target.files) > 1:
        return bool(target.chains)
    try:
        if file.endswith(ENTRY_SUFFIX):
            return is_complex_entry(read_entry_metadata(file))
        if target.content is not None:
            return is_complex_a3m(target.content, file)
        with open_input(file) as stream:
            return is_complex_a3m(stream.read(_FIRST_LINE_BYTES), file)
    except (InputError, OSError):
        # the error is raised again, and reported, when the whole file is read
        return False


def target_name(path: str) -> str:
    """Return the file-safe name of a target given as a file.

    It is the file's name without folder and known suffixes; for AlphaFold's and OpenFold's files, the name of
    the target's folder.
    """
    return file_safe_name(_given_name(path))


def _given_name(path: str) -> str:
    """Return the name of a target given as a file, with all its characters."""
    if path == "-":
        return "stdin"
    stem = _stem(Path(path).name)
    if Path(path).name == _CHAIN_MAP or stem in _ALPHAFOLD_NAMES:
        return _folder_name(Path(path).absolute().parent)
    return stem


def common_target_name(files: Sequence[str | None]) -> str | None:
    """Return the target name that all files agree on; None if they differ, or if a source is not a file."""
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
            targets.append(target_of_file(path))
    check_unique_names((target.name, target.files[0]) for target in targets)
    log_unusual_names((_given_name(target.files[0]), target.name) for target in targets)
    return targets


def find_alphafold_files(folder: Path) -> tuple[str, ...]:
    """Return the alignments in a folder written by AlphaFold or OpenFold, in AlphaFold's order.

    Other alignments, such as those for templates or for pairing chains, are ignored, as AlphaFold does for a
    single chain. The result is empty for any other folder.

    Raises:
        InputError: two files belong to the same database.
    """
    paths_by_stem: dict[str, list[str]] = {}
    for path in list_folder(folder):
        name = path.name.lower()
        stem = _stem(name)
        if stem in _ALPHAFOLD_NAMES and name[len(stem) :].startswith(_ALPHAFOLD_SUFFIXES):
            paths_by_stem.setdefault(stem, []).append(str(path))
    files = []
    for names in _ALPHAFOLD_FILES:
        alternatives = [path for name in names for path in paths_by_stem.get(name, [])]
        if len(alternatives) > 1:
            reason = f"an alignment of the same database as {Path(alternatives[0]).name}"
            raise InputError(reason, alternatives[1])
        files += alternatives
    return tuple(files)


def _find_in_folder(folder: Path, suffixes: Sequence[str]) -> Iterator[AlignmentTarget]:
    """Yield the target of a target folder; for any other folder, the targets of its files and subfolders."""
    folder_target = _target_of_folder(folder)
    if folder_target is not None:
        yield folder_target
        return
    endings = file_endings(suffixes)
    has_targets = False
    for path in list_folder(folder):
        if path.is_dir():
            target = _target_of_folder(path)
        elif path.name.lower().endswith(endings):
            target = AlignmentTarget(target_name(str(path)), (str(path),))
        else:
            continue
        if target is not None:
            has_targets = True
            yield target
    if not has_targets:
        if next(folder.glob(f"??/*{ENTRY_SUFFIX}"), None) is not None:
            raise InputError("a feature cache: predict from it with --cache and names, or --all", folder)
        expected = ", ".join(dict.fromkeys(suffixes))
        raise InputError(
            f"the folder has no file ending in {expected}, and no folder with uniref90_hits", folder
        )


def _target_of_folder(folder: Path) -> AlignmentTarget | None:
    """Return the target of a folder written by AlphaFold or OpenFold; None for any other folder."""
    subfolder = folder / _MSAS
    for chain_map in (folder / _CHAIN_MAP, subfolder / _CHAIN_MAP):
        if chain_map.is_file():
            return target_of_file(str(chain_map))
    files = find_alphafold_files(folder) or (find_alphafold_files(subfolder) if subfolder.is_dir() else ())
    return AlignmentTarget(file_safe_name(_folder_name(folder)), files) if files else None


def target_of_file(path: str) -> AlignmentTarget:
    """Return the target of a file; for AlphaFold-Multimer's list of chains, that of the whole folder.

    Raises:
        InputError: the list of chains is invalid, or a chain has no alignments.
    """
    if Path(path).name != _CHAIN_MAP:
        return AlignmentTarget(target_name(path), (path,))
    chains: list[ChainFiles] = []
    for name, sequence in _read_chain_map(path):
        if any(chain.sequence == sequence for chain in chains):
            chains.append(ChainFiles(name, sequence))
            continue
        folder = Path(path).with_name(name)
        files = find_alphafold_files(folder) if folder.is_dir() else ()
        if not files:
            raise InputError(f"chain {name} has no alignments in {folder}", path)
        pairing_file = next(
            (str(file) for file in list_folder(folder) if _stem(file.name) == _PAIRING_NAME), None
        )
        chains.append(ChainFiles(name, sequence, files, pairing_file))
    name = target_name(path)
    if len(chains) == 1:
        return AlignmentTarget(name, chains[0].files)
    files = tuple(file for chain in chains for file in (*chain.files, chain.pairing_file) if file is not None)
    return AlignmentTarget(name, (path, *files), is_complex=True, chains=tuple(chains))


def _read_chain_map(path: str) -> list[tuple[str, str]]:
    """Return the ids and sequences of the chains in AlphaFold-Multimer's list."""
    chains = parse_json_with_lines(read_bytes(path), path)
    if not isinstance(chains, MappingWithLines) or not chains:
        raise InputError("expected an object with the chains of a complex", path)
    ids_and_sequences = []
    for name, chain in chains.items():
        sequence = chain.get("sequence") if isinstance(chain, MappingWithLines) else None
        if not _CHAIN_ID.fullmatch(name):
            raise InputError(f"{name!r:.40} is not the id of a chain", path, chains.line_of(name))
        if not isinstance(sequence, str) or not _SEQUENCE.fullmatch(sequence):
            raise InputError(f"chain {name} has no sequence of letters", path, chains.line_of(name))
        ids_and_sequences.append((name, sequence.upper()))
    return ids_and_sequences


def _folder_name(folder: Path) -> str:
    folder = folder.absolute()
    return (folder.parent if folder.name == _MSAS else folder).name


def _stem(name: str) -> str:
    """Return a file name without the suffixes of its compression and format."""
    for suffix in (*SUFFIXES, *ALIGNMENT_SUFFIXES, *FASTA_SUFFIXES, ENTRY_SUFFIX):
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    return name
