"""Checks of the search: three targets, whose right answer is known without any of our code."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.doctor.gpus import gpu_wanted
from foldcli.doctor.outcome import Context, Outcome, Status

if TYPE_CHECKING:
    from msa.search.engine import Engine

# UniProt P0CG48 (one repeat), Q15843 and P00698, mature
UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
NEDD8 = "MLIKVKTLTGKEIEIDIEPTDKVERIKERVEEKEGIPPQQQRLIYSGKQMNDEKTAADYKILGGSVLHLVLALRGG"
LYSOZYME = (
    "KVFGRCELAAAMKRHGLDNYRGYSLGNWVCAAKFESNFNTQATNRNTDGSTDYGILQINSRWWCNDGRTPGSRNLCNIPCSALLSSDITASVNCAKKIVSDG"
    "NGMNAWVAWRNRCKGTDVQAWIRGCRL"
)


def check_cpu_search(context: Context) -> Outcome:
    """The CPU engine finds ubiquitin and NEDD8, with the sums of BLOSUM62 as scores, and not lysozyme."""
    from Bio.Align import substitution_matrices

    from msa.cpu.engine import CpuEngine

    matrix = substitution_matrices.load("BLOSUM62")
    expected = [
        (name, int(sum(matrix[a, b] for a, b in zip(UBIQUITIN, target, strict=True))), f"{len(target)}M")
        for name, target in (("ubiquitin", UBIQUITIN), ("nedd8", NEDD8))
    ]
    found = [hit[:3] for hit in _search(CpuEngine())]
    return _compared("search on the CPU", found, expected, "the scores computed without it")


def check_gpu_search(context: Context) -> list[Outcome]:
    """The engine on the GPUs finds what the CPU's does, bit for bit."""
    if not gpu_wanted(context):
        return []
    from foldcli.pipeline.runtime import search_engine
    from msa.cpu.engine import CpuEngine
    from msa.gpu.devices import GpuUnavailable

    numbers = ",".join(map(str, context.gpus))
    try:
        engine = search_engine(f"cuda:{numbers}")
    except GpuUnavailable:
        # gpus.check_gpus has said so
        return []
    name = f"search on GPU {numbers}"
    return [_compared(name, _search(engine), _search(CpuEngine()), "the CPU's hits")]


def _search(engine: "Engine") -> list[tuple[str, int, str, float, int, int]]:
    """Hits of ubiquitin in a database of three: target, score, CIGAR, E-value, where they start."""
    from msa.database.build import BuildSettings, build_database
    from msa.database.database import TargetDatabase
    from msa.io.fasta import FastaRecord
    from msa.search.search import SearchSettings, search

    with tempfile.TemporaryDirectory(prefix="foldcli-doctor-") as made:
        fasta, database = Path(made, "targets.fasta"), Path(made, "db")
        fasta.write_text(f">ubiquitin\n{UBIQUITIN}\n>nedd8\n{NEDD8}\n>lysozyme\n{LYSOZYME}\n")
        build_database([fasta], database, BuildSettings(mask=False, threads=1))
        settings = SearchSettings(comp_bias_corr=False, threads=1)
        query, targets = FastaRecord("query", UBIQUITIN), TargetDatabase.open(database)
        hits = search(query, targets, settings, engine=engine)
        return [(hit.id, hit.score, hit.cigar, hit.evalue, hit.qstart, hit.tstart) for hit in hits]


def _compared(name: str, found: list, expected: list, with_what: str) -> Outcome:
    if found == expected:
        return Outcome(name, Status.OK, f"compiled, and equal to {with_what}")
    return Outcome(
        name,
        Status.BROKEN,
        f"differs from {with_what}: {found} instead of {expected}",
        "Remove the folder kernels in $FOLDCLI_CACHE and try again; if it stays, report it with this output.",
    )
