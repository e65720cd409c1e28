"""Checks that search and network compute correct results, on small inputs with independent answers."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.doctor.result import CheckContext, CheckResult, CheckStatus

if TYPE_CHECKING:
    import torch

    from model.kernels import Kernels
    from msa.search.engine import Engine

# UniProt P0CG48 (one repeat), Q15843 and P00698, mature
UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
NEDD8 = "MLIKVKTLTGKEIEIDIEPTDKVERIKERVEEKEGIPPQQQRLIYSGKQMNDEKTAADYKILGGSVLHLVLALRGG"
LYSOZYME = (
    "KVFGRCELAAAMKRHGLDNYRGYSLGNWVCAAKFESNFNTQATNRNTDGSTDYGILQINSRWWCNDGRTPGSRNLCNIPCSALLSSDITASVNCAKKIVSDG"
    "NGMNAWVAWRNRCKGTDVQAWIRGCRL"
)

_REPORT = "Report it with this output."
_CPU_TOLERANCE = 1e-5
# The kernels' own tests allow twice the error of plain PyTorch; a single random input needs more margin.
_MAX_ERROR_RATIO = 4


def check_cpu_search(context: CheckContext) -> CheckResult:
    """Search with ubiquitin on the CPU.

    The hits must be ubiquitin and NEDD8, with the sums of BLOSUM62 as scores, and not lysozyme.
    """
    from Bio.Align import substitution_matrices

    from msa.cpu.engine import CpuEngine

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
    from foldcli.pipeline.searcher import open_search_engine
    from msa.cpu.engine import CpuEngine
    from msa.gpu.devices import GpuUnavailable

    numbers = ",".join(map(str, context.gpus))
    try:
        engine = open_search_engine(f"cuda:{numbers}")
    except GpuUnavailable:
        # gpu_checks.check_gpus reports this
        return []
    name = f"search on GPU {numbers}"
    return [_compare_hits(name, _search(engine), _search(CpuEngine()), "the CPU's hits")]


def _search(engine: "Engine") -> list[tuple[str, int, str, float, int, int]]:
    """Search for ubiquitin in a database of three proteins.

    Returns:
        Target, score, CIGAR, E-value, query start and target start of each hit.
    """
    from msa.database.build import BuildSettings, build_database
    from msa.database.database import TargetDatabase
    from msa.io.fasta import FastaRecord
    from msa.search.search import SearchSettings, search

    with tempfile.TemporaryDirectory(prefix="foldcli-doctor-") as folder:
        fasta, database = Path(folder, "targets.fasta"), Path(folder, "db")
        fasta.write_text(f">ubiquitin\n{UBIQUITIN}\n>nedd8\n{NEDD8}\n>lysozyme\n{LYSOZYME}\n")
        build_database([fasta], database, BuildSettings(mask=False, threads=1))
        settings = SearchSettings(comp_bias_corr=False, threads=1)
        query, targets = FastaRecord("query", UBIQUITIN), TargetDatabase.open(database)
        hits = search(query, targets, settings, engine=engine)
        return [(hit.id, hit.score, hit.cigar, hit.evalue, hit.qstart, hit.tstart) for hit in hits]


def _compare_hits(name: str, hits: list, expected: list, reference: str) -> CheckResult:
    if hits == expected:
        return CheckResult(name, CheckStatus.OK, f"compiled, and equal to {reference}")
    return CheckResult(
        name,
        CheckStatus.BROKEN,
        f"differs from {reference}: {hits} instead of {expected}",
        f"Remove the folder kernels in $FOLDCLI_CACHE and try again. If the problem persists: {_REPORT}",
    )


def check_cpu_network(context: CheckContext) -> CheckResult:
    """Compare layer normalisation and gated attention, float32 in torch, with float64 in numpy."""
    from model.kernels import REFERENCE

    return compare_with_numpy("network on the CPU", REFERENCE)


def check_gpu_network(context: CheckContext) -> list[CheckResult]:
    """Check fused kernels, or plain PyTorch if there are none, on the network's GPU in its precision."""
    import torch

    if not context.uses_gpu() or not torch.cuda.is_available():
        return []
    number = context.gpus[0]
    if number >= torch.cuda.device_count():
        return []
    from foldcli.pipeline.device import choose_kernels, choose_precision
    from model.kernels import select_kernels

    device = f"cuda:{number}"
    kernels, precision = choose_kernels("auto", device), choose_precision(None, device)
    name = f"network on GPU {number} ({kernels}, {precision})"
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[precision]
    return [compare_with_float64(name, select_kernels(kernels, device), device, dtype)]


def compare_with_numpy(name: str, kernels: "Kernels") -> CheckResult:
    """Check operations in float32 on the CPU against numpy's evaluation of their formulas.

    Args:
        name: name of the result.
        kernels: the operations.
    """
    from model.kernel_check import differences_from_numpy

    differences = differences_from_numpy(kernels)
    for operation, difference in differences.items():
        # `not <` instead of `>=`, so that NaN fails
        if not difference < _CPU_TOLERANCE:
            found = f"{operation} differs from numpy's by {difference:.1e}"
            return CheckResult(name, CheckStatus.BROKEN, found, f"Is torch installed correctly? {_REPORT}")
    found = f"{', '.join(differences)} equal to numpy's within {_CPU_TOLERANCE:.0e}"
    return CheckResult(name, CheckStatus.OK, found)


def compare_with_float64(
    name: str, kernels: "Kernels", device: "torch.device | str", dtype: "torch.dtype"
) -> CheckResult:
    """Check that operations are about as close to float64 as plain PyTorch is.

    Args:
        name: name of the result.
        kernels: the operations.
        device: device that they run on.
        dtype: dtype of their inputs.
    """
    from model.kernel_check import errors_against_float64

    errors = errors_against_float64(kernels, device, dtype)
    for operation, (error, reference_error) in errors.items():
        if not error <= _MAX_ERROR_RATIO * reference_error + 1e-6:
            found = f"{operation} is off by {error:.1e}, and plain PyTorch by {reference_error:.1e}"
            return CheckResult(name, CheckStatus.BROKEN, found, f"Try --kernels reference. {_REPORT}")
    found = f"{', '.join(errors)} compiled, and as close to float64 as plain PyTorch"
    return CheckResult(name, CheckStatus.OK, found)
