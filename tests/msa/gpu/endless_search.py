"""A search on two GPUs that never ends: endless_search.py FOLDER prints the process ids of the GPUs."""

import sys
from pathlib import Path

from msa.gpu import engine
from msa.gpu.remote_worker import start_remote_workers
from msa.gpu.worker.interface import GpuSettings
from msa.gpu.worker.process_start import GpuProcess
from msa.profile.pssm import ProfileRecord
from msa.search.database_search import search_many
from tests.msa.gpu.tiny_search import BATCH_QUERIES, TinySearch

tiny = TinySearch(Path(sys.argv[1]))
engine._BATCH_QUERIES, engine._REPLICATED_BYTES = BATCH_QUERIES, 0
processes = [GpuProcess(0, entry="tests.msa.gpu.worker_with_faults:stuck") for _ in range(2)]
workers = start_remote_workers(processes, GpuSettings(Path(sys.argv[1]) / "kernels"))
# several batches of one kind, of which the first ends
queries = 3 * [query for query in tiny.queries if not isinstance(query, ProfileRecord)]
results = search_many(queries, tiny.database, tiny.settings, engine=engine.GpuEngine(workers))
next(results)
print(*(worker.process.service.process.pid for worker in workers), flush=True)
list(results)
