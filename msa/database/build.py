"""Building of target databases: parse and mask in threads, sort by length, publish when complete."""

import contextlib
import importlib.metadata
import os
import platform
import shutil
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from msa.alphabet import LETTER_BITS, decode, encode
from msa.base.atomic_folders import check_output, publish, temporary_folder
from msa.base.errors import InputError
from msa.base.hardware import available_cores
from msa.base.json_files import to_record
from msa.base.progress import Progress
from msa.database.clusters import ClusterBuilder
from msa.database.length_sort import LengthSorter
from msa.database.manifest import (
    CLUSTER_FILES,
    FILES,
    MANIFEST,
    SPLIT,
    DatabaseFile,
    DatabaseManifest,
    InputFile,
    write_manifest,
    write_split,
)
from msa.database.masking import MaskSettings, mask
from msa.database.split import split_database
from msa.io.compression import open_counted
from msa.io.fasta_blocks import ODDITIES, FastaBlock, ParsedBlock, parse_block, read_blocks
from msa.io.molecules import PROTEIN, RNA, looks_like_nucleic_acid
from msa.mmseqs.records import MmseqsSource
from msa.profile import matrices

# by the code of a letter
_IS_BASE = np.isin(np.arange(LETTER_BITS + 1), encode("ACGTUN"))
_QUANTILES = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)


@dataclass(frozen=True)
class BuildSettings:
    """Settings of a build. Only `mask`, `clusters`, `parts` and `molecule` change the content.

    Attributes:
        mask: soft-mask low complexity and short tandem repeats.
        clusters: table of the sequences' clusters; a search then scans only their representatives.
        parts: number of parts of a split database; None builds a single one.
        molecule: kind of the sequences, PROTEIN or RNA.
        threads: CPU threads that parse and mask.
        block_bytes: FASTA bytes that a thread processes at a time.
        overwrite: replace an existing database of the same name.
    """

    mask: bool = True
    clusters: Path | None = None
    parts: int | None = None
    molecule: Literal["protein", "rna"] = PROTEIN
    threads: int = field(default_factory=available_cores)
    block_bytes: int = 4 << 20
    overwrite: bool = False


def build_database(
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    settings: BuildSettings | None = None,
    progress: Progress | None = None,
) -> DatabaseManifest:
    """Build a target database from FASTA files.

    Without clusters, memory stays below 2 GiB for inputs of any size. In addition to the output, the
    build temporarily needs disk space for another copy of the residues and headers.

    Args:
        inputs: FASTA files, compressed or not, read in this order; `-` is standard input.
        output: folder to create, of the database or of its parts. It appears only when it is complete.
        settings: see BuildSettings.
        progress: called with (bytes read of the input files, their size or None if unknown).

    Returns:
        The manifest of the new database; of the whole, if it was split.

    Raises:
        InputError: invalid input, no sequences, mostly nucleic acids, or the output exists; names file, line
            and column.
        OSError: a file cannot be read, the output cannot be written, or the disk is full.
    """
    settings = settings or BuildSettings()
    names = [os.fspath(path) for path in inputs]
    is_rna = settings.molecule == RNA
    return _build(lambda: _FastaSource(names, settings.block_bytes, is_rna), Path(output), settings, progress)


def build_from_mmseqs(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    settings: BuildSettings | None = None,
    progress: Progress | None = None,
) -> DatabaseManifest:
    """Build a target database from an MMseqs2 sequence database, plain or padded, in the order of its keys.

    The result equals that of `build_database` for the FASTA file that `mmseqs convert2fasta` writes.

    Raises:
        InputError: not a sequence database, files missing, truncated or damaged, or the output exists.
        OSError: see `build_database`.
    """
    settings = settings or BuildSettings()
    if settings.molecule == RNA:
        raise InputError("an MMseqs2 database: RNA is read from FASTA files only", path)
    return _build(lambda: MmseqsSource(path, settings.block_bytes), Path(output), settings, progress)


class _Source(Protocol):
    """A source of sequences.

    Attributes:
        name: the only file or database; None if there are several.
        bytes_read, bytes_total: progress of reading; the total may be unknown.
        description: the manifest's `inputs`, complete once all blocks have been read.
    """

    name: str | None
    bytes_read: int
    bytes_total: int | None

    @property
    def description(self) -> list[dict[str, Any]]: ...

    def blocks(self) -> Iterator[FastaBlock]: ...

    def parse(self, block: FastaBlock) -> ParsedBlock: ...


def _build(
    open_source: Callable[[], _Source], final: Path, settings: BuildSettings, progress: Progress | None
) -> DatabaseManifest:
    """Build in a temporary folder, then rename it to its final name."""
    check_output(final, settings.overwrite, _is_database, "target database")
    source = open_source()
    with temporary_folder(final) as folder:
        try:
            if settings.parts is None:
                manifest = _build_in(folder, source, settings, progress)
            else:
                manifest = _build_split(folder, source, settings, settings.parts, progress)
            publish(folder, final, replace=settings.overwrite)
        except OSError as error:
            if error.filename is not None and Path(error.filename).is_relative_to(folder):
                error.filename = str(final)
            raise
    return manifest


def _is_database(path: Path) -> bool:
    """Return whether a path is a database, split or not."""
    return (path / MANIFEST).is_file() or (path / SPLIT).is_file()


def _build_split(
    folder: Path, source: _Source, settings: BuildSettings, parts: int, progress: Progress | None
) -> DatabaseManifest:
    """Build a database, split it into a folder, and return the manifest of the whole."""
    whole = folder / "whole"
    whole.mkdir()
    manifest = _build_in(whole, source, settings, progress)
    split_database(whole, folder, parts)
    shutil.rmtree(whole)
    write_split(folder, manifest, parts)
    return manifest


def _build_in(
    folder: Path, source: _Source, settings: BuildSettings, progress: Progress | None
) -> DatabaseManifest:
    """Write all files of a database into a folder."""
    # first, because an invalid table must be reported before the sequences are read
    cluster_builder = None if settings.clusters is None else ClusterBuilder(settings.clusters)
    sorter = LengthSorter(folder)
    oddities = np.zeros(len(ODDITIES), np.int64)
    masked_residues = nucleic_acids = 0
    with contextlib.closing(_parse_in_order(source, settings)) as blocks:
        for block, masked, num_nucleic in blocks:
            sorter.add(block)
            nucleic_acids += num_nucleic
            if 2 * nucleic_acids > sorter.sequences:
                reason = (
                    f"nucleic acids: {nucleic_acids:,} of the first {sorter.sequences:,} sequences have only "
                    "the letters A, C, G, T, U and N; --molecule rna builds a database of RNA"
                )
                raise InputError(reason, source.name)
            if cluster_builder is not None:
                cluster_builder.add(block)
            oddities += block.oddities
            masked_residues += masked
            if progress is not None:
                progress(source.bytes_read, source.bytes_total)
    if sorter.sequences == 0:
        raise InputError("no non-empty sequences", source.name)
    duplicate_ids = sorter.duplicate_ids()
    clusters = None
    files: tuple[str, ...] = FILES
    if cluster_builder is None:
        checksums = sorter.write(settings.threads)
    else:
        clusters, checksums = cluster_builder.write(folder, sorter, settings.threads)
        files += CLUSTER_FILES
    manifest = DatabaseManifest(
        sequences=sorter.sequences,
        residues=sorter.residues,
        masked_residues=masked_residues,
        length_quantiles={f"{fraction:g}": sorter.quantile(fraction) for fraction in _QUANTILES},
        duplicate_ids=duplicate_ids,
        oddities=dict(zip(ODDITIES, oddities.tolist(), strict=True)),
        masking={"method": "tantan"} | asdict(MaskSettings()) if settings.mask else None,
        inputs=to_record(source.description, list[InputFile]),
        built_by=_versions(),
        files={name: DatabaseFile((folder / name).stat().st_size, checksums[name]) for name in files},
        clusters=clusters,
        molecule=settings.molecule,
    )
    write_manifest(folder, manifest)
    return manifest


class _FastaSource:
    """The blocks of several FASTA files, one file after another, with progress."""

    def __init__(self, names: list[str], block_bytes: int, is_rna: bool) -> None:
        self._names, self._block_bytes, self._is_rna = names, block_bytes, is_rna
        self.name = names[0] if len(names) == 1 else None
        self.bytes_read = 0
        sizes = [Path(name).stat().st_size if Path(name).is_file() else None for name in names]
        self.bytes_total = None if None in sizes else sum(size for size in sizes if size is not None)
        self.description: list[dict[str, Any]] = []

    def blocks(self) -> Iterator[FastaBlock]:
        for name in self._names:
            bytes_before, fasta_bytes = self.bytes_read, 0
            with open_counted(name) as (stream, count):
                for block in read_blocks(stream, name, self._block_bytes):
                    fasta_bytes += len(block.data)
                    self.bytes_read = bytes_before + count()
                    yield block
            self.description.append({"name": Path(name).name, "bytes": fasta_bytes})

    def parse(self, block: FastaBlock) -> ParsedBlock:
        return parse_block(block, self._is_rna)


def _parse_in_order(
    source: _Source, settings: BuildSettings
) -> Generator[tuple[ParsedBlock, int, int], None, None]:
    """Parse and mask blocks in threads; yield the results of `_parse_and_mask` in input order.

    At most `settings.threads` + 2 blocks are in memory at a time.
    """
    pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="createdb")
    pending: deque[Future[tuple[ParsedBlock, int, int]]] = deque()
    try:
        for block in source.blocks():
            pending.append(pool.submit(_parse_and_mask, source, block, settings))
            if len(pending) > settings.threads + 1:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _parse_and_mask(
    source: _Source, block: FastaBlock, settings: BuildSettings
) -> tuple[ParsedBlock, int, int]:
    """Return a block with its numbers of masked residues and of nucleic acids."""
    parsed = source.parse(block)
    is_rna = settings.molecule == RNA
    num_nucleic = 0 if is_rna else _count_nucleic_acids(parsed)
    matrix = matrices.RNA if is_rna else matrices.BLOSUM62
    masked = mask(parsed.residues, parsed.lengths, matrix=matrix) if settings.mask else 0
    return parsed, masked, num_nucleic


def _count_nucleic_acids(block: ParsedBlock) -> int:
    """Return the number of sequences for which `looks_like_nucleic_acid` is true."""
    if not len(block.lengths):
        return 0
    ends = np.cumsum(block.lengths, dtype=np.int64)
    starts = ends - block.lengths
    bases = np.add.reduceat(_IS_BASE[block.residues & LETTER_BITS], starts, dtype=np.int64)
    # few proteins come so close that all rules must be checked
    candidates = np.flatnonzero(bases > 0.9 * block.lengths)
    sequences = (decode(block.residues[starts[index] : ends[index]]) for index in candidates)
    return sum(map(looks_like_nucleic_acid, sequences))


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("foldcli", "numpy", "numba"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions
