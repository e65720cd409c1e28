"""Wall time and peak memory of the README's first command with an empty cache, without the installation.

usage: python benchmarks/first_command.py [--runs N] [--fresh-numba]

Also prints the stages of the last run from its done.json. The first run compiles the CPU engine, unless
compiled code is stored next to the package; --fresh-numba gives numba an empty cache, so that it does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from foldcli.process_state import set_numba_cache_folder

ROOT = Path(__file__).resolve().parents[1]


def run_once(folder: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Run the command into `folder`; return wall seconds, and the peak memory of the process in MiB."""
    command = [sys.executable, "-m", "foldcli", "fold", "examples/ubiquitin.fasta"]
    command += ["-o", str(folder / "out")]
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"the command failed: {' '.join(command)}")
    return seconds, usage.ru_maxrss / 1024


def main() -> None:
    """Run the command several times and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--fresh-numba", action="store_true", help="compile the CPU engine in the first run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        # all runs share what numba compiles, as runs of a user do
        set_numba_cache_folder()
        shared = dict(os.environ)
        if arguments.fresh_numba:
            shared["NUMBA_CACHE_DIR"] = str(Path(temporary) / "numba")
        for number in range(1, arguments.runs + 1):
            folder = Path(temporary) / str(number)
            seconds, peak = run_once(folder, shared | {"FOLDCLI_CACHE": str(folder / "cache")})
            print(f"run {number}: {seconds:.1f} s, peak {peak:.0f} MiB")
        (done,) = folder.rglob("*.done.json")
        for stage in json.loads(done.read_text())["stages"]:
            mebibytes = stage["peak_memory_bytes"] / 2**20
            print(f"  {stage['stage']:<10} {stage['seconds']:7.2f} s {mebibytes:7.0f} MiB")


if __name__ == "__main__":
    main()
