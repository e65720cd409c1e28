"""Building a target database from FASTA: parsed and masked in threads, sorted, whole or not at all."""

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
from typing import Any

import numpy as np

from msa.by_length import LengthSorter
from msa.clustering import Clustering
from msa.compression import open_counted
from msa.database import TargetDatabase
from msa.errors import InputError
from msa.manifest import CLUSTER_PARTS, MANIFEST, PARTS, PLAIN_VERSION, Manifest, Part
from msa.masking import MaskSettings, mask
from msa.records import ODDITIES, Block, Records, parse_block, read_blocks
from msa.staging import publish, staged_folder

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
    names, final = [os.fspath(path) for path in inputs], Path(output)
    _check_output(final, settings.overwrite)
    with staged_folder(final) as folder:
        try:
            manifest = _build_in(folder, names, settings, progress)
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


def _build_in(folder: Path, names: list[str], settings: BuildSettings, progress: Progress | None) -> Manifest:
    # a table that is wrong is found before the sequences are read
    clustering = None if settings.clusters is None else Clustering(settings.clusters)
    sorter = LengthSorter(folder)
    oddities = np.zeros(len(ODDITIES), np.int64)
    masked = 0
    source = _Source(names, settings.block_bytes)
    with contextlib.closing(_in_order(source.blocks(), settings)) as parsed:
        for records, masked_here in parsed:
            sorter.add(records)
            if clustering is not None:
                clustering.add(records)
            oddities += records.oddities
            masked += masked_here
            if progress is not None:
                progress(source.bytes_read, source.bytes_total)
    if sorter.sequences == 0:
        raise InputError("no sequence that is not empty", names[0] if len(names) == 1 else None)
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


class _Source:
    """The blocks of several input files, one file after another, and how far they have been read."""

    def __init__(self, names: list[str], block_bytes: int) -> None:
        self._names, self._block_bytes = names, block_bytes
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


def _in_order(blocks: Iterator[Block], settings: BuildSettings) -> Generator[tuple[Records, int], None, None]:
    """Parse and mask blocks in threads; results come in the order of the blocks, few of them at a time."""
    pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="createdb")
    pending: deque[Future[tuple[Records, int]]] = deque()
    try:
        for block in blocks:
            pending.append(pool.submit(_parse_and_mask, block, settings))
            if len(pending) > settings.threads + 1:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _parse_and_mask(block: Block, settings: BuildSettings) -> tuple[Records, int]:
    records = parse_block(block)
    return records, mask(records.residues, records.lengths) if settings.mask else 0


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("foldcli", "numpy", "numba"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def database_from(
    path: str | os.PathLike[str], cache_dir: Path, progress: Progress | None = None
) -> TargetDatabase:
    """Open a target database, or build one from a FASTA file the first time it is asked for.

    What was built is kept in `cache_dir/databases/KEY` and opened from then on. KEY is taken of the file's
    bytes, the settings and the format version, so an edited file is built anew. Processes that build at the
    same time do not disturb each other: one takes the name, the others discard theirs.

    Args:
        path: database folder, or FASTA file, compressed or not.
        cache_dir: folder for what is built.
        progress: see `build_database`; not called when nothing is built.

    Raises:
        InputError: neither a database nor a FASTA file, or a damaged one; `-`, which cannot be read twice.
        OSError: the file cannot be read, or the cache not be written.
    """
    if str(path) == "-":
        raise InputError("a database cannot be read from here; build one with `foldcli createdb -`", "-")
    source = Path(path)
    if not source.exists():
        raise InputError("no such database or FASTA file", source)
    if source.is_dir():
        return TargetDatabase.open(source)
    settings = BuildSettings()
    built = Path(cache_dir) / "databases" / _key(source, settings)
    try:
        return TargetDatabase.open(built)
    except InputError:
        damaged = built.exists()
    try:
        build_database([source], built, replace(settings, overwrite=damaged), progress)
    except InputError:
        if damaged or not built.exists():
            raise
    return TargetDatabase.open(built)


def _key(source: Path, settings: BuildSettings) -> str:
    masking = asdict(MaskSettings()) if settings.mask else None
    with source.open("rb") as stream:
        identity = [PLAIN_VERSION, masking, hashlib.file_digest(stream, "sha256").hexdigest()]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()
