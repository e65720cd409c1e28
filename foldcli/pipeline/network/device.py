"""The network's device: selection of the device, its precision and kernels, and memory of predictions."""

import re
from dataclasses import dataclass, replace
from typing import Literal

import torch

from foldcli.families.settings import JobSettings, NetworkOptions
from foldcli.outputs.facts import Facts
from model.layers.kernels import best_kernels
from msa.base.errors import MissingError


def choose_device(requested: str) -> str:
    """Return the torch device for `--device`; of a list, the first.

    "auto" is the first GPU if there is one, else the CPU.

    Raises:
        MissingError: the requested GPU does not exist.
    """
    if requested == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    requested = requested.partition(",")[0]
    if requested.startswith("cuda") and not torch.cuda.is_available():
        raise MissingError(
            f"--device {requested}: torch finds no CUDA GPU",
            "Check the driver with nvidia-smi, or use --device cpu.",
        )
    if requested.startswith("cuda:") and int(requested[5:]) >= (count := torch.cuda.device_count()):
        raise MissingError(
            f"--device {requested}: torch finds {count} CUDA GPU{'s' if count > 1 else ''}, numbered from 0",
            "List them with nvidia-smi, or use --device auto.",
        )
    return "cuda:0" if requested == "cuda" else requested


def choose_rank_device(requested: str, index: int, count: int) -> str:
    """Return the torch device of one of several processes on this host that predict a target together.

    Args:
        requested: value of `--device`; "auto" and "cuda" are the first GPUs, and without a GPU "auto" is the
            CPU, which all processes share.
        index: index of the process on this host.
        count: number of processes on this host.

    Raises:
        MissingError: there are not enough GPUs, or too few are listed.
    """
    if requested == "cpu" or (requested == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if requested.startswith("cuda:"):
        numbers = [int(number) for number in requested.removeprefix("cuda:").split(",")]
    else:
        numbers = list(range(torch.cuda.device_count()))
    if len(numbers) < count:
        raise MissingError(
            f"{count} processes need {count} GPUs on this host, but there are {len(numbers)} (--device "
            f"{requested})",
            "Use fewer with --gpus-per-target, or further hosts with torchrun.",
        )
    return choose_device(f"cuda:{numbers[index]}")


def choose_precision(requested: Literal["bf16", "fp32"] | None, device: str) -> Literal["bf16", "fp32"]:
    """Return the precision for `--precision`; None is bf16 on a GPU that supports it, else fp32.

    Raises:
        MissingError: bf16 was requested, and the GPU does not support it.
    """
    if device == "cpu":
        return requested or "fp32"
    with torch.cuda.device(device):
        supports_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    if requested == "bf16" and not supports_bf16:
        raise MissingError(
            f"--precision bf16: {torch.cuda.get_device_name(device)} has no bfloat16", "Use --precision fp32."
        )
    return requested or ("bf16" if supports_bf16 else "fp32")


def choose_kernels(
    requested: Literal["auto", "fused", "reference"], device: str
) -> Literal["fused", "reference"]:
    """Return the kernels for `--kernels`; "auto" is fused on a GPU with Triton, else the reference.

    Raises:
        MissingError: fused kernels were requested, and there is no GPU or no Triton.
    """
    best: Literal["fused", "reference"] = "fused" if best_kernels(device) == "fused" else "reference"
    if requested == "fused" and best != "fused":
        on_gpu = device != "cpu"
        remedy = "Install triton." if on_gpu else "Use --device cuda or --kernels reference."
        raise MissingError(f"--kernels fused: there is no {'Triton' if on_gpu else 'GPU'}", remedy)
    return best if requested == "auto" else requested


@dataclass(frozen=True)
class NetworkMemory:
    """The memory of one device that the network may use.

    Args:
        device: a torch device, such as "cpu" or "cuda:0"; memory is planned on GPUs only.
        max_bytes: largest number of bytes; None is all that is free.
        ranks: number of devices, each with as much memory, that predict a target together.
        strict: refuse a target that is not expected to fit, instead of trying it.
    """

    device: str
    max_bytes: int | None = None
    ranks: int = 1
    strict: bool = False

    @property
    def is_planned(self) -> bool:
        """True if passes are split into chunks that fit: on a GPU."""
        return self.device != "cpu"

    def limit(self) -> None:
        """Make torch's allocator refuse more than `max_bytes`."""
        if self.device != "cpu" and self.max_bytes is not None:
            total = torch.cuda.get_device_properties(self.device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, self.max_bytes / total), self.device)

    def available_bytes(self) -> int:
        """Return the bytes available on the GPU now: free, or reserved by the allocator and unused."""
        free, _ = torch.cuda.mem_get_info(self.device)
        used = torch.cuda.memory_allocated(self.device)
        available = free + torch.cuda.memory_reserved(self.device) - used
        return available if self.max_bytes is None else min(available, max(0, self.max_bytes - used))

    def is_usable(self) -> bool:
        """Return False if this process cannot use the GPU any more, such as after an invalid access."""
        if self.device != "cpu":
            try:
                torch.cuda.synchronize(self.device)
            except RuntimeError:
                return False
        return True

    def device_name(self) -> str:
        """Return the name of the GPU, or "CPU", with the number of devices if there are several."""
        name = "CPU" if self.device == "cpu" else str(torch.cuda.get_device_name(self.device))
        return name if self.ranks == 1 else f"{self.ranks} × {name}"

    def reset_peak(self) -> None:
        """Start measuring the peak memory of `facts`."""
        if self.device != "cpu":
            # a worker's first target comes before anything else has used the GPU
            torch.cuda.init()
            torch.cuda.reset_peak_memory_stats(self.device)

    def facts(self) -> Facts:
        """Return the facts about the device, on a GPU with the peak of its allocated bytes."""
        ranks = self.ranks if self.ranks > 1 else None
        if self.device == "cpu":
            return Facts(gpus_per_target=ranks, device="cpu")
        peak = torch.cuda.max_memory_allocated(self.device)
        name = torch.cuda.get_device_name(self.device)
        return Facts(gpus_per_target=ranks, device=name, peak_gpu_memory_bytes=peak)

    def describe_shortage(self, message: str) -> str:
        """Describe a lack of memory: the size that was requested, and the memory that was free."""
        match = re.search(r"Tried to allocate ([\d.]+ \w+)", message)
        text = f"{match[1]} more" if match else message.partition(". ")[0]
        if self.device != "cpu":
            torch.cuda.empty_cache()
            free, total = (size / 2**30 for size in torch.cuda.mem_get_info(self.device))
            limit = "" if self.max_bytes is None else f", --max-memory {self.max_bytes / 2**30:.1f} GiB"
            text += f"; without this target {free:.1f} of the GPU's {total:.1f} GiB are free{limit}"
        return text


def set_up_device(options: NetworkOptions, device: str, ranks: int = 1) -> tuple[NetworkMemory, JobSettings]:
    """Return the memory that may be used on a device, and the settings with its precision and kernels.

    Raises:
        MissingError: the device's bf16 or the requested kernels do not exist.
    """
    memory = NetworkMemory(device, options.max_memory, ranks)
    memory.limit()
    settings = replace(
        options.predict,
        precision=choose_precision(options.precision, device),
        kernels=choose_kernels(options.kernels, device),
    )
    return memory, settings
