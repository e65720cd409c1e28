"""Building a target database: records parsed and masked in threads, sorted, whole or not at all."""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from msa.database.build_files import publish, staged_folder
from msa.database.cluster_build import Clustering
from msa.database.database import TargetDatabase
from msa.database.length_sort import LengthSorter
from msa.database.manifest import CLUSTER_PARTS, MANIFEST, PARTS, PLAIN_VERSION, Manifest, Part
from msa.database.masking import MaskSettings, mask
from msa.errors import InputError
from msa.io.compression import open_counted
from msa.io.fasta_blocks import ODDITIES, Block, Records, parse_block, read_blocks
from msa.io.mmseqs_database import open_mmseqs
from msa.io.mmseqs_files import files_of, is_mmseqs
from msa.io.mmseqs_records import MmseqsSource

Progress = Callable[[int, int | None], None]

_QUANTILES = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)


def _available_cores() -> int:
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class BuildSettings:
    """How to build a database. Only `mask` and `clusters` change what is written.

    Attributes:
        mask: soft-mask low complexity and short tandem repeats.
        clusters: table of the sequences' clusters, of which a search goes through the representatives.
        threads: CPU threads that parse and mask.
        block_bytes: FASTA bytes that one thread works on at a time.
        overwrite: replace a database that already has the name.
    """

    mask: bool = True
    clusters: Path | None = None
    threads: int = field(default_factory=_available_cores)
    block_bytes: int = 4 << 20
    overwrite: bool = False


def build_database(
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    settings: BuildSettings | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Build a target database.

    Memory stays below 2 GiB whatever the size of the inputs, unless there are clusters; beside the output,
    disk space for one more copy of the residues and headers is needed while building.

    Args:
        inputs: FASTA files, compressed or not, read in this order; `-` is standard input.
        output: folder to make. It appears when the database is complete, and not at all on any failure.
        settings: see BuildSettings.
        progress: called with (bytes read of the input files, their size or None if it is unknown).

    Returns:
        what the new database's manifest says.

    Raises:
        InputError: bad input, no sequence at all, or the output exists; names file, line and column.
        OSError: a file cannot be read, the output cannot be written, the disk is full.
    """
    settings = settings or BuildSettings()
    names = [os.fspath(path) for path in inputs]
    return _build(lambda: _FastaSource(names, settings.block_bytes), Path(output), settings, progress)


def build_from_mmseqs(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    settings: BuildSettings | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Build a target database from an MMseqs2 sequence database, plain or padded, in the order of its keys.

    What comes out is what `build_database` makes of the FASTA file that `mmseqs convert2fasta` writes.

    Args:
        path: name of the MMseqs2 database.
        output, settings, progress: see `build_database`; progress is told bytes of entries.

    Raises:
        InputError: not such a database, files missing, truncated or damaged, or the output exists.
        OSError: see `build_database`.
    """
    settings = settings or BuildSettings()
    return _build(lambda: MmseqsSource(path, settings.block_bytes), Path(output), settings, progress)


class _Source(Protocol):
    """Where records come from.

    Attributes:
        name: the one file or database; None where there are several.
        bytes_read, bytes_total: how far they have been read; the total may be unknown.
        described: what the manifest says of the input, once all has been read.
    """

    name: str | None
    bytes_read: int
    bytes_total: int | None

    @property
    def described(self) -> list[dict[str, Any]]: ...

    def blocks(self) -> Iterator[Block]: ...

    def parse(self, block: Block) -> Records: ...


def _build(
    open_source: Callable[[], _Source], final: Path, settings: BuildSettings, progress: Progress | None
) -> Manifest:
    _check_output(final, settings.overwrite)
    source = open_source()
    with staged_folder(final) as folder:
        try:
            manifest = _build_in(folder, source, settings, progress)
            publish(folder, final, replace=settings.overwrite)
        except FileExistsError:
            raise InputError("another build took this name meanwhile", final) from None
        except OSError as error:
            if error.filename is not None and Path(error.filename).is_relative_to(folder):
                error.filename = str(final)
            raise
    return manifest


def _check_output(final: Path, overwrite: bool) -> None:
    if not os.path.lexists(final) or (final.is_dir() and not any(final.iterdir())):
        return
    if not overwrite:
        raise InputError("already exists, and overwriting was not asked for (--overwrite)", final)
    if not (final / MANIFEST).is_file():
        raise InputError("exists and is no target database, so it is not overwritten", final)


def _build_in(folder: Path, source: _Source, settings: BuildSettings, progress: Progress | None) -> Manifest:
    # a table that is wrong is found before the sequences are read
    clustering = None if settings.clusters is None else Clustering(settings.clusters)
    sorter = LengthSorter(folder)
    oddities = np.zeros(len(ODDITIES), np.int64)
    masked = 0
    with contextlib.closing(_in_order(source, settings)) as parsed:
        for records, masked_here in parsed:
            sorter.add(records)
            if clustering is not None:
                clustering.add(records)
            oddities += records.oddities
            masked += masked_here
            if progress is not None:
                progress(source.bytes_read, source.bytes_total)
    if sorter.sequences == 0:
        raise InputError("no sequence that is not empty", source.name)
    duplicate_ids = sorter.duplicate_ids()
    clusters = None
    parts: tuple[str, ...] = PARTS
    if clustering is None:
        checksums = sorter.write(settings.threads)
    else:
        clusters, checksums = clustering.write(folder, sorter, settings.threads)
        parts += CLUSTER_PARTS
    manifest = Manifest(
        sequences=sorter.sequences,
        residues=sorter.residues,
        masked_residues=masked,
        length_quantiles={f"{fraction:g}": sorter.quantile(fraction) for fraction in _QUANTILES},
        duplicate_ids=duplicate_ids,
        oddities=dict(zip(ODDITIES, oddities.tolist(), strict=True)),
        masking={"method": "tantan"} | asdict(MaskSettings()) if settings.mask else None,
        inputs=source.described,
        built_by=_versions(),
        parts={name: Part((folder / name).stat().st_size, checksums[name]) for name in parts},
        clusters=clusters,
    )
    (folder / MANIFEST).write_text(json.dumps(manifest.as_json(), indent=2) + "\n")
    return manifest


class _FastaSource:
    """The blocks of several input files, one file after another, and how far they have been read."""

    def __init__(self, names: list[str], block_bytes: int) -> None:
        self._names, self._block_bytes = names, block_bytes
        self.name = names[0] if len(names) == 1 else None
        self.bytes_read = 0
        sizes = [Path(name).stat().st_size if Path(name).is_file() else None for name in names]
        self.bytes_total = None if None in sizes else sum(size for size in sizes if size is not None)
        self.described: list[dict[str, Any]] = []

    def blocks(self) -> Iterator[Block]:
        for name in self._names:
            before, of_records = self.bytes_read, 0
            with open_counted(name) as (stream, count):
                for block in read_blocks(stream, name, self._block_bytes):
                    of_records += len(block.data)
                    self.bytes_read = before + count()
                    yield block
            self.described.append({"name": Path(name).name, "bytes": of_records})

    def parse(self, block: Block) -> Records:
        return parse_block(block)


def _in_order(source: _Source, settings: BuildSettings) -> Generator[tuple[Records, int], None, None]:
    """Parse and mask blocks in threads; results come in the order of the blocks, few of them at a time."""
    pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="createdb")
    pending: deque[Future[tuple[Records, int]]] = deque()
    try:
        for block in source.blocks():
            pending.append(pool.submit(_parse_and_mask, source, block, settings))
            if len(pending) > settings.threads + 1:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _parse_and_mask(source: _Source, block: Block, settings: BuildSettings) -> tuple[Records, int]:
    records = source.parse(block)
    return records, mask(records.residues, records.lengths) if settings.mask else 0


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("foldcli", "numpy", "numba"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def database_from(
    path: str | os.PathLike[str],
    cache_dir: Path,
    progress: Progress | None = None,
    notice: Callable[[str], None] = lambda line: None,
) -> TargetDatabase:
    """Open a target database, or build one from a FASTA file or MMseqs2 database when it is first asked for.

    What was built is kept in `cache_dir/databases/KEY` and opened from then on. KEY is taken of the files'
    bytes, the settings and the format version, so edited files are built anew. Processes that build at the
    same time do not disturb each other: one takes the name, the others discard theirs.

    Args:
        path: database folder, FASTA file, compressed or not, or name of an MMseqs2 database.
        cache_dir: folder for what is built.
        progress: see `build_database`; not called when nothing is built.
        notice: told in one line that an MMseqs2 database is converted, and where to.

    Raises:
        InputError: none of these, or a damaged one; `-`, which cannot be read twice.
        OSError: the file cannot be read, or the cache not be written.
    """
    built = place_of(path, cache_dir)
    source, settings = Path(path), BuildSettings()
    try:
        return TargetDatabase.open(built)
    except InputError:
        if built == source:
            raise
        damaged = built.exists()
    settings = replace(settings, overwrite=damaged)
    try:
        if is_mmseqs(source):
            notice(f"{source}: an MMseqs2 database, converted once, to {built}")
            build_from_mmseqs(source, built, settings, progress)
        else:
            build_database([source], built, settings, progress)
    except InputError:
        if damaged or not built.exists():
            raise
    return TargetDatabase.open(built)


def place_of(path: str | os.PathLike[str], cache_dir: Path) -> Path:
    """Where `database_from` opens a database: itself, or in the cache, where it may have to be built first.

    Args:
        path: see `database_from`.
        cache_dir: folder for what is built.

    Raises:
        InputError: neither a folder nor something that a database can be built of; `-`.
        OSError: the file cannot be read.
    """
    if str(path) == "-":
        raise InputError("a database cannot be read from here; build one with `foldcli createdb -`", "-")
    source = Path(path)
    if source.is_dir():
        return source
    of_mmseqs = is_mmseqs(source)
    if not of_mmseqs and not source.exists():
        raise InputError("no such database or FASTA file", source)
    if of_mmseqs:
        # what is no such database is told before all of it is read for the key
        open_mmseqs(source)
    files = files_of(source) if of_mmseqs else [source]
    return Path(cache_dir) / "databases" / _key(files, BuildSettings())


def _key(files: Sequence[Path], settings: BuildSettings) -> str:
    masking = asdict(MaskSettings()) if settings.mask else None
    identity: list[Any] = [PLAIN_VERSION, masking]
    for path in files:
        with path.open("rb") as stream:
            identity.append(hashlib.file_digest(stream, "sha256").hexdigest())
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()
