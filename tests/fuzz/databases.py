"""Damage target databases in thousands of ways, open and search each, and count what goes wrong.

    python -m tests.fuzz.databases [--cases 10000] [--jobs 2] [--seed 0]

Three databases, plain, with clusters, and one part of a split one, are built from a FASTA file. Each case
changes one file of a copy: it flips bits, sets numbers, or moves, cuts, extends, empties, removes or
exchanges content. The situations are:

    checked   as it is
    old       the manifest has no checksum of its own, as in databases of earlier versions
    large     residues and headers are too large to be read when the database is opened, so that only
              `createdb --verify` finds damage in them
    forged    the checksums of manifest and file match the damaged file, as in a malicious database
    in use    the file is truncated after the database was opened

A case ends in a refusal (one line that names the database), in the result of the undamaged database, or in
another result. A different result is an error in "checked", "old" and "in use", and in "large" if
`createdb --verify` does not find the damage; "forged" databases just have other content. A traceback or the
death of the process is always an error. The exit code is 1 if there was any error.

Each case is a process, forked from one that has loaded all libraries.
"""

import argparse
import faulthandler
import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.process_state import exit_on_bus_error
from msa.alignments.a3m import write_a3m
from msa.alignments.m8 import COLUMNS, write_m8
from msa.base.errors import InputError
from msa.cpu.engine import CpuEngine
from msa.database import integrity
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.database.manifest import (
    CLUSTER_FILES,
    FILES,
    HEADERS,
    MANIFEST,
    PART_FILES,
    RESIDUES,
    split_folders,
)
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord, read_fasta

SITUATIONS = {"checked": 45, "old": 15, "large": 15, "forged": 20, "in use": 5}
"""Percentage of the cases in each situation."""

OUTCOMES = ("refused", "same result", "other result", "unverified", "traceback", "crash")
"""Ends of a case; "unverified" is another result in the situation "large" that --verify does not find."""

ERRORS = {
    "checked": ("other result", "traceback", "crash"),
    "old": ("other result", "traceback", "crash"),
    "large": ("unverified", "traceback", "crash"),
    "forged": ("traceback", "crash"),
    "in use": ("other result", "traceback", "crash"),
}
_CLUSTER_SIZE = 3
_QUERIES = 4
_TIME_LIMIT = 120
_REPORT_EVERY = 500
_INTERESTING = (0, 1, -1, 2, 3, 4, 7, 255, 2**15, 2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63))


@dataclass(frozen=True)
class Case:
    """One damaged file.

    Args:
        number: number of the case; with the seed, it determines the damage.
        situation: a key of SITUATIONS.
        database: undamaged database.
        file: name of the damaged file.
    """

    number: int
    situation: str
    database: Path
    file: str


def flip_bits(data: bytearray, rng: random.Random) -> None:
    """Flip one to four bits."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def set_bytes(data: bytearray, rng: random.Random) -> None:
    """Set one to eight consecutive bytes at random."""
    start = rng.randrange(len(data))
    for index in range(start, min(start + rng.randint(1, 8), len(data))):
        data[index] = rng.randrange(256)


def set_number(data: bytearray, rng: random.Random) -> None:
    """Set an aligned number of four or eight bytes, often to a limit or close to the number before."""
    size = rng.choice((4, 8))
    start = rng.randrange(max(len(data) // size, 1)) * size
    old = int.from_bytes(data[start : start + size], "little", signed=True)
    value = rng.choice((*_INTERESTING, old + 1, old - 1, old + 4, old * 2, rng.getrandbits(63)))
    data[start : start + size] = (value % (1 << 8 * size)).to_bytes(size, "little")


def move_bytes(data: bytearray, rng: random.Random) -> None:
    """Overwrite a stretch by another one, or by zeros."""
    size = rng.randint(1, min(64, len(data)))
    source, target = (rng.randrange(len(data) - size + 1) for _ in range(2))
    data[target : target + size] = data[source : source + size] if rng.random() < 0.7 else bytes(size)


def cut(data: bytearray, rng: random.Random) -> None:
    """Remove bytes at the end, or anywhere, or all."""
    start = rng.choice((0, rng.randrange(len(data)), max(len(data) - rng.randint(1, 16), 0)))
    del data[start : rng.choice((len(data), start + rng.randint(1, 16)))]


def extend(data: bytearray, rng: random.Random) -> None:
    """Insert bytes at the end or anywhere."""
    start = rng.choice((len(data), rng.randrange(len(data) + 1)))
    data[start:start] = rng.randbytes(rng.choice((1, 4, 8, 4096)))


def set_json_value(data: bytearray, rng: random.Random) -> None:
    """Set a value of the manifest, at any depth, or remove it."""
    content = json.loads(data)
    item = content
    while True:
        keys = list(item) if isinstance(item, dict) else list(range(len(item)))
        if not keys:
            return
        key = rng.choice(keys)
        if not isinstance(item[key], dict | list) or not item[key] or rng.random() < 0.2:
            break
        item = item[key]
    old = item[key]
    values: list[object] = [None, True, -1, 0, 10**40, 1e300, 0.5, "", "x", [], {}, [[]], "\ud800", "../x"]
    values += [old + 1, old - 1, old + 4, float(old)] if isinstance(old, int) else []
    item[key] = rng.choice(values)
    if rng.random() < 0.2:
        del item[key]
    data[:] = json.dumps(content).encode()


BINARY_DAMAGE: Sequence[Callable[[bytearray, random.Random], None]] = (
    flip_bits, set_bytes, set_number, set_number, move_bytes, cut, extend,
)  # fmt: skip
MANIFEST_DAMAGE = (flip_bits, set_bytes, cut, extend, set_json_value, set_json_value, set_json_value)


def damage(folder: Path, case: Case, rng: random.Random) -> None:
    """Damage a file of a database, and adapt its manifest to the situation."""
    path = folder / case.file
    manifest = folder / MANIFEST
    if case.situation in ("old", "forged"):
        content = json.loads(manifest.read_bytes())
        del content["manifest_sha256"]
        manifest.write_text(json.dumps(content))
    if case.situation != "forged" and rng.random() < 0.03:
        other = folder / rng.choice([name for name in sorted(os.listdir(folder)) if name != case.file])
        other.replace(path)
        return
    data = bytearray(path.read_bytes())
    size = len(data)
    rng.choice(MANIFEST_DAMAGE if case.file == MANIFEST else BINARY_DAMAGE)(data, rng)
    path.write_bytes(data)
    if case.situation == "forged" and case.file != MANIFEST:
        content = json.loads(manifest.read_bytes())
        content["parts"][case.file] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        if rng.random() < 0.5:
            # numbers of sequences and residues that fit the sizes, as far as possible
            if case.file == RESIDUES:
                content["residues"] = max(content["residues"] + len(data) - size, 0)
            content["sequences"] = content["parts"]["lengths.i32"]["bytes"] // 4
        manifest.write_text(json.dumps(content))


def search_result(database: TargetDatabase, queries: Sequence[FastaRecord]) -> str:
    """Search, and return a hash of all columns of the hits and of the alignments."""
    text = io.StringIO()
    settings = SearchSettings(max_seqs=300, evalue=10.0, threads=1)
    for iterations, block in ((1, queries), (2, queries[:1])):
        iterated = SearchSettings(**vars(settings) | {"num_iterations": iterations})
        for query, hits in LocalSearcher(database, CpuEngine()).search_many(block, iterated):
            write_m8(text, query, hits, list(COLUMNS))
            write_a3m(text, query, hits)
    if database.manifest.whole is not None:
        for _, part in LocalSearcher(database, CpuEngine()).search_part(queries, settings):
            assert part is not None
            arrays = part.hits.targets, part.representatives, part.filtered.targets, part.filtered.scores
            text.write(str([array.tolist() for array in arrays]))
    return hashlib.sha256(text.getvalue().encode()).hexdigest()


def run_case(folder: Path, case: Case, queries: Sequence[FastaRecord], expected: str, seed: int) -> str:
    """Damage a copy of a database, open and search it, and return the outcome."""
    rng = random.Random(f"{seed} {case.number}")
    if case.situation == "large":
        integrity.SMALL_FILE_BYTES = 0
    if case.situation != "in use":
        damage(folder, case, rng)
    try:
        database = TargetDatabase.open(folder)
        if case.situation == "in use":
            path = folder / case.file
            os.truncate(path, rng.randrange(path.stat().st_size))
        if search_result(database, queries) == expected:
            return "same result"
        if case.situation == "large":
            try:
                database.verify()
            except InputError:
                return "other result"
            return "unverified"
        return "other result"
    except InputError as error:
        text = str(error)
        return "refused" if str(folder) in text and "\n" not in text else "traceback"


def run_forked(folder: Path, case: Case, queries: Sequence[FastaRecord], expected: str, seed: int) -> str:
    """Run a case in a process of its own; its death by a signal or a time limit is a crash."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            # what the handler of bus errors writes counts like a refusal
            os.dup2(write, 2)
            faulthandler.disable()
            signal.alarm(_TIME_LIMIT)
            outcome = run_case(folder, case, queries, expected, seed)
            os.write(write, outcome.encode())
            code = 0
        except BaseException:
            os.write(write, f"traceback {traceback.format_exc()[-1500:]}".encode())
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, errors="replace") as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        print(f"{case}: signal {os.WTERMSIG(status)}", flush=True)
        return "crash"
    if os.WEXITSTATUS(status) == 3 and text.count("\n") == 1 and f"{folder}/{case.file}: truncated" in text:
        return "refused"
    outcome = next((outcome for outcome in OUTCOMES if text.startswith(outcome)), "traceback")
    if outcome in ERRORS[case.situation]:
        print(f"{case}: {text}", flush=True)
    return outcome


def run_cases(cases: Sequence[Case], queries: Sequence[FastaRecord], seed: int) -> Counter[tuple[str, ...]]:
    """Run cases one after another; return the number of each situation, file and outcome."""
    exit_on_bus_error()
    # searching here loads and compiles all code for the forked processes
    databases = {case.database for case in cases}
    expected = {path: search_result(TargetDatabase.open(path), queries) for path in databases}
    counts: Counter[tuple[str, ...]] = Counter()
    with tempfile.TemporaryDirectory(dir=cases[0].database.parent) as work:
        folder = Path(work, "db")
        for number, case in enumerate(cases):
            if number and number % _REPORT_EVERY == 0:
                print(f"{number} of {len(cases)} cases", file=sys.stderr)
            shutil.copytree(case.database, folder)
            outcome = run_forked(folder, case, queries, expected[case.database], seed)
            counts[case.situation, case.file, outcome] += 1
            shutil.rmtree(folder)
    return counts


def run_in_jobs(
    cases: Sequence[Case], queries: Sequence[FastaRecord], seed: int, jobs: int
) -> Counter[tuple[str, ...]]:
    """Run cases in several processes."""
    results = []
    for job in range(jobs):
        read, write = os.pipe()
        if os.fork() == 0:
            with os.fdopen(write, "w") as stream:
                counts = run_cases(cases[job::jobs], queries, seed)
                json.dump([[*key, count] for key, count in counts.items()], stream)
            os._exit(0)
        os.close(write)
        results.append(os.fdopen(read))
    total: Counter[tuple[str, ...]] = Counter()
    for stream in results:
        with stream:
            for *key, count in json.load(stream):
                total[tuple(key)] += count
    return total


def make_databases(fasta: Path, folder: Path) -> list[Path]:
    """Build a plain database, one with clusters of consecutive sequences, and a part of the latter."""
    ids = [record.id for record in read_fasta(fasta)]
    pairs = [f"{ids[index - index % _CLUSTER_SIZE]}\t{name}\n" for index, name in enumerate(ids)]
    (folder / "clusters.tsv").write_text("".join(pairs))
    build_database([fasta], folder / "plain")
    settings = BuildSettings(clusters=folder / "clusters.tsv")
    build_database([fasta], folder / "clustered", settings)
    build_database([fasta], folder / "split", replace(settings, parts=2))
    return [folder / "plain", folder / "clustered", split_folders(folder / "split")[1]]


def make_cases(databases: Sequence[Path], count: int, seed: int) -> list[Case]:
    """Draw situations, databases and files."""
    rng, cases = random.Random(seed), []
    for number in range(count):
        situation = rng.choices(list(SITUATIONS), list(SITUATIONS.values()))[0]
        database = rng.choice(databases)
        names = [name for name in (*FILES, *CLUSTER_FILES, *PART_FILES) if (database / name).is_file()]
        if situation == "large":
            names += [RESIDUES, HEADERS] * 2
        if situation != "in use":
            names.append(MANIFEST)
        cases.append(Case(number, situation, database, rng.choice(names)))
    return cases


def print_table(counts: Counter[tuple[str, ...]]) -> int:
    """Print the outcomes of each situation and file; return the number of errors."""
    width = 19
    print("".join(f"{title:{width}}" for title in ("situation", "file", "cases", *OUTCOMES)))
    errors = 0
    for situation in SITUATIONS:
        for name in (MANIFEST, *FILES, *CLUSTER_FILES, *PART_FILES):
            numbers = [counts[situation, name, outcome] for outcome in OUTCOMES]
            if sum(numbers):
                print("".join(f"{cell!s:{width}}" for cell in (situation, name, sum(numbers), *numbers)))
            errors += sum(counts[situation, name, outcome] for outcome in ERRORS[situation])
    totals = [sum(n for key, n in counts.items() if key[2] == outcome) for outcome in OUTCOMES]
    print("".join(f"{cell!s:{width}}" for cell in ("all", "", sum(totals), *totals)))
    return errors


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--fasta", type=Path, default=Path(__file__).parents[2] / "examples" / "demo.fasta")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to repeat one")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fuzz_databases.") as folder:
        databases = make_databases(options.fasta, Path(folder))
        cases = make_cases(databases, options.first + options.cases, options.seed)[options.first :]
        queries = list(read_fasta(options.fasta))[:: -(-len(list(read_fasta(options.fasta))) // _QUERIES)]
        errors = print_table(run_in_jobs(cases, queries, options.seed, min(options.jobs, len(cases))))
    print(f"{len(cases)} cases, {errors} errors, {time.perf_counter() - start:.0f} s")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
