"""Checks that searches find the right hits in a small database, whose scores are known independently."""

import tempfile
from pathlib import Path

from Bio.Align import substitution_matrices

from foldcli.doctor.result import REPORT_REQUEST, CheckContext, CheckResult, CheckStatus
from foldcli.pipeline.search.opening import open_search_engine
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.engine import Engine
from msa.engines.search_settings import SearchSettings
from msa.gpu.device.devices import GpuUnavailable
from msa.io.fasta import FastaRecord
from msa.search.database_search import search

# UniProt P0CG48 (one of its repeats), Q15843 and P00698, as mature proteins
UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
NEDD8 = "MLIKVKTLTGKEIEIDIEPTDKVERIKERVEEKEGIPPQQQRLIYSGKQMNDEKTAADYKILGGSVLHLVLALRGG"
LYSOZYME = (
    "KVFGRCELAAAMKRHGLDNYRGYSLGNWVCAAKFESNFNTQATNRNTDGSTDYGILQINSRWWCNDGRTPGSRNLCNIPCSALLSSDITASVNCAKKIVSDG"
    "NGMNAWVAWRNRCKGTDVQAWIRGCRL"
)


def check_cpu_search(context: CheckContext) -> CheckResult:
    """Search with ubiquitin on the CPU.

    The hits must be ubiquitin and NEDD8, with the sums of BLOSUM62 as scores, and not lysozyme.
    """
    matrix = substitution_matrices.load("BLOSUM62")
    expected = [
        (name, int(sum(matrix[a, b] for a, b in zip(UBIQUITIN, target, strict=True))), f"{len(target)}M")
        for name, target in (("ubiquitin", UBIQUITIN), ("nedd8", NEDD8))
    ]
    hits = [hit[:3] for hit in _search(CpuEngine())]
    return _compare_hits("search on the CPU", hits, expected, "independently computed scores")


def check_gpu_search(context: CheckContext) -> list[CheckResult]:
    """Search on the GPUs; the hits must equal those of the CPU bit for bit."""
    if not context.uses_gpu():
        return []
    numbers = ",".join(map(str, context.gpus))
    try:
        engine = open_search_engine(f"cuda:{numbers}")
    except GpuUnavailable:
        # system_checks.check_gpus reports this
        return []
    name = f"search on GPU {numbers}"
    return [_compare_hits(name, _search(engine), _search(CpuEngine()), "the CPU's hits")]


def _search(engine: Engine) -> list[tuple[str | float, ...]]:
    """Search for ubiquitin in a database of three proteins.

    Returns:
        Target, score, CIGAR, E-value, and the ends of the alignment of each hit.
    """
    with tempfile.TemporaryDirectory(prefix="foldcli-doctor-") as folder:
        fasta, database = Path(folder, "targets.fasta"), Path(folder, "db")
        fasta.write_text(f">ubiquitin\n{UBIQUITIN}\n>nedd8\n{NEDD8}\n>lysozyme\n{LYSOZYME}\n")
        build_database([fasta], database, BuildSettings(mask=False, threads=1))
        settings = SearchSettings(matrix="BLOSUM62", gap_open=11, comp_bias_corr=False, threads=1)
        query, targets = FastaRecord("query", UBIQUITIN), TargetDatabase.open(database)
        hits = search(query, targets, settings, engine=engine)
        return [
            (hit.id, hit.alignment.score, hit.alignment.cigar, hit.evalue, *hit.alignment[1:5])
            for hit in hits
        ]


def _compare_hits(name: str, hits: list, expected: list, reference: str) -> CheckResult:
    if hits == expected:
        return CheckResult(name, CheckStatus.OK, f"compiled, and equal to {reference}")
    return CheckResult(
        name,
        CheckStatus.BROKEN,
        f"differs from {reference}: {hits} instead of {expected}",
        "Remove the folder kernels in $FOLDCLI_CACHE and try again. If the problem persists: "
        + REPORT_REQUEST,
    )
