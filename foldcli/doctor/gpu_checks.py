"""Checks of NVIDIA GPUs, as the search sees them and as torch sees them."""

import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from foldcli.doctor.result import CheckContext, CheckResult, CheckStatus, describe_briefly

_GIB = 2**30
_DRIVER_FILE = Path("/proc/driver/nvidia/version")


def check_gpus(context: CheckContext) -> list[CheckResult]:
    """Check driver, toolkit, device and memory through the functions that the search uses."""
    if context.device == "cpu":
        return [CheckResult("GPU", CheckStatus.OK, "not checked: --device cpu")]
    if not context.uses_gpu():
        return [CheckResult("GPU", CheckStatus.OK, "no NVIDIA GPU: search and network run on the CPU")]
    return [_driver_version(), *(_check_search_gpu(number, context) for number in context.gpus)]


def _driver_version() -> CheckResult:
    """Read the driver's own version, which its CUDA library does not report."""
    try:
        text = _DRIVER_FILE.read_text()
    except OSError:
        return CheckResult("NVIDIA driver", CheckStatus.OK, f"version unknown: no {_DRIVER_FILE}")
    match = re.search(r"\d{3,}\.\d+(\.\d+)?", text)
    return CheckResult("NVIDIA driver", CheckStatus.OK, match.group() if match else text.strip())


def _check_search_gpu(number: int, context: CheckContext) -> CheckResult:
    from msa.gpu.devices import GpuUnavailable, find_gpu

    name = f"GPU {number} for the search"
    try:
        gpu = find_gpu(number)
    except GpuUnavailable as error:
        return CheckResult(name, context.status_without_gpu, error.reason, error.remedy)
    capability, driver, toolkit = (
        f"{major}.{minor}" for major, minor in (gpu.capability, gpu.driver, gpu.toolkit)
    )
    return CheckResult(
        name,
        CheckStatus.OK,
        f"{gpu.name}, compute capability {capability}, {gpu.free_bytes / _GIB:.1f} of "
        f"{gpu.total_bytes / _GIB:.1f} GiB free, driver for CUDA {driver}, toolkit {toolkit}",
    )


def check_network_gpu(context: CheckContext) -> list[CheckResult]:
    """Check the GPU that the network would run on, the first of the listed ones, through torch."""
    if not context.uses_gpu():
        return []
    import torch

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
    from model.kernels import slower_kernels_warning

    parts.append(f"Triton {version('triton')}")
    if limitation := slower_kernels_warning(torch.cuda.get_device_capability(number), version("triton")):
        found = ", ".join([*parts, limitation])
        return [CheckResult(name, CheckStatus.WARNING, found, "pip install 'torch==2.11.*'")]
    return [CheckResult(name, CheckStatus.OK, ", ".join(parts))]


def _cuda_init_error() -> str:
    """Return the error of initializing CUDA, in parentheses; "" if there is none."""
    import torch

    try:
        torch.cuda.init()
    except Exception as error:  # torch's errors and CUDA's have no common base class
        return f" ({describe_briefly(error)})"
    return ""
