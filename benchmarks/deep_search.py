"""Time of searches for tables and for folding: up to 10,000 hits per query, in up to three iterations.

    python benchmarks/deep_search.py --fasta TARGETS.fasta --queries QUERIES.fasta [--times 16]
        [--devices cuda:0 cuda:0,1 cuda:0,1,2,3] [--runs 300x1 300x3 10000x1 10000x3] [--folder FOLDER]

The database contains the FASTA file `--times` times (ids get a suffix); it is kept in `--folder` if given. A
run MxN searches with all queries in N iterations, with `--max-seqs M`, the database already on the GPU, and
writes an m8 table; several iterations use an E-value of 0.1, as searches for folding do, one uses 1e-3. A
first search with all queries on each device copies the database, compiles kernels and is reported separately.
For each run, the output lists the best wall seconds of the repeats and the ratio to the first device, the
number of hits, queries whose hits reached the limit, seconds of the engine's stages and CPU seconds of the
process. The tables must be the same on all devices.

--folder: keeps the database; default: a temporary folder.
"""

import hashlib
import io
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from options import parse_options
from search_gpu import write_copies

from foldcli.pipeline.search.opening import open_search_engine
from msa.alignments.m8 import write_m8
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.engine import Engine
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord, read_fasta
from msa.search.database_search import search_many


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
    queries: list[FastaRecord], database: TargetDatabase, engine: Engine, settings: SearchSettings
) -> tuple[float, str, str]:
    """Search once; return the seconds, the other figures as text, and a digest of the table."""
    digest, hits_found, capped, writing = hashlib.sha256(), 0, 0, 0.0
    stages = dict(engine.seconds)
    started, cpu = time.perf_counter(), time.process_time()
    for query, hits in search_many(queries, database, settings, engine=engine):
        received = time.perf_counter()
        text = io.StringIO()
        write_m8(text, query, hits)
        digest.update(text.getvalue().encode())
        writing += time.perf_counter() - received
        hits_found, capped = hits_found + len(hits), capped + hits.capped
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    stages = {name: spent - stages[name] for name, spent in engine.seconds.items()}
    times = {**stages, "table": writing, "CPU": cpu}
    text = ", ".join(f"{name} {spent:.2f} s" for name, spent in times.items())
    return seconds, f"{hits_found} hits, {capped} queries reached the limit; {text}", digest.hexdigest()


def main() -> None:
    options = parse_options(
        __doc__, fasta=..., queries=..., times=16, devices=["cuda"], runs=["300x1", "300x3", "10000x1",
        "10000x3"], repeats=1, threads=len(os.sched_getaffinity(0)), folder=Path
    )  # fmt: skip
    queries = list(read_fasta(options.queries))
    firsts: dict[str, tuple[float, str]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        database = open_database(options.fasta, options.times, folder, options.threads)
        for device in options.devices:
            engine: Any = open_search_engine(device)
            seconds, _, _ = run(queries, database, engine, SearchSettings(threads=options.threads))
            print(f"{device}, first search: {seconds:.1f} s", flush=True)
            for name in options.runs:
                max_seqs, iterations = map(int, name.split("x"))
                evalue = 1e-3 if iterations == 1 else 0.1
                settings = SearchSettings(
                    evalue=evalue, max_seqs=max_seqs, num_iterations=iterations, threads=options.threads
                )
                runs = [run(queries, database, engine, settings) for _ in range(options.repeats)]
                seconds, text, table = min(runs)
                first, expected = firsts.setdefault(name, (seconds, table))
                print(
                    f"{device}, {name}: {seconds:.2f} s, {first / seconds:.2f} × the first; {text}",
                    flush=True,
                )
                if table != expected:
                    raise SystemExit(f"deep_search: the table of {device} differs")
            if device != "cpu":
                engine.close()


if __name__ == "__main__":
    main()
