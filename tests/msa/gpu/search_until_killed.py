"""A search that never ends on two GPUs: search_until_killed.py FOLDER prints the processes of the GPUs."""

import sys
from pathlib import Path

from msa.gpu import engine
from msa.gpu.remote import remote_workers
from msa.gpu.settings import GpuSettings
from msa.search.search import search_many
from tests.msa.gpu.tiny import BATCH, Tiny

tiny = Tiny(Path(sys.argv[1]))
engine._BATCH, engine._REPLICATED_BYTES = BATCH, 0
command = [sys.executable, str(Path(__file__).with_name("child.py")), "stuck"]
workers = remote_workers([0, 0], GpuSettings(Path(sys.argv[1]) / "kernels"), command=command)
found = search_many(tiny.queries, tiny.database, tiny.settings, engine.GpuEngine(workers))
next(found)
print(*(worker._process.process.pid for worker in workers), flush=True)
list(found)
