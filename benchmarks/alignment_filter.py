"""Speed of the alignment filter compared with hhfilter, on a deep random family.

    python benchmarks/alignment_filter.py [--rows 60000] [--columns 400]

Prints CPU seconds on one thread and the number of rows that each program keeps. For hhfilter, the time to
read and write all rows is subtracted. The kept rows differ because the programs process rows of equal length
in different order.
"""

import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from options import parse_options

from msa.alignments.filter_settings import AlignmentFilter
from msa.alignments.row_filter import filter_rows
from msa.alphabet import STANDARD, encode

GAP = ord("-")
FILTERS = [
    ("--max-seq-id 0.9", ["-id", 90], AlignmentFilter(0.9)),
    ("--max-seq-id 0.95 --diff 3000", ["-id", 95, "-diff", 3000], AlignmentFilter(0.95, diff=3000)),
    ("--max-seq-id 0.9 --diff 500", ["-id", 90, "-diff", 500], AlignmentFilter(0.9, diff=500)),
]


def random_family(rows: int, columns: int) -> np.ndarray:
    """Create random rows that descend from earlier rows: uint8 [rows, columns], letters and `-`."""
    rng = np.random.default_rng(0)
    letters = np.frombuffer(STANDARD.encode(), np.uint8)
    family = np.empty((rows, columns), np.uint8)
    family[0] = rng.choice(letters, columns)
    for k in range(1, rows):
        changed = rng.random(columns) < rng.uniform(0, 0.15)
        family[k] = np.where(changed, rng.choice(letters, columns), family[rng.integers(k)])
    starts = rng.integers(0, columns // 4, rows)
    ends = columns - rng.integers(0, columns // 4, rows)
    positions = np.arange(columns)
    family[1:][(positions < starts[1:, None]) | (positions >= ends[1:, None])] = GAP
    return family


def run_hhfilter(path: Path, arguments: list[object]) -> tuple[float, set[int]]:
    """Run hhfilter; return its CPU seconds and the indices of the rows it keeps."""
    out = path.with_suffix(".out")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["hhfilter", "-i", path, "-o", out, "-v", "0", *arguments]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, {int(line[1:]) for line in out.read_text().splitlines() if line.startswith(">")}


def main() -> None:
    options = parse_options(__doc__, rows=60000, columns=400)
    letters = random_family(options.rows, options.columns)
    codes = encode(letters.tobytes()).reshape(letters.shape)
    # compile the kernels
    filter_rows(codes[:100], AlignmentFilter(0.9))
    print(f"{options.rows:,} rows of {options.columns} columns")
    print(f"{'':32}{'foldcli':>9}{'rows':>9}{'hhfilter':>11}{'rows':>9}{'differ':>9}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "family.a3m"
        path.write_text("".join(f">{k}\n{row.tobytes().decode()}\n" for k, row in enumerate(letters)))
        reading = run_hhfilter(path, ["-id", 100])[0] if shutil.which("hhfilter") else 0.0
        for name, arguments, criteria in FILTERS:
            started = time.process_time()
            kept = set(np.flatnonzero(filter_rows(codes, criteria)).tolist())
            seconds = time.process_time() - started
            line = f"{name:32}{seconds:7.1f} s{len(kept):9,}"
            if reading:
                theirs, rows = run_hhfilter(path, arguments)
                line += f"{theirs - reading:9.1f} s{len(rows):9,}{len(rows ^ kept):9,}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
