"""Speed and memory of `foldcli createdb`, compared with `mmseqs createdb` and `tantan -p`.

    python benchmarks/createdb.py [FASTA] [--megabytes 500] [--threads 2] [--repeats 3]

The FASTA file (decompressed) is repeated up to the requested size; without one, random sequences with
UniRef50's mean length are used. Each program runs in its own process on the same cores. Times are the best of
the repeats, including start-up; memory is the largest resident set. `mmseqs createdb` does not mask; tantan
only masks, on one thread. Programs that are not installed are skipped.

--folder: working folder; default: TMPDIR.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from options import parse_options
from processes import Run, timed

from msa.alphabet import STANDARD
from msa.io.compression import read_bytes
from msa.profile.matrices import background


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


def measure(command: list[str], folder: Path) -> Run:
    """Run a command in a temporary folder."""
    with tempfile.TemporaryDirectory(dir=folder) as work:
        return timed(command, folder=Path(work))


def main() -> None:
    options = parse_options(__doc__, "fasta?", megabytes=500.0, threads=2, repeats=3, folder=Path)
    cores = set(sorted(os.sched_getaffinity(0))[: options.threads])
    os.sched_setaffinity(0, cores)
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
            commands["tantan -p"] = ["sh", "-c", f"exec {tantan} -p {path} > /dev/null"]

        small = folder / "small.fasta"
        small.write_text(">a\nMKV\n")
        measure([*foldcli[:4], str(small), "-o", "db"], folder)  # compiles the kernels
        print(f"{'':28}{'seconds':>9}{'CPU s':>8}{'MB/s':>8}{'peak MiB':>10}")
        for label, command in commands.items():
            repeats = 1 if label.startswith("tantan") else options.repeats
            runs = [measure(command, folder) for _ in range(repeats)]
            best, peak = min(runs, key=lambda run: run.seconds), max(run.peak_bytes for run in runs) / 2**20
            speed = megabytes / best.seconds
            print(f"{label:28}{best.seconds:9.2f}{best.cpu_seconds:8.2f}{speed:8.1f}{peak:10.0f}", flush=True)


if __name__ == "__main__":
    main()
