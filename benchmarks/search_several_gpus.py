"""Time of a search with the database already on the GPUs, on one GPU and on several.

    python benchmarks/search_several_gpus.py DB QUERIES.fasta [--devices cuda:0 cuda:0,1 cuda:0,1,2,3]

Runs all engines in one process, one after the other: a search that includes the copy to the GPUs, then
`--repeats` searches without it, whose median is reported. A search uses all queries with `--max-seqs 300` and
`-e 1e-3`, and writes an m8 table to memory. The tables must be equal byte for byte. For each engine's last
search, the output lists for each GPU the seconds that its host thread spent queuing launches, the seconds of
the filter on the GPU, and those of alignment, including waits; then the CPU seconds of this process, which
merges, selects and writes (with one GPU it also does the GPU's host work).

database: from foldcli createdb.
"""

import hashlib
import io
import statistics
import time
from dataclasses import dataclass
from typing import Any

from options import parse_options

from foldcli.pipeline.search.searcher import open_search_engine
from msa.alignments.m8 import write_m8
from msa.database.database import TargetDatabase
from msa.engines.settings import SearchSettings
from msa.io.fasta import FastaRecord, read_fasta
from msa.search.search import search_many

STAGES = ("queueing", "filter", "alignment")


@dataclass(frozen=True)
class Run:
    """One search.

    Args:
        seconds: wall time.
        cpu_seconds: CPU time of all threads.
        main_thread: CPU time of the main thread, in seconds.
        table: digest of the m8 table.
    """

    seconds: float
    cpu_seconds: float
    main_thread: float
    table: str


def timed_search(queries: list[FastaRecord], database: TargetDatabase, engine: Any) -> Run:
    """Search with all queries."""
    started = time.perf_counter(), time.process_time(), time.thread_time()
    table = io.StringIO()
    for query, hits in search_many(
        queries, database, SearchSettings(max_seqs=300, evalue=1e-3), engine=engine
    ):
        write_m8(table, query, hits)
    ended = time.perf_counter(), time.process_time(), time.thread_time()
    spent = [after - before for before, after in zip(started, ended, strict=True)]
    return Run(*spent, hashlib.sha256(table.getvalue().encode()).hexdigest())


def print_stages(workers: list[Any], before: list[dict[str, float]], run: Run) -> None:
    """Print the time of each stage of a search."""
    for worker, earlier in zip(workers, before, strict=True):
        stages = (f"{stage} {worker.seconds[stage] - earlier.get(stage, 0):6.3f} s" for stage in STAGES)
        print(f"    GPU {worker.gpu.number}: {', '.join(stages)}", flush=True)
    others = run.cpu_seconds - run.main_thread
    print(f"    this process: main thread {run.main_thread:.3f} s, others {others:.3f} s of CPU time")


def main() -> None:
    options = parse_options(
        __doc__, "database", "queries", devices=["cuda:0", "cuda:0,1", "cuda:0,1,2,3"], repeats=3
    )  # fmt: skip
    queries, database = list(read_fasta(options.queries)), TargetDatabase.open(options.database)
    print(f"{len(queries)} queries, {len(database)} targets, {database.total_residues} residues", flush=True)
    first: tuple[float, str] | None = None
    for device in options.devices:
        started = time.perf_counter()
        engine: Any = open_search_engine(device)
        opened = time.perf_counter() - started
        runs = [timed_search(queries, database, engine)]
        before: list[dict[str, float]] = []
        for _ in range(options.repeats):
            before = [worker.seconds for worker in engine.workers]
            runs.append(timed_search(queries, database, engine))
        seconds = [run.seconds for run in runs]
        median = statistics.median(seconds[1:])
        first = first or (median, runs[0].table)
        each = " ".join(f"{value:.3f}" for value in seconds[1:])
        print(
            f"{device:14s} median {median:7.3f} s of {each}; {first[0] / median:.2f} × the speed of "
            f"{options.devices[0]}; with the copy {seconds[0]:.3f}, opened in {opened:.2f}",
            flush=True,
        )
        print_stages(engine.workers, before, runs[-1])
        if {run.table for run in runs} != {first[1]}:
            raise SystemExit(f"search_several_gpus: the table of {device} differs")
        engine.close()
    print("all tables equal byte for byte")


if __name__ == "__main__":
    main()
