"""Searches of databases of many millions of sequences, streamed from disk.

    python benchmarks/search_scale.py FASTA --sequences 30e6 60e6 [--queries 100] [--device cuda]
        [--gpu-memory 4G] [--threads 16] [--folder FOLDER] [--mmseqs]

Searches databases of these sizes (mutated copies of the sequences of the FASTA file) for alignments, in three
iterations, and prints seconds per query, disk and peaks of memory: of the host without file pages, which the
system takes back when it needs them, and of the GPU. Prints what 300 million sequences would take if all grew
as between the last two sizes. `--mmseqs`, for small databases, also runs MMseqs2 as ColabFold does on a CPU,
and prints the rows of both and their Neff (rows weighted by the number of rows at 80 % identity).

--gpu-memory: of the database on the GPU; --folder: working folder, default: TMPDIR.
"""

import argparse
import contextlib
import hashlib
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
from options import parse_options

from msa.alignments.files import parse_alignment
from msa.alphabet import MASK_BIT
from msa.base.cpu_kernels.jit import kernel
from msa.database.database import TargetDatabase
from msa.database.integrity import SMALL_FILE_BYTES
from msa.database.manifest import (
    FILES,
    HEADER_INDEX,
    HEADERS,
    LENGTHS,
    OFFSETS,
    RESIDUES,
    DatabaseFile,
    DatabaseManifest,
    write_manifest,
)
from msa.io.fasta import read_fasta

FOLDCLI = [sys.executable, "-m", "foldcli"]
MAPPED_BYTES, MAPPED_THREADS = 1 << 22, 4
"""Copies from the memory map, as msa/gpu/device/database_stream.py makes them."""
PLANNED = 300_000_000
"""Sequences of the database that is extrapolated to."""
SIMILAR = 0.8
"""Identity of rows that count as one in Neff."""
MMSEQS_SEARCH = ["--num-iterations", "3", "-s", "8", "-e", "0.1", "--max-seqs", "10000"]
MMSEQS_FILTER = [
    *["--msa-format-mode", "6", "--filter-msa", "1", "--filter-min-enable", "1000", "--diff", "3000"],
    *["--max-seq-id", "0.95", "--qid", "0.0,0.2,0.4,0.6,0.8,1.0", "--qsc", "0"],
]
"""Options of ColabFold's search, without clusters of sequences."""
LEAST_MUTATED, MOST_MUTATED = 0.1, 0.75
"""Shares of residues that are replaced in the first and in the last copy of a sequence."""
MAX_LENGTH = 700
"""Residues of the longest sequence that is copied, so that the mean length is near UniRef50's."""
_HEADER = 16


@dataclass
class Usage:
    """Peaks of memory of a process with its children, sampled while it runs.

    Args:
        process: id of the process.
        host: bytes of anonymous and shared memory.
        gpu: bytes of the first GPU in use; by all processes.
    """

    process: int
    host: int = 0
    gpu: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Usage":
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stopped.wait(0.2):
            self.host = max(self.host, sum(map(anonymous_bytes, process_tree(self.process))))
            self.gpu = max(self.gpu, gpu_bytes())


def process_tree(process: int) -> Iterator[int]:
    """Yield the ids of a process and of its descendants."""
    yield process
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from process_tree(int(child))


def anonymous_bytes(process: int) -> int:
    """Return the resident memory of a process without pages of files; 0 if it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return 1024 * sum(map(int, re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+)", status, re.MULTILINE)))


def gpu_bytes() -> int:
    """Return the memory of the first GPU in use; 0 without a GPU."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) << 20
    except (OSError, subprocess.CalledProcessError, ValueError):
        return 0


def mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def drop_from_page_cache(paths: Iterable[Path]) -> None:
    """Write files to disk and remove their pages from the page cache."""
    for path in paths:
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def mapped_speed(path: Path, seconds: float) -> float:
    """Return bytes per second of copies from a file that is not in the page cache, as searches make them."""
    size = path.stat().st_size
    offsets, lock = iter(range(0, size, MAPPED_BYTES)), threading.Lock()
    end = time.perf_counter() + seconds
    source = np.memmap(path, np.uint8, mode="r")

    def read() -> int:
        copy, done = np.empty(MAPPED_BYTES, np.uint8), 0
        while time.perf_counter() < end:
            with lock:
                offset = next(offsets, None)
            if offset is None:
                break
            part = source[offset : offset + MAPPED_BYTES]
            copy[: len(part)] = part
            done += len(part)
        return done

    start = time.perf_counter()
    with ThreadPoolExecutor(MAPPED_THREADS) as pool:
        done = sum(future.result() for future in [pool.submit(read) for _ in range(MAPPED_THREADS)])
    return done / (time.perf_counter() - start)


def search(options: argparse.Namespace, queries: Path, database: Path, out: Path) -> tuple[float, Usage]:
    """Search in a process for alignments; return its seconds and its memory."""
    command = [*FOLDCLI, "search", str(queries), str(database), "-o", str(out), "-v", "--format", "a3m"]
    command += ["--device", options.device, "--threads", str(options.threads)]
    environment = os.environ | {"FOLDCLI_GPU_MEMORY": options.gpu_memory}
    log = out.with_suffix(".log")
    start = time.perf_counter()
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stderr=stream, env=environment)
        with Usage(process.pid) as usage:
            process.wait()
    seconds = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(f"search_scale: exit code {process.returncode}\n{log.read_text()[-2000:]}")
    return seconds, usage


def main() -> None:
    options = parse_options(
        __doc__, "fasta", queries=100, device="cuda", gpu_memory="4G",
        threads=len(os.sched_getaffinity(0)), folder=Path, sequences=[float], mmseqs=False,
    )  # fmt: skip
    if not options.sequences:
        raise SystemExit("search_scale: --sequences is missing")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        run_sizes(options, Path(folder))


def write_queries(options: argparse.Namespace, path: Path) -> tuple[int, int]:
    """Write the queries; return their number and their residues."""
    records = [record for record in read_fasta(options.fasta) if 200 <= len(record.sequence) <= 600]
    selected = records[:: max(1, len(records) // options.queries)][: options.queries]
    path.write_text("".join(f">q{k}\n{record.sequence}\n" for k, record in enumerate(selected)))
    return len(selected), sum(len(record.sequence) for record in selected)


def run_sizes(options: argparse.Namespace, folder: Path) -> None:
    """Search databases of several sizes for alignments, and extrapolate."""
    queries, source, database = folder / "queries.fasta", folder / "source", folder / "db"
    count, query_residues = write_queries(options, queries)
    subprocess.run([*FOLDCLI, "createdb", str(options.fasta), "-o", str(source)], check=True)
    seconds, _ = search(options, queries, source, folder / "first")
    print(
        f"{count} queries, {query_residues:,} residues; first search, of the FASTA: {seconds:.1f} s",
        flush=True,
    )
    measured: list[tuple[float, float, float]] = []
    for number in map(int, options.sequences):
        start = time.perf_counter()
        targets = write_database(TargetDatabase.open(source), number, database, options.threads)
        written = time.perf_counter() - start
        size = sum(path.stat().st_size for path in database.iterdir())
        drop_from_page_cache(database.iterdir())
        disk = mapped_speed(database / "residues.u8", 3)
        drop_from_page_cache(database.iterdir())
        out, idle = folder / f"of_{number}", gpu_bytes()
        seconds, usage = search(options, queries, database, out)
        measured.append((len(targets), seconds, size))
        rows = [path.read_bytes().count(b">") for path in sorted(out.glob("*.a3m"))]
        speed = 3 * query_residues * targets.total_residues / seconds / 1e12
        print(
            f"{len(targets):,} sequences, {targets.total_residues:,} residues, {size / 1e9:.1f} GB on disk, "
            f"written in {written:.1f} s, read at {disk / 1e9:.2f} GB/s\n"
            f"    {seconds:.1f} s, {seconds / count:.2f} s a query, {speed:.2f} TCUPS; "
            f"median {median(rows):,.0f} rows; host {mib(usage.host)} without file pages, "
            f"GPU {mib(max(0, usage.gpu - idle))}",
            flush=True,
        )
        if options.mmseqs:
            compare_depth(options, queries, database, out, folder / "mmseqs")
        shutil.rmtree(database)
        if len(measured) > 1:
            extrapolate(measured[-2:], count)


def write_database(source: TargetDatabase, sequences: int, folder: Path, threads: int) -> TargetDatabase:
    """Write a database of mutated copies of the sequences of another one, and open it.

    `createdb --verify` refuses it, because large files have no checksums.

    Copies of a sequence follow each other, so the lengths stay sorted; masks are those of the original.

    Args:
        source: the other database; its longest sequences are left out.
        sequences: about how many to write.
        folder: the new database.
        threads: that write.
    """
    arrays = source.arrays
    originals = int(np.searchsorted(arrays.lengths, MAX_LENGTH, "right"))
    number = max(1, round(sequences / originals))
    lengths = arrays.lengths[:originals].astype(np.int64)
    padded = (lengths + 3) & ~3
    starts = np.append(0, np.cumsum(padded * number))
    total = number * originals
    folder.mkdir(parents=True)
    files = {
        RESIDUES: int(starts[-1]), OFFSETS: 8 * total, LENGTHS: 4 * total, HEADERS: _HEADER * total,
        HEADER_INDEX: 8 * (total + 1),
    }  # fmt: skip
    out = {name: _new_file(folder / name, size) for name, size in files.items()}
    out[LENGTHS].view(np.int32)[:] = np.repeat(arrays.lengths[:originals], number)
    offsets = out[OFFSETS].view(np.int64)
    offsets[0], offsets[1:] = 0, np.cumsum(np.repeat(padded, number)[:-1])
    out[HEADER_INDEX].view(np.int64)[:] = np.arange(total + 1) * _HEADER
    out[HEADERS][:] = ord("0")
    bounds = np.searchsorted(starts, np.linspace(0, starts[-1], 8 * threads + 1))
    with ThreadPoolExecutor(threads) as pool:
        spans = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        arguments = arrays.residues, arrays.offsets, lengths, starts, number, out[RESIDUES], out[HEADERS]
        masked = sum(pool.map(lambda span: _write_copies(*span, *arguments), spans))
        # opening compares those of small files only; others are named by how they were made
        made = f"{source.manifest.checksums} {sequences}".encode()
        unchecked = {name for name in (RESIDUES, HEADERS) if files[name] > SMALL_FILE_BYTES}
        content = {name: made if name in unchecked else out[name] for name in files}
        digests = dict(
            zip(files, pool.map(lambda name: hashlib.sha256(content[name]).hexdigest(), files), strict=True)
        )
    manifest = DatabaseManifest(
        sequences=total, residues=int(lengths.sum()) * number, masked_residues=masked,
        length_quantiles={}, duplicate_ids=0, oddities={}, masking=source.manifest.masking, inputs=[],
        built_by={"benchmark": "search_scale"},
        files={name: DatabaseFile(files[name], digests[name]) for name in FILES},
    )  # fmt: skip
    write_manifest(folder, manifest)
    return TargetDatabase.open(folder)


def _new_file(path: Path, size: int) -> np.ndarray:
    """Return a new file of a size, mapped for writing."""
    with path.open("wb+") as stream:
        stream.truncate(size)
        return np.frombuffer(mmap.mmap(stream.fileno(), size), np.uint8)


@kernel
def _write_copies(first, end, residues, offsets, lengths, starts, number, out, headers):  # type: ignore[no-untyped-def]
    """Write the copies of sequences [first, end) and their headers; return the number of masked residues."""
    masked = 0
    state = np.uint64(first + 1) * np.uint64(0x9E3779B97F4A7C15)
    for i in range(first, end):
        length, padded = lengths[i], (lengths[i] + 3) & ~3
        for copy in range(number):
            share = LEAST_MUTATED + (MOST_MUTATED - LEAST_MUTATED) * copy / number
            limit = np.uint64(share * 65536)
            target = starts[i] + copy * padded
            for k in range(padded):
                code = residues[offsets[i] + k]
                state ^= state << np.uint64(13)
                state ^= state >> np.uint64(7)
                state ^= state << np.uint64(17)
                if k < length:
                    if (state & np.uint64(0xFFFF)) < limit:
                        code = np.uint8(
                            (code & MASK_BIT)
                            | np.uint8(
                                ((state >> np.uint64(16)) & np.uint64(0xFFFF)) * np.uint64(20)
                                >> np.uint64(16)
                            )
                        )
                    masked += (code & MASK_BIT) != 0
                out[target + k] = code
            rank, header = i * number + copy, (i * number + copy) * _HEADER
            headers[header] = ord("s")
            for k in range(_HEADER - 1, 0, -1):
                headers[header + k] = ord("0") + rank % 10
                rank //= 10
    return masked


def extrapolate(measured: Sequence[tuple[float, float, float]], queries: int) -> None:
    """Print the time and the disk of PLANNED sequences, from sequences, seconds and bytes of two sizes."""
    (few, short, small), (many, long, large) = measured
    factor = (PLANNED - many) / (many - few)
    planned, size = long + factor * (long - short), large + factor * (large - small)
    print(
        f"{PLANNED:,} sequences: {long:.1f} s + {factor:.1f} · ({long:.1f} − {short:.1f}) s = "
        f"{planned:.0f} s, {planned / queries:.1f} s a query, {size / 1e9:.0f} GB",
        flush=True,
    )


def compare_depth(
    options: argparse.Namespace, queries: Path, database: Path, out: Path, folder: Path
) -> None:
    """Run MMseqs2 as ColabFold does, and print rows and Neff of both programs' alignments."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    targets = TargetDatabase.open(database)
    with (folder / "targets.fasta").open("w") as stream:
        for index in range(len(targets)):
            stream.write(f">{targets.id(index)}\n{targets.sequence(index)}\n")

    def mmseqs(*arguments: str) -> None:
        subprocess.run(["mmseqs", *arguments], check=True, cwd=folder, stdout=subprocess.DEVNULL)

    threads = ["--threads", str(options.threads)]
    mmseqs("createdb", "targets.fasta", "targets")
    mmseqs("createdb", str(queries.absolute()), "queries")
    start = time.perf_counter()
    mmseqs("search", "queries", "targets", "found", "tmp", "-a", *MMSEQS_SEARCH, *threads)
    mmseqs("result2msa", "queries", "targets", "found", "msa", *MMSEQS_FILTER, *threads)
    seconds = time.perf_counter() - start
    mmseqs("unpackdb", "msa", ".", "--unpack-name-mode", "0", "--unpack-suffix", ".a3m")
    numbers = [line.split("\t") for line in (folder / "queries.lookup").read_text().splitlines()]
    pairs = [(out / f"{name}.a3m", folder / f"{number}.a3m") for number, name, _ in numbers]
    for name, paths in zip(("foldcli", "MMseqs2"), zip(*pairs, strict=True), strict=True):
        depths = [alignment_depth(path) for path in paths]
        rows, effective = (median([each[k] for each in depths]) for k in range(2))
        print(f"    {name}: median {rows:,.0f} rows, Neff {effective:,.1f}", flush=True)
    print(f"    MMseqs2 took {seconds:.1f} s", flush=True)


def alignment_depth(path: Path) -> tuple[int, float]:
    """Return the number of rows of an A3M file, and Neff at 80 % identity of the columns."""
    rows = np.where(
        (letters := parse_alignment(path.read_bytes().rstrip(b"\0")).letters) == ord("-"), 0, letters
    )
    return len(rows), float((1 / _similar_rows(rows.astype(np.uint8), SIMILAR)).sum())


@kernel
def _similar_rows(rows, identity):  # type: ignore[no-untyped-def]
    """Count, for each row, the rows that are identical in a fraction of its residues; itself included."""
    counts = np.zeros(len(rows))
    for i in range(len(rows)):
        residues = (rows[i] != 0).sum()
        for j in range(len(rows)):
            same = 0
            for c in range(rows.shape[1]):
                same += rows[i, c] != 0 and rows[i, c] == rows[j, c]
            counts[i] += same >= identity * residues
    return counts


if __name__ == "__main__":
    main()
