"""The build of a database of billions of residues, and searches that stream it from disk.

    python benchmarks/search_scale.py FASTA [--residues 1e10] [--queries 100] [--device cuda]
        [--gpu-memory 4G] [--threads 16] [--folder FOLDER] [--keep]

`foldcli createdb` reads a stream of mutated copies of the FASTA file (benchmarks/large_fasta.py). Then three
searches with queries from the file run in processes of their own: one is killed (SIGKILL) once its first
queries are finished, the same command continues it, and an uninterrupted one is timed, with the database out
of the page cache. The tables must be equal byte for byte.

The output lists the speed of the build; the limits of the disk (direct reads) and of the link to the GPU
(pinned copies); the time of the search next to the times that these limits allow; and peaks of memory: of the
host without file pages, which the system takes back when it needs them, and of the GPU. The disk needs 2.8
bytes per residue, and the input is not stored.

    python benchmarks/search_scale.py FASTA --sequences 30e6 60e6 [--mmseqs]

instead searches databases of these sizes (`large_fasta.write_database`) for alignments, in three iterations,
and prints seconds per query, disk and memory, and what 300 million sequences would take if all grew as
between the last two sizes. `--mmseqs`, for small databases, also runs MMseqs2 as ColabFold does on a CPU, and
prints the rows of both and their Neff (rows weighted by the number of rows at 80 % identity).

--gpu-memory: of the database on the GPU; --processes: that generate the sequences; --folder: working folder,
default: TMPDIR; --keep: keep the database, and use an existing one.
"""

import argparse
import contextlib
import filecmp
import mmap
import os
import re
import shutil
import signal
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

import large_fasta
import numpy as np
from options import parse_options

from msa.alignments.files import parse_alignment
from msa.base.jit import kernel
from msa.database.database import TargetDatabase
from msa.io.fasta import read_fasta

FOLDCLI = [sys.executable, "-m", "foldcli"]
READ_BYTES, READ_THREADS = 1 << 24, 8
"""Direct reads that show the disk's limit."""
MAPPED_BYTES, MAPPED_THREADS = 1 << 22, 4
"""Copies from the memory map, as msa/gpu/device/database_stream.py makes them."""
PASS_RESIDUES = 8192
"""Query residues for which a streamed database passes through the GPU once (docs/search.md)."""
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
PINNED_COPY = """
import time
import numpy as np
from numba import cuda
host = cuda.pinned_array(1 << 28, np.uint8)
device, stream = cuda.device_array(1 << 28, np.uint8), cuda.stream()
for repeat in range(2):
    start = time.perf_counter()
    for _ in range(16):
        device.copy_to_device(host, stream=stream)
    stream.synchronize()
    print(16 * len(host) / (time.perf_counter() - start))
"""


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


def build(options: argparse.Namespace, database: Path) -> None:
    """Build the database from a stream."""
    count = large_fasta.number_of_copies(options.fasta, options.residues)
    source = large_fasta.template(options.fasta)
    command = [*FOLDCLI, "createdb", "-", "-o", str(database), "--threads", str(options.threads)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    with Usage(process.pid) as usage:
        for text in large_fasta.copies(options.fasta, options.residues, 0.1, options.processes):
            process.stdin.write(text)
        process.stdin.close()
        check(process)
    seconds, megabytes = time.perf_counter() - start, count * len(source.text) / 1e6
    print(
        f"createdb: {count * len(source.numbers):,} sequences, {count * len(source.residues):,} residues, "
        f"{megabytes:,.0f} MB in {seconds:.1f} s: {megabytes / seconds:.1f} MB/s, host {mib(usage.host)}",
        flush=True,
    )


def check(process: "subprocess.Popen[bytes]") -> None:
    """Wait for a process; the benchmark ends if it fails."""
    if process.wait():
        raise SystemExit(f"search_scale: exit code {process.returncode}")


def mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def drop_from_page_cache(paths: Iterable[Path]) -> None:
    """Write files to disk and remove their pages from the page cache."""
    for path in paths:
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def open_direct(path: Path) -> int:
    """Open a file for reads that bypass the page cache, if the file system has them."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return os.open(path, os.O_RDONLY)


def disk_speed(path: Path, seconds: float, threads: int, mapped: bool) -> float:
    """Return bytes per second of reads from a file that is not in the page cache, in order.

    Args:
        path: the file.
        seconds: when to stop.
        threads: that read different blocks.
        mapped: copy from a memory map, as searches do, instead of direct reads.
    """
    size, block = path.stat().st_size, MAPPED_BYTES if mapped else READ_BYTES
    offsets, lock = iter(range(0, size, block)), threading.Lock()
    end = time.perf_counter() + seconds
    source = np.memmap(path, np.uint8, mode="r") if mapped else np.empty(0, np.uint8)

    def read() -> int:
        buffer, done = mmap.mmap(-1, block), 0
        copy = np.frombuffer(buffer, np.uint8)
        descriptor = open_direct(path)
        while time.perf_counter() < end:
            with lock:
                offset = next(offsets, None)
            if offset is None:
                break
            if mapped:
                part = source[offset : offset + block]
                copy[: len(part)] = part
                done += len(part)
            else:
                done += os.preadv(descriptor, [buffer], offset)
        os.close(descriptor)
        return done

    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        done = sum(future.result() for future in [pool.submit(read) for _ in range(threads)])
    return done / (time.perf_counter() - start)


def search(
    options: argparse.Namespace,
    queries: Path,
    database: Path,
    table: Path,
    kill: bool = False,
    kind: str = "m8",
) -> tuple[float, Usage, str]:
    """Search in a process; return its seconds, its memory and the last lines of its output."""
    command = [*FOLDCLI, "search", str(queries), str(database), "-o", str(table), "-v", "--format", kind]
    command += ["--device", options.device, "--threads", str(options.threads)]
    environment = os.environ | {"FOLDCLI_GPU_MEMORY": options.gpu_memory}
    log = table.with_suffix(".log")
    index = table.with_name(f".{table.name}.unfinished.index")
    start = time.perf_counter()
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stderr=stream, env=environment, start_new_session=True)
        with Usage(process.pid) as usage:
            while kill and process.poll() is None:
                if index.exists() and index.stat().st_size:
                    os.killpg(process.pid, signal.SIGKILL)
                time.sleep(0.05)
            process.wait()
    seconds = time.perf_counter() - start
    expected = -signal.SIGKILL if kill else 0
    if process.returncode != expected:
        raise SystemExit(f"search_scale: exit code {process.returncode}\n{log.read_text()[-2000:]}")
    return seconds, usage, log.read_text()


def main() -> None:
    options = parse_options(
        __doc__, "fasta", residues=1e10, queries=100, device="cuda", gpu_memory="4G",
        threads=len(os.sched_getaffinity(0)), processes=4, folder=Path, keep=False, sequences=[float],
        mmseqs=False,
    )  # fmt: skip
    folder = Path(tempfile.mkdtemp(dir=options.folder)) if not options.keep else options.folder
    if folder is None:
        raise SystemExit("search_scale: --keep needs --folder")
    try:
        (run_sizes if options.sequences else run)(options, folder)
    finally:
        if not options.keep:
            shutil.rmtree(folder)


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
    seconds, _, _ = search(options, queries, source, folder / "first", kind="a3m")
    print(
        f"{count} queries, {query_residues:,} residues; first search, of the FASTA: {seconds:.1f} s",
        flush=True,
    )
    measured: list[tuple[float, float, float]] = []
    for number in map(int, options.sequences):
        start = time.perf_counter()
        targets = large_fasta.write_database(TargetDatabase.open(source), number, database, options.threads)
        written = time.perf_counter() - start
        size = sum(path.stat().st_size for path in database.iterdir())
        drop_from_page_cache(database.iterdir())
        disk = disk_speed(database / "residues.u8", 3, MAPPED_THREADS, mapped=True)
        drop_from_page_cache(database.iterdir())
        out, idle = folder / f"of_{number}", gpu_bytes()
        seconds, usage, _ = search(options, queries, database, out, kind="a3m")
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


def run(options: argparse.Namespace, folder: Path) -> None:
    """Run all steps in a folder."""
    database, queries = folder / "db", folder / "queries.fasta"
    count, query_residues = write_queries(options, queries)
    if not database.exists():
        build(options, database)
    residues_file = database / "residues.u8"
    size = residues_file.stat().st_size
    drop_from_page_cache(database.iterdir())
    disk = disk_speed(residues_file, 3, READ_THREADS, mapped=False)
    mapped = disk_speed(residues_file, 3, MAPPED_THREADS, mapped=True)
    print(f"disk: {disk / 1e9:.2f} GB/s (direct reads), {mapped / 1e9:.2f} GB/s (memory map)", flush=True)
    link = None
    if options.device != "cpu":
        output = subprocess.run(
            [sys.executable, "-c", PINNED_COPY], capture_output=True, text=True, check=True
        )
        link = float(output.stdout.split()[-1])
        print(f"link to the GPU: {link / 1e9:.2f} GB/s (pinned copies)", flush=True)

    interrupted, whole = folder / "interrupted.m8", folder / "whole.m8"
    for table in (interrupted, whole):
        for left in folder.glob(f"*{table.name}*"):
            left.unlink()
    killed, _, _ = search(options, queries, database, interrupted, kill=True)
    finished = len((folder / ".interrupted.m8.unfinished.index").read_bytes().splitlines())
    print(f"killed after {killed:.1f} s (compilation included), {finished} queries finished", flush=True)
    continued, _, log = search(options, queries, database, interrupted)
    if f"continuing after {finished} of" not in log:
        raise SystemExit("search_scale: the killed search was not continued")
    print(f"continued: {continued:.1f} s", flush=True)
    drop_from_page_cache(database.iterdir())
    idle = gpu_bytes()
    seconds, usage, log = search(options, queries, database, whole)
    lines = len(whole.read_bytes().splitlines())
    passes = -(-query_residues // PASS_RESIDUES)
    cells = query_residues * size
    print(f"search: {count} queries, {query_residues:,} residues, {lines:,} hits in {seconds:.1f} s")
    print(
        f"    {cells / seconds / 1e12:.2f} TCUPS, start-up included; about {passes} passes of {size:,} bytes"
    )
    print(f"    the disk alone takes {size / disk:.1f} s for one pass", end="")
    print(f", the link {passes * size / link:.1f} s for all" if link else "")
    print(f"    host {mib(usage.host)} without file pages, GPU {mib(max(0, usage.gpu - idle))}")
    for line in [line for line in log.splitlines() if "GPU stages" in line][-1:]:
        print(f"    {line.strip()}")
    equal = filecmp.cmp(whole, interrupted, shallow=False)
    print(f"table of the killed and continued search: {'equal' if equal else 'DIFFERENT'}")
    if not equal:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
