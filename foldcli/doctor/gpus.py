"""Checks of NVIDIA GPUs, once as the search sees them and once as torch does."""

import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from foldcli.doctor.outcome import Context, Outcome, Status, first_line

_GIB = 2**30
_MODULE = Path("/proc/driver/nvidia/version")


def gpu_wanted(context: Context) -> bool:
    """Whether GPUs are to be looked at: under "auto" only where the machine has one."""
    from msa.gpu.devices import has_nvidia_hardware

    return context.device != "cpu" and (context.device != "auto" or has_nvidia_hardware())


def check_gpus(context: Context) -> list[Outcome]:
    """Driver, toolkit, device and memory, as the search asks for them."""
    if context.device == "cpu":
        return [Outcome("GPU", Status.OK, "not asked about: --device cpu")]
    if not gpu_wanted(context):
        return [Outcome("GPU", Status.OK, "no NVIDIA GPU: search and network run on the CPU")]
    return [_driver_module(), *(_gpu(number, context) for number in context.gpus)]


def _driver_module() -> Outcome:
    """The driver's own version, which its CUDA library does not tell."""
    try:
        found = re.search(r"\d{3,}\.\d+(\.\d+)?", _MODULE.read_text())
    except OSError:
        return Outcome("NVIDIA driver", Status.OK, f"version not known here: no {_MODULE}")
    return Outcome("NVIDIA driver", Status.OK, found.group() if found else _MODULE.read_text().strip())


def _gpu(number: int, context: Context) -> Outcome:
    from msa.gpu.devices import GpuUnavailable, find_gpu

    name = f"GPU {number} for the search"
    try:
        gpu = find_gpu(number)
    except GpuUnavailable as error:
        return Outcome(name, context.without_gpu, error.reason, error.remedy)
    capability, driver, toolkit = (
        f"{major}.{minor}" for major, minor in (gpu.capability, gpu.driver, gpu.toolkit)
    )
    return Outcome(
        name,
        Status.OK,
        f"{gpu.name}, compute capability {capability}, {gpu.free_bytes / _GIB:.1f} of "
        f"{gpu.total_bytes / _GIB:.1f} GiB free, driver for CUDA {driver}, toolkit {toolkit}",
    )


def check_torch(context: Context) -> list[Outcome]:
    """The GPU that the network would run on: the first of those named."""
    if not gpu_wanted(context):
        return []
    import torch

    number = context.gpus[0]
    name = f"GPU {number} for the network"
    if torch.version.cuda is None:
        return [
            Outcome(
                name,
                context.without_gpu,
                f"torch {torch.__version__} is built without CUDA: the network runs on the CPU",
                "Install a torch with CUDA, as pytorch.org tells for the driver of this machine.",
            )
        ]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if number >= count:
        return [
            Outcome(
                name,
                context.without_gpu,
                f"torch {torch.__version__}, CUDA {torch.version.cuda}, finds {count} GPUs{_why_none(count)}",
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
        slow = "no Triton: the network runs on plain PyTorch, slower and in more memory"
        return [Outcome(name, Status.WARNING, ", ".join([*parts, slow]), "pip install triton")]
    from model.kernels import slower_for

    parts.append(f"Triton {version('triton')}")
    if slow := slower_for(torch.cuda.get_device_capability(number), version("triton")):
        return [Outcome(name, Status.WARNING, ", ".join([*parts, slow]), "pip install 'torch==2.11.*'")]
    return [Outcome(name, Status.OK, ", ".join(parts))]


def _why_none(count: int) -> str:
    """What CUDA says when it is asked to start."""
    import torch

    if count:
        return ""
    try:
        torch.cuda.init()
    except Exception as error:  # torch's own and CUDA's errors share no class
        return f" ({first_line(error)})"
    return ""
