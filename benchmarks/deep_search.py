"""Time of searches for tables and for folding: up to 10,000 hits per query, in up to three iterations.

    python benchmarks/deep_search.py --fasta TARGETS.fasta --queries QUERIES.fasta [--times 16]
        [--device cuda] [--runs 300x1 300x3 10000x1 10000x3] [--alignments] [--folder FOLDER]

The database contains the FASTA file `--times` times (ids get a suffix); it is kept in `--folder` if given. A
run MxN searches with all queries in N iterations, with `--max-seqs M`, the database already on the GPU, and
writes an m8 table; several iterations use an E-value of 0.1, as searches for folding do, one uses 1e-3. A
first search with all queries compiles kernels and is reported separately. For each run, the output lists wall
seconds, the number of hits, queries whose hits reached the limit, seconds of the engine's stages, CPU seconds
of the process, and a digest of the table, which must be the same on all devices.

`--alignments` also writes A3M files, filtered as for folding; their time is listed.

--count: use every n-th query, this many; --folder: keeps the database; default: a temporary folder.
"""

import hashlib
import io
import os
import tempfile
import time
from pathlib import Path

from options import parse_options
from search_gpu import write_copies

from foldcli.pipeline.search.searcher import open_search_engine
from msa.alignments.a3m import write_a3m
from msa.alignments.alignment_filter import alignment_hits
from msa.alignments.m8 import write_m8
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.engine import Engine
from msa.engines.settings import AlignmentFilter, SearchSettings
from msa.io.fasta import FastaRecord, read_fasta
from msa.search.search import search_many

FOLDING_FILTER = AlignmentFilter(max_seq_id=0.95, diff=3000)
SAMPLES_PER_SECOND = 100


def open_database(fasta: Path, times: int, folder: Path, threads: int) -> TargetDatabase:
    """Open the database of several copies of a FASTA file, and create it unless the folder has it."""
    path = folder / f"{fasta.name.partition('.')[0]}_{times}.db"
    if not path.exists():
        started = time.perf_counter()
        copies = folder / "copies.fasta"
        write_copies(fasta, times, copies)
        build_database([copies], path, BuildSettings(threads=threads))
        copies.unlink()
        print(f"database: {time.perf_counter() - started:.1f} s", flush=True)
    return TargetDatabase.open(path)


def run(
    queries: list[FastaRecord],
    database: TargetDatabase,
    engine: Engine,
    settings: SearchSettings,
    alignments: bool,
) -> None:
    """Search once and print the figures."""
    digest, hits_found, capped, writing, aligning = hashlib.sha256(), 0, 0, 0.0, 0.0
    rows = 0
    stages = dict(engine.seconds)
    started, cpu = time.perf_counter(), time.process_time()
    for query, hits in search_many(queries, database, settings, engine=engine):
        received = time.perf_counter()
        text = io.StringIO()
        write_m8(text, query, hits)
        digest.update(text.getvalue().encode())
        written = time.perf_counter()
        writing += written - received
        hits_found, capped = hits_found + len(hits), capped + hits.capped
        if alignments:
            kept = alignment_hits(query, hits, FOLDING_FILTER, settings.threads)
            write_a3m(io.StringIO(), query, kept)
            rows += len(kept)
            aligning += time.perf_counter() - written
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    stages = {name: spent - stages[name] for name, spent in engine.seconds.items()}
    label = f"{settings.max_seqs} hits, {settings.num_iterations} iterations"
    print(f"{label:28s}{seconds:8.2f} s  {hits_found} hits, {capped} queries reached the limit", flush=True)
    times = {**stages, "table": writing, "alignments": aligning, "CPU": cpu}
    print("    " + ", ".join(f"{name} {spent:.2f} s" for name, spent in times.items()))
    print(f"    {rows} rows, table {digest.hexdigest()[:16]}", flush=True)


def main() -> None:
    options = parse_options(
        __doc__, fasta=..., queries=..., times=16, count=int, device="cuda", runs=["300x1", "300x3",
        "10000x1", "10000x3"], alignments=False, threads=len(os.sched_getaffinity(0)), folder=Path
    )  # fmt: skip
    queries = list(read_fasta(options.queries))
    if options.count:
        queries = queries[:: len(queries) // options.count][: options.count]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        database = open_database(options.fasta, options.times, folder, options.threads)
        engine = open_search_engine(options.device)
        started = time.perf_counter()
        for _ in search_many(queries, database, SearchSettings(threads=options.threads), engine=engine):
            pass
        print(f"first search: {time.perf_counter() - started:.1f} s", flush=True)
        for name in options.runs:
            max_seqs, iterations = map(int, name.split("x"))
            evalue = 1e-3 if iterations == 1 else 0.1
            settings = SearchSettings(
                evalue=evalue, max_seqs=max_seqs, num_iterations=iterations, threads=options.threads
            )
            run(queries, database, engine, settings, options.alignments)


if __name__ == "__main__":
    main()
