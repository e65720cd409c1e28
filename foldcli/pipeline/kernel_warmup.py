"""The first use of the network's GPU kernels on a machine: they are compiled side by side, not one by one."""

from concurrent.futures import as_completed
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.options.common import available_cores
from foldcli.pipeline.background import side_by_side
from foldcli.pipeline.fingerprint import fingerprint
from foldcli.progress import CompilationProgress
from foldcli.version import VERSION

if TYPE_CHECKING:
    from model.alphafold import AlphaFold
    from model.memory_plan import PassSize

# each compiles in memory of its own
MOST_THREADS = 16
COMPILED = "compiled"


def compile_kernels(network: "AlphaFold", size: "PassSize") -> None:
    """Have a network's fused kernels compiled where nothing says that they have been.

    What fails here fails again where it is missed, and is told there.

    Args:
        network: on a GPU, with fused kernels.
        size: of its passes.
    """
    device = network.evoformer.single_activations.bias.device
    mark = _mark(network, size)
    if mark.exists():
        return
    import torch
    from triton.runtime import driver

    from model.first_use import operations

    # compiled by one thread, since all use it
    _ = driver.active.utils
    calls = operations(network, size)
    told = CompilationProgress()
    told(0, len(calls))
    futures = side_by_side(calls, min(available_cores(), MOST_THREADS))
    for done, _ in enumerate(as_completed(futures), 1):
        told(done, len(calls))
    # each thread had one of its own; and what was taken here is none of the target's
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    if not any(future.exception() for future in futures):
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def _mark(network: "AlphaFold", size: "PassSize") -> Path:
    """The file beside Triton's that says that the kernels for this GPU and such sizes are there."""
    import torch
    import triton

    from model.first_use import DIVISOR

    like = network.evoformer.single_activations.bias
    sizes = (size.residues, size.msa_rows, size.extra_rows)
    made_for = {
        "foldcli": VERSION,
        "triton": triton.__version__,
        "capability": torch.cuda.get_device_capability(like.device),
        "gpu": torch.cuda.get_device_name(like.device),
        "dtype": str(like.dtype),
        "sizes": [number if number == 1 else number % DIVISOR == 0 for number in sizes],
    }
    return Path(triton.knobs.cache.dir) / f"{COMPILED}-{fingerprint(made_for)[:16]}"
