"""Seconds of a search with the database already on the GPUs, on one GPU and on several.

    python benchmarks/search_several_gpus.py DB QUERIES.fasta [--devices cuda:0 cuda:0,1 cuda:0,1,2,3]

All in one process, an engine after the other: a search with the copy to the GPUs, then `--repeats` without,
of which the median counts; a search is all queries with `--max-seqs 300 -e 1e-3` and their m8 table, in
memory. Tables must be equal byte for byte; else the run ends with an error. Below each engine stands where
its last search's time went: for each GPU the seconds in which its host thread made tables and queued
launches, those of the filter on the GPU, and those of alignment, waiting included; then the processor seconds
of this process, which merges, chooses and writes (on one GPU it does the GPU's host work too).
"""

import argparse
import hashlib
import io
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foldcli.pipeline.searcher import open_search_engine
from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord, read_fasta
from msa.io.m8 import write_m8
from msa.search.search import search_many
from msa.search.settings import SearchSettings

STAGES = ("queueing", "filter", "alignment")


@dataclass(frozen=True)
class Run:
    """One search: wall seconds, processor seconds of all threads and of the main one, its table's digest."""

    seconds: float
    processor: float
    main_thread: float
    table: str


def searched(queries: list[FastaRecord], database: TargetDatabase, engine: Any) -> Run:
    """Search with all queries."""
    begun = time.perf_counter(), time.process_time(), time.thread_time()
    table = io.StringIO()
    for query, hits in search_many(queries, database, SearchSettings(max_seqs=300, evalue=1e-3), engine):
        write_m8(table, query, hits)
    ended = time.perf_counter(), time.process_time(), time.thread_time()
    spent = [after - before for before, after in zip(begun, ended, strict=True)]
    return Run(*spent, hashlib.sha256(table.getvalue().encode()).hexdigest())


def told(members: list[Any], before: list[dict[str, float]], run: Run) -> None:
    """Where a search's time went."""
    for member, earlier in zip(members, before, strict=True):
        taken = (f"{stage} {member.seconds[stage] - earlier.get(stage, 0):6.3f} s" for stage in STAGES)
        print(f"    GPU {member.gpu.number}: {', '.join(taken)}", flush=True)
    others = run.processor - run.main_thread
    print(f"    this process: main thread {run.main_thread:.3f} s, others {others:.3f} s of processor")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("database", type=Path, help="from foldcli createdb")
    parser.add_argument("queries", type=Path)
    parser.add_argument("--devices", nargs="+", default=["cuda:0", "cuda:0,1", "cuda:0,1,2,3"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    queries, database = list(read_fasta(options.queries)), TargetDatabase.open(options.database)
    print(f"{len(queries)} queries, {len(database)} targets, {database.total_residues} residues", flush=True)
    first: tuple[float, str] | None = None
    for device in options.devices:
        begun = time.perf_counter()
        engine: Any = open_search_engine(device)
        opened = time.perf_counter() - begun
        runs = [searched(queries, database, engine)]
        before: list[dict[str, float]] = []
        for _ in range(options.repeats):
            before = [member.seconds for member in engine.members]
            runs.append(searched(queries, database, engine))
        seconds = [run.seconds for run in runs]
        median = statistics.median(seconds[1:])
        first = first or (median, runs[0].table)
        each = " ".join(f"{taken:.3f}" for taken in seconds[1:])
        print(
            f"{device:14s} median {median:7.3f} s of {each}; {first[0] / median:.2f} × the speed of "
            f"{options.devices[0]}; with the copy {seconds[0]:.3f}, opened in {opened:.2f}",
            flush=True,
        )
        told(engine.members, before, runs[-1])
        if {run.table for run in runs} != {first[1]}:
            raise SystemExit(f"search_several_gpus: the table of {device} differs")
        engine.close()
    print("all tables equal byte for byte")


if __name__ == "__main__":
    main()
