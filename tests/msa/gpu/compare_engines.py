"""Compare the hits of both engines on a tiny database: compare_engines.py FOLDER CHUNK_BYTES."""

import sys
from pathlib import Path

import numpy as np

from msa.build import BuildSettings, build_database
from msa.database import TargetDatabase
from msa.fasta import FastaRecord
from msa.gpu.devices import find_gpu
from msa.gpu.engine import GpuEngine, GpuSettings
from msa.search import SearchSettings, search_many

folder, chunk_bytes = Path(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(1)
words = ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 12)) for _ in range(3)]
sequences = [words[0], words[1] + words[0][:9], words[0][:5] + "G" + words[0][5:]]
(folder / "t.fasta").write_text("".join(f">t{k}\n{s}\n" for k, s in enumerate(sequences)))
build_database([folder / "t.fasta"], folder / "db", BuildSettings(mask=False, threads=1))
database = TargetDatabase.open(folder / "db")
queries = [FastaRecord("a", words[0]), FastaRecord("b", words[1])]
settings = SearchSettings(evalue=1e9, max_seqs=3)
engine = GpuEngine(
    find_gpu(), GpuSettings(folder / "kernels", most_chunk_bytes=chunk_bytes), lambda line: None
)


def plain(found):  # type: ignore[no-untyped-def]
    return [
        [(h.target, h.score, h.evalue, h.qstart, h.qend, h.tstart, h.tend, h.cigar, h.identity) for h in hits]
        for _, hits in found
    ]


ours = plain(search_many(queries, database, settings, engine))
expected = plain(search_many(queries, database, settings))
assert ours == expected, f"{ours}\n{expected}"
print("equal:", sum(map(len, ours)))
