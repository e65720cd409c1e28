"""Building of structure libraries from structure files: resumable, in worker processes."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import as_completed
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from features.templates.library.chains import MIN_RESIDUES, TemplateChain, complete_atoms, distinct_chains
from features.templates.library.coordinate_codec import decode_coordinates, encode_coordinates
from features.templates.library.library import (
    COORDINATE_INDEX,
    COORDINATES,
    FORMAT_VERSION,
    PARTS,
    READER_VERSION,
    SEQUENCES,
    STATES,
    UNKNOWN,
    LibraryManifest,
    is_library,
)
from features.templates.library.settings import LibrarySettings
from features.templates.library.states import decode_letters, encode_states, state_letters, write_states
from features.templates.library.structure_files import entry_ids, find_structure_files, read_chains
from msa.base.atomic import atomic_write
from msa.base.atomic_folders import check_output, created_meanwhile, publish, temporary_folder
from msa.base.digests import file_sha256
from msa.base.errors import InputError
from msa.base.json_files import write_json
from msa.base.progress import Progress
from msa.base.services.pool import ServicePool
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.database.manifest import MANIFEST, DatabaseFile

_FILES_PER_BATCH = 64
_CHAINS_PER_BATCH = 512


def build_library(
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    settings: LibrarySettings | None = None,
    progress: Progress | None = None,
) -> LibraryManifest:
    """Build a structure library from mmCIF and PDB files.

    Files are read in batches. Each finished batch is kept next to the output until the library is complete,
    so a build that was interrupted continues with the next batch. Of identical sequences in one file, the
    chain with most atoms is kept.

    Args:
        inputs: structure files, and folders that are searched for them recursively.
        output: folder to create. It appears only when the library is complete.
        settings: see LibrarySettings.
        progress: called with (files read, all files).

    Returns:
        The manifest, which lists the files that could not be used.

    Raises:
        InputError: there are no usable chains, an input does not exist, or the output exists.
    """
    settings = settings or LibrarySettings()
    final = Path(output)
    check_output(final, settings.overwrite, is_library, "structure library")
    files = find_structure_files(inputs)
    entries = list(zip(files, entry_ids(files), strict=True))
    batches = [entries[k : k + _FILES_PER_BATCH] for k in range(0, len(files), _FILES_PER_BATCH)]
    folder = final.parent / f".{final.name}.batches"
    paths = [folder / f"{_batch_key(batch, settings)}.json" for batch in batches]
    missing = [k for k, path in enumerate(paths) if not path.is_file()]
    done = len(files) - sum(len(batches[k]) for k in missing)
    read = partial(_read_batch, settings=settings)
    if progress is not None:
        progress(done, len(files))
    # one batch is faster without starting a process
    with contextlib.ExitStack() as stack:
        tasks = [(batches[k], paths[k]) for k in missing]
        if min(settings.threads, len(tasks)) > 1:
            pool = ServicePool(settings.threads)
            stack.callback(pool.terminate)
            calls = [pool.submit(read, task) for task in tasks]
            finished = (call.result() for call in as_completed(calls))
        else:
            finished = (read(task) for task in tasks)
        for count in finished:
            done += count
            if progress is not None:
                progress(done, len(files))
    try:
        manifest = _merge(paths, final, settings, len(files))
    except (FileNotFoundError, InputError) as error:
        if final.exists() and not settings.overwrite:
            # another build of the same library has ended first, and may have removed the batches
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, FileNotFoundError):
                raise created_meanwhile(final) from error
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return manifest


def write_library(
    chains: Iterable[TemplateChain],
    output: str | os.PathLike[str],
    settings: LibrarySettings | None = None,
    sources: int = 1,
) -> LibraryManifest:
    """Write a structure library of given chains.

    Args:
        chains: consumed lazily.
        output: see `build_library`.
        settings: see LibrarySettings.
        sources: number of files or archives that the chains come from.

    Raises:
        InputError: there are no chains, or the output exists.
    """
    settings = settings or LibrarySettings()
    final = Path(output)
    check_output(final, settings.overwrite, is_library, "structure library")
    final.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(final.parent / f"{final.name}.batches") as folder:
        remaining, paths = iter(chains), list[Path]()
        while batch := list(islice(remaining, _CHAINS_PER_BATCH)):
            paths.append(folder / f"{len(paths)}.json")
            _write_batch(batch, {}, {}, paths[-1], settings)
        return _merge(paths, final, settings, sources)


def _batch_key(files: Sequence[tuple[Path, str]], settings: LibrarySettings) -> str:
    """Return the name of a batch, which depends on everything that its content depends on."""
    content: list[Any] = [FORMAT_VERSION, READER_VERSION, settings.units_per_angstrom, settings.backbone_only]
    for path, entry in files:
        status = path.stat()
        content.append([str(path.absolute()), entry, status.st_size, status.st_mtime_ns])
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _read_batch(task: tuple[Sequence[tuple[Path, str]], Path], settings: LibrarySettings) -> int:
    """Read one batch of structure files, and store it in a file; return the number of files read."""
    files, output = task
    chains: list[TemplateChain] = []
    unreadable: dict[str, str] = {}
    remarks: dict[str, list[str]] = {}
    for path, entry in files:
        try:
            notes: list[str] = []
            chains += distinct_chains(read_chains(path, entry, notes))
            if notes:
                remarks[str(path)] = notes
        except InputError as error:
            unreadable[str(path)] = (
                error.reason if error.line is None else f"line {error.line}: {error.reason}"
            )
        except OSError as error:
            unreadable[str(path)] = error.strerror or str(error)
    _write_batch(chains, unreadable, remarks, output, settings)
    return len(files)


def _write_batch(
    chains: Sequence[TemplateChain],
    unreadable: dict[str, str],
    remarks: dict[str, list[str]],
    output: Path,
    settings: LibrarySettings,
) -> None:
    """Write the coordinates of chains, then the JSON file whose existence marks the batch as complete."""
    records, blobs, rounded = [], [], []
    for chain in chains:
        stored = chain.backbone() if settings.backbone_only else chain
        complete = complete_atoms(chain.sequence, settings.backbone_only)
        blob = encode_coordinates(stored.positions, stored.mask, complete, settings.units_per_angstrom)
        header = f"{chain.id} {chain.release_date or UNKNOWN} {chain.source}"
        records.append({"header": header, "sequence": chain.sequence, "bytes": len(blob)})
        blobs.append(blob)
        rounded.append(decode_coordinates(blob, complete, settings.units_per_angstrom))
    for record, states in zip(records, encode_states(rounded), strict=True):
        record["states"] = state_letters(states)
    with atomic_write(output.with_suffix(".bin"), "wb") as stream:
        stream.write(b"".join(blobs))
    write_json(output, {"chains": records, "unreadable": unreadable, "remarks": remarks})


def _merge(batches: Sequence[Path], final: Path, settings: LibrarySettings, files: int) -> LibraryManifest:
    """Join batches into a library, in a temporary folder that is renamed at the end."""
    contents = [json.loads(path.read_text()) for path in batches]
    records = [record for content in contents for record in content["chains"]]
    unreadable = {path: reason for content in contents for path, reason in content["unreadable"].items()}
    if not records:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in list(unreadable.items())[:3])
        raise InputError(
            f"no protein chain with at least {MIN_RESIDUES} residues{reasons and f' ({reasons})'}"
        )
    with temporary_folder(final) as folder:
        fasta = folder / "chains.fasta"
        with fasta.open("w") as stream:
            stream.writelines(f">{record['header']}\n{record['sequence']}\n" for record in records)
        build_database([fasta], folder / SEQUENCES, BuildSettings(threads=settings.threads))
        fasta.unlink()
        database = TargetDatabase.open(folder / SEQUENCES)
        # the database is sorted by length, and keeps the order of sequences of the same length
        order = np.argsort([len(record["sequence"]) for record in records], kind="stable")
        for index, record in enumerate(order.tolist()):
            assert database.header(index) == records[record]["header"], "unexpected order of the database"
        _write_coordinates(folder, batches, contents, order)
        states = [decode_letters(records[k]["states"]) for k in order.tolist()]
        write_states(folder / STATES, database.arrays, states)
        manifest = LibraryManifest(
            chains=len(records),
            residues=database.total_residues,
            units_per_angstrom=settings.units_per_angstrom,
            backbone_only=settings.backbone_only,
            dated_chains=sum(record["header"].split(" ", 2)[1] != UNKNOWN for record in records),
            files=files,
            unreadable=unreadable,
            remarks={path: lines for content in contents for path, lines in content["remarks"].items()},
            parts={
                name: DatabaseFile((folder / name).stat().st_size, file_sha256(folder / name))
                for name in (*PARTS, STATES)
            },
        )
        (folder / MANIFEST).write_text(json.dumps(manifest.as_json(), indent=2) + "\n")
        publish(folder, final, replace=settings.overwrite)
    return manifest


def _write_coordinates(
    folder: Path, batches: Sequence[Path], contents: Sequence[dict[str, Any]], order: np.ndarray
) -> None:
    """Write the coordinates of all chains in the order of the database, and their offsets."""
    sizes = [np.array([record["bytes"] for record in content["chains"]], np.int64) for content in contents]
    batch_of = np.repeat(np.arange(len(batches)), [len(part) for part in sizes])
    starts = np.concatenate([np.cumsum(part) - part for part in sizes])
    lengths = np.concatenate(sizes)
    with contextlib.ExitStack() as stack:
        output = stack.enter_context((folder / COORDINATES).open("wb"))
        # mapped, because there may be more batches than a process may have open files
        data = [
            np.memmap(path.with_suffix(".bin"), np.uint8, mode="r") if part.sum() else np.empty(0, np.uint8)
            for path, part in zip(batches, sizes, strict=True)
        ]
        for record in order.tolist():
            start = starts[record]
            output.write(data[batch_of[record]][start : start + lengths[record]].tobytes())
    offsets = np.concatenate([[0], np.cumsum(lengths[order])]).astype("<i8")
    (folder / COORDINATE_INDEX).write_bytes(offsets.tobytes())
