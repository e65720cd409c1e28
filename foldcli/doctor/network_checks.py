"""Checks of the network: parameter files, the GPU as torch sees it, and the results of its operations."""

from importlib.metadata import version
from importlib.util import find_spec

import torch

from foldcli.doctor.result import REPORT_REQUEST, CheckContext, CheckResult, CheckStatus, describe_briefly
from foldcli.pipeline.network.device import choose_kernels, choose_precision
from foldcli.pipeline.network.kernels import are_compiled
from model.alphafold2.modules.config import model_config
from model.layers.kernels import REFERENCE, Kernels, select_kernels, slower_kernels_warning
from model.planning.kernel_check import differences_from_numpy, errors_against_float64

_GIB = 2**30
_CPU_TOLERANCE = 1e-5
# the kernels of this network, which has no templates, are those that all networks need
_NETWORK = model_config("model_3_ptm")
# The kernels' own tests allow twice the error of plain PyTorch; a single random input needs more margin.
_MAX_ERROR_RATIO = 4


def check_network_gpu(context: CheckContext) -> list[CheckResult]:
    """Check the GPU that the network would run on, the first of the listed ones, through torch."""
    if not context.uses_gpu():
        return []
    number = context.gpus[0]
    name = f"GPU {number} for the network"
    if torch.version.cuda is None:
        return [
            CheckResult(
                name,
                context.status_without_gpu,
                f"torch {torch.__version__} is built without CUDA: the network runs on the CPU",
                "Install a torch with CUDA; pytorch.org lists the builds for this machine's driver.",
            )
        ]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if number >= count:
        reason = "" if count else _cuda_init_error()
        return [
            CheckResult(
                name,
                context.status_without_gpu,
                f"torch {torch.__version__}, CUDA {torch.version.cuda}, finds {count} GPUs{reason}",
                "See nvidia-smi and CUDA_VISIBLE_DEVICES; an old driver needs a torch for an older CUDA.",
            )
        ]
    with torch.cuda.device(number):
        free, total = torch.cuda.mem_get_info()
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    parts = [
        torch.cuda.get_device_name(number),
        f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB free",
        f"CUDA {torch.version.cuda}",
        "bfloat16" if bf16 else "no bfloat16: --precision is fp32",
        f"{count} visible",
    ]
    if find_spec("triton") is None:
        parts.append("no Triton: the network runs on plain PyTorch, slower and with more memory")
        return [CheckResult(name, CheckStatus.WARNING, ", ".join(parts), "pip install triton")]
    parts.append(f"Triton {version('triton')}")
    if are_compiled(_NETWORK, torch.cuda.get_device_name(number), torch.cuda.get_device_capability(number)):
        parts.append("kernels compiled")
    else:
        parts.append("kernels not compiled: the first prediction or foldcli warmup does that")
    if limitation := slower_kernels_warning(torch.cuda.get_device_capability(number), version("triton")):
        finding = ", ".join([*parts, limitation])
        return [CheckResult(name, CheckStatus.WARNING, finding, "pip install 'torch==2.11.*'")]
    return [CheckResult(name, CheckStatus.OK, ", ".join(parts))]


def _cuda_init_error() -> str:
    """Return the error of initializing CUDA, in parentheses; "" if there is none."""
    try:
        torch.cuda.init()
    except Exception as error:  # torch's errors and CUDA's have no common base class
        return f" ({describe_briefly(error)})"
    return ""


def check_cpu_network(context: CheckContext) -> CheckResult:
    """Compare layer normalisation and gated attention, float32 in torch, with float64 in numpy."""
    return compare_with_numpy("network on the CPU", REFERENCE)


def check_gpu_network(context: CheckContext) -> list[CheckResult]:
    """Check the kernels that the network would use on its GPU, in its precision."""
    if not context.uses_gpu() or not torch.cuda.is_available():
        return []
    number = context.gpus[0]
    if number >= torch.cuda.device_count():
        return []
    device = f"cuda:{number}"
    kernels, precision = choose_kernels("auto", device), choose_precision(None, device)
    name = f"network on GPU {number} ({kernels}, {precision})"
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[precision]
    return [compare_with_float64(name, select_kernels(kernels, device), device, dtype)]


def compare_with_numpy(name: str, kernels: Kernels) -> CheckResult:
    """Check operations in float32 on the CPU against numpy's evaluation of their formulas."""
    differences = differences_from_numpy(kernels)
    for operation, difference in differences.items():
        # `not <` instead of `>=`, so that NaN fails
        if not difference < _CPU_TOLERANCE:
            finding = f"{operation} differs from numpy's by {difference:.1e}"
            return CheckResult(
                name, CheckStatus.BROKEN, finding, f"Is torch installed correctly? {REPORT_REQUEST}"
            )
    finding = f"{', '.join(differences)} equal to numpy's within {_CPU_TOLERANCE:.0e}"
    return CheckResult(name, CheckStatus.OK, finding)


def compare_with_float64(
    name: str, kernels: Kernels, device: torch.device | str, dtype: torch.dtype
) -> CheckResult:
    """Check that operations are about as close to float64 as plain PyTorch is."""
    errors = errors_against_float64(kernels, device, dtype)
    for operation, (error, reference_error) in errors.items():
        if not error <= _MAX_ERROR_RATIO * reference_error + 1e-6:
            finding = f"{operation} is off by {error:.1e}, and plain PyTorch by {reference_error:.1e}"
            return CheckResult(
                name, CheckStatus.BROKEN, finding, f"Try --kernels reference. {REPORT_REQUEST}"
            )
    finding = f"{', '.join(errors)} compiled, and as close to float64 as plain PyTorch"
    return CheckResult(name, CheckStatus.OK, finding)
