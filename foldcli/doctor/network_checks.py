"""Checks of the network's operations: plain PyTorch against numpy, and kernels against float64."""

from typing import TYPE_CHECKING

from foldcli.doctor.gpus import gpu_wanted
from foldcli.doctor.outcome import Context, Outcome, Status

if TYPE_CHECKING:
    import torch

    from model.kernels import Kernels

_CPU_TOLERANCE = 1e-5
_AS_CLOSE = 4
_REPORT = "Report it with this output."


def check_cpu_network(context: Context) -> Outcome:
    """Layer normalisation and gated attention, in float32 with torch and in float64 with numpy."""
    from model.kernels import REFERENCE

    return compared_with_numpy("network on the CPU", REFERENCE)


def check_gpu_network(context: Context) -> list[Outcome]:
    """Fused kernels, or plain PyTorch where there are none, on the network's GPU and in its precision."""
    import torch

    if not gpu_wanted(context) or not torch.cuda.is_available():
        return []
    number = context.gpus[0]
    if number >= torch.cuda.device_count():
        return []
    from foldcli.pipeline.runtime import choose_kernels, choose_precision
    from model.kernels import select_kernels

    device = f"cuda:{number}"
    kernels, precision = choose_kernels("auto", device), choose_precision(None, device)
    chosen = f"network on GPU {number} ({kernels}, {precision})"
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[precision]
    return [compared_with_float64(chosen, select_kernels(kernels, device), device, dtype)]


def compared_with_numpy(name: str, kernels: "Kernels") -> Outcome:
    """Whether operations in float32 on the CPU give what numpy gives for their formulas.

    Args:
        name: of the outcome.
        kernels: the operations.
    """
    from model.operations_check import differences_from_numpy

    differences = differences_from_numpy(kernels)
    for key, difference in differences.items():
        # so written, NaN is none
        if not difference < _CPU_TOLERANCE:
            said = f"{key} differs from numpy's by {difference:.1e}"
            return Outcome(name, Status.BROKEN, said, f"Is torch's installation whole? {_REPORT}")
    return Outcome(name, Status.OK, f"{', '.join(differences)} equal to numpy's within {_CPU_TOLERANCE:.0e}")


def compared_with_float64(
    name: str, kernels: "Kernels", device: "torch.device | str", dtype: "torch.dtype"
) -> Outcome:
    """Whether operations are as close to float64 as plain PyTorch is.

    Args:
        name: of the outcome.
        kernels: the operations.
        device, dtype: where and in what they run.
    """
    from model.operations_check import errors_against_float64

    errors = errors_against_float64(kernels, device, dtype)
    for key, (error, usual) in errors.items():
        # the kernels' own tests allow twice what plain PyTorch loses in this precision; here one draw decides
        if not error <= _AS_CLOSE * usual + 1e-6:
            said = f"{key} is off by {error:.1e}, and plain PyTorch by {usual:.1e}"
            return Outcome(name, Status.BROKEN, said, f"Try --kernels reference. {_REPORT}")
    return Outcome(name, Status.OK, f"{', '.join(errors)} compiled, and as close to float64 as plain PyTorch")
