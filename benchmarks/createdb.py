"""Speed and memory of `foldcli createdb`, compared with `mmseqs createdb` and `tantan -p`.

    python benchmarks/createdb.py [FASTA] [--megabytes 500] [--threads 2] [--repeats 3]
    python benchmarks/createdb.py FASTA --residues 1e10 [--threads 2] [--no-mask]

The FASTA file (decompressed) is repeated up to the requested size; without one, random sequences with
UniRef50's mean length are used. Each program runs in its own process on the same cores. Times are the best of
the repeats, including start-up; memory is the largest resident set. `mmseqs createdb` does not mask; tantan
only masks, on one thread. Programs that are not installed are skipped.

With --residues, the input is a stream of that many residues from benchmarks/large_fasta.py, which is not
stored and uses the same cores. The disk then needs 2.8 bytes per residue.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import large_fasta
import numpy as np

from msa.alphabet import STANDARD
from msa.io.compression import read_bytes
from msa.profile.matrices import background

MIN_MEGABYTES_PER_SECOND, MAX_BYTES = 35, 2 << 30
"""The bar for builds from a stream."""


def random_fasta(megabytes: float, seed: int = 0) -> bytes:
    """Return random FASTA: gamma-distributed lengths of mean 280, BLOSUM62's frequencies, lines of 60."""
    random = np.random.default_rng(seed)
    letters = np.frombuffer(STANDARD.encode(), np.uint8)
    parts, size = [], 0
    while size < megabytes * 1e6:
        length = int(random.gamma(2, 140)) + 11
        sequence = random.choice(letters, length, p=background()[: len(letters)]).tobytes()
        lines = b"\n".join(sequence[i : i + 60] for i in range(0, length, 60))
        parts.append(b">UniRef50_%d a random protein\n%s\n" % (len(parts), lines))
        size += len(parts[-1])
    return b"".join(parts)


def measure(
    command: list[str],
    cores: set[int],
    folder: Path,
    discard: bool = False,
    content: Iterable[bytes] = (),
) -> tuple[float, float, int]:
    """Run a command in a temporary folder; return wall seconds, CPU seconds and peak resident bytes.

    Args:
        command: the command.
        cores: the cores it may use.
        folder: folder of the temporary folder.
        discard: discard the standard output.
        content: written to its standard input.
    """
    with tempfile.TemporaryDirectory(dir=folder) as work:
        sink = subprocess.DEVNULL if discard else None
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=work,
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            for part in content:
                process.stdin.write(part)
            process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    if status != 0:
        raise SystemExit(f"failed: {' '.join(command)}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def measure_stream(options: argparse.Namespace, cores: set[int]) -> None:
    """Print the time and the memory of builds from a generated stream, and compare them with the bar."""
    source = large_fasta.template(options.fasta)
    count = large_fasta.number_of_copies(options.fasta, options.residues)
    megabytes = count * len(source.text) / 1e6
    sequences, residues = count * len(source.numbers), count * len(source.residues)
    print(f"stream: {sequences:,} sequences, {residues:,} residues, {megabytes:,.0f} MB; {len(cores)} cores")
    foldcli = [sys.executable, "-m", "foldcli", "createdb", "-", "-o", "db"]
    foldcli += ["--threads", str(options.threads), *(["--no-mask"] if options.no_mask else [])]
    commands = {"foldcli createdb": foldcli}
    if mmseqs := shutil.which("mmseqs"):
        commands["mmseqs createdb"] = [mmseqs, "createdb", "stdin", "db", "-v", "1"]
    print(f"{'':28}{'seconds':>9}{'CPU s':>8}{'MB/s':>8}{'peak MiB':>10}{'load':>7}")
    for label, command in commands.items():
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            stream = large_fasta.copies(options.fasta, options.residues, 0.1, options.processes)
            seconds, cpu_seconds, peak = measure(command, cores, Path(name), content=stream)
        speed, load = megabytes / seconds, os.getloadavg()[0]
        print(f"{label:28}{seconds:9.2f}{cpu_seconds:8.2f}{speed:8.1f}{peak / 2**20:10.0f}{load:7.1f}")
        if label == "foldcli createdb":
            met = speed >= MIN_MEGABYTES_PER_SECOND and peak <= MAX_BYTES
            limits = f"at least {MIN_MEGABYTES_PER_SECOND} MB/s in at most {MAX_BYTES >> 20} MiB"
            print(f"{'':4}bar: {limits}: {'met' if met else 'not met'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fasta", nargs="?", type=Path)
    parser.add_argument("--megabytes", type=float, default=500)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--residues", type=float, help="measure with a generated stream")
    parser.add_argument("--processes", type=int, default=1, help="that generate the stream")
    parser.add_argument("--no-mask", action="store_true", help="with --residues: build without masking")
    parser.add_argument("--folder", type=Path, default=None, help="working folder; default: TMPDIR")
    options = parser.parse_args()
    cores = set(sorted(os.sched_getaffinity(0))[: options.threads])
    if options.residues is not None:
        if options.fasta is None:
            parser.error("--residues needs a FASTA file")
        measure_stream(options, cores)
        return

    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder, path = Path(name), Path(name) / "input.fasta"
        content = read_bytes(options.fasta) if options.fasta else random_fasta(min(options.megabytes, 20))
        copies = max(1, round(options.megabytes * 1e6 / len(content)))
        with path.open("wb") as stream:
            for _ in range(copies):
                stream.write(content)
        del content  # a child's peak includes its parent's memory at the fork
        megabytes = path.stat().st_size / 1e6
        print(
            f"{megabytes:.0f} MB of FASTA ({options.fasta or 'random'}, {copies} times), {len(cores)} cores"
        )

        foldcli = [sys.executable, "-m", "foldcli", "createdb", str(path), "-o", "db"]
        foldcli += ["--threads", str(options.threads)]
        commands = {"foldcli createdb": foldcli, "foldcli createdb --no-mask": [*foldcli, "--no-mask"]}
        if mmseqs := shutil.which("mmseqs"):
            commands["mmseqs createdb"] = [mmseqs, "createdb", str(path), "db", "-v", "1"]
        if tantan := shutil.which("tantan"):
            commands["tantan -p"] = [tantan, "-p", str(path)]

        small = folder / "small.fasta"
        small.write_text(">a\nMKV\n")
        measure([*foldcli[:4], str(small), "-o", "db"], cores, folder)  # compiles the kernels
        print(f"{'':28}{'seconds':>9}{'CPU s':>8}{'MB/s':>8}{'peak MiB':>10}")
        for label, command in commands.items():
            is_tantan = label.startswith("tantan")
            repeats = 1 if is_tantan else options.repeats
            runs = [measure(command, cores, folder, discard=is_tantan) for _ in range(repeats)]
            (seconds, cpu_seconds, _), peak = min(runs), max(run[2] for run in runs)
            print(f"{label:28}{seconds:9.2f}{cpu_seconds:8.2f}{megabytes / seconds:8.1f}{peak / 2**20:10.0f}")


if __name__ == "__main__":
    main()
