"""From command-line settings to the objects that do the work: threads, device, parameters."""

import os
import warnings
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from foldcli.logs import logger
from foldcli.options.common import parse_size
from foldcli.params.parameters import UNTRAINED, find_parameters
from foldcli.paths import cache_dir
from foldcli.pipeline.background import in_background
from foldcli.pipeline.network_memory import NetworkMemory
from foldcli.pipeline.predictor import Predictor, PredictSettings
from foldcli.pipeline.preload import begin, keep_byte_code
from foldcli.process_state import set_triton_cache_folder
from foldcli.progress import CompilationProgress
from msa.gpu.opening import without_collection

if TYPE_CHECKING:
    import torch

    from msa.search.engine import Engine


def prepare(settings: dict[str, Any], threads: int, soon: bool = True) -> Predictor:
    """The predictor for the options of `foldcli predict` and `fold`.

    Args:
        settings: the options.
        threads: of the CPU.
        soon: predictions follow, so that what they need may be begun with.

    Raises:
        MissingError: parameters, the GPU, its bf16 or the kernels asked for are not there.
    """
    # parameters are looked for before torch is imported, so that the common mistake is answered at once
    sources = find_parameters(settings["params"], settings["models"], settings["model_type"])
    set_triton_cache_folder()
    keep_byte_code()
    arrays = begin(settings["device"], sources[0].file) if soon else None
    with without_collection():
        import torch

    torch.set_num_threads(threads)
    device = choose_device(settings["device"])
    memory = NetworkMemory(device, settings["max_memory"])
    memory.limit()
    settings = settings | {
        "precision": choose_precision(settings["precision"], device),
        "kernels": choose_kernels(settings["kernels"], device),
    }
    if any(source.untrained for source in sources):
        logger.warning("%s", UNTRAINED)
    chosen = PredictSettings(**{field.name: settings[field.name] for field in fields(PredictSettings)})
    if soon and device != "cpu":
        # takes its time, and parameters can be read beside it
        in_background(lambda: _wake(device, chosen.dtype))
    return Predictor(sources, chosen, memory, arrays=arrays)


def _wake(device: str, dtype: "torch.dtype") -> None:
    """Have the GPU's libraries load what the network's first operations wait for."""
    import torch

    from model.embedders import RECYCLED_BINS, distance_bins

    with torch.inference_mode():
        x = torch.ones(256, 64, device=device, dtype=dtype)
        torch.addmm(x[0], x, x[:64])
        distance_bins(torch.zeros(2, 3, device=device), *RECYCLED_BINS)
        x.float() @ x[:64].float()


def choose_device(asked: str) -> str:
    """The torch device for `--device`: "auto" is the first GPU if there is one, else the CPU.

    Raises:
        MissingError: a GPU was asked for and there is none.
    """
    import torch

    from msa.errors import MissingError

    if asked == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    if "," in asked:
        asked = asked.partition(",")[0]
        logger.info("the network runs on one GPU, %s", asked)
    if asked.startswith("cuda") and not torch.cuda.is_available():
        raise MissingError(
            f"--device {asked}: torch finds no CUDA GPU",
            "Check the driver with nvidia-smi, or use --device cpu.",
        )
    if asked.startswith("cuda:") and int(asked[5:]) >= (count := torch.cuda.device_count()):
        raise MissingError(
            f"--device {asked}: torch finds {count} CUDA GPU{'s' if count > 1 else ''}, numbered from 0",
            "List them with nvidia-smi, or use --device auto.",
        )
    return "cuda:0" if asked == "cuda" else asked


def choose_precision(asked: str | None, device: str) -> str:
    """The precision for `--precision`: where none was asked for, bf16 on a GPU that has it, else fp32.

    Raises:
        MissingError: bf16 was asked for and the GPU has none.
    """
    if device == "cpu":
        return asked or "fp32"
    import torch

    from msa.errors import MissingError

    with torch.cuda.device(device):
        there = torch.cuda.is_bf16_supported(including_emulation=False)
    if asked == "bf16" and not there:
        raise MissingError(
            f"--precision bf16: {torch.cuda.get_device_name(device)} has no bfloat16", "Use --precision fp32."
        )
    return asked or ("bf16" if there else "fp32")


def choose_kernels(asked: str, device: str) -> str:
    """The kernels for `--kernels`: "auto" is fused on a GPU where Triton is there, else the reference.

    Raises:
        MissingError: fused kernels were asked for and there is no GPU or no Triton.
    """
    from model.kernels import best_kernels
    from msa.errors import MissingError

    best = best_kernels(device)
    if asked == "fused" and best != "fused":
        on_gpu = device != "cpu"
        remedy = "Install triton." if on_gpu else "Use --device cuda or --kernels reference."
        raise MissingError(f"--kernels fused: there is no {'Triton' if on_gpu else 'GPU'}", remedy)
    return best if asked == "auto" else asked


def search_engine(device: str, share: float = 0.9) -> "Engine":
    """The search engine for `--device`, "auto" being the first GPU that works, else the CPU.

    $FOLDCLI_GPU_MEMORY, such as 2G, is the most that the database may take on each GPU.

    On a machine with a GPU that cannot be used, "auto" says why in one line; where there is none, nothing.

    Args:
        device: value of `--device`.
        share: of the GPU's free memory, at most.

    Raises:
        GpuUnavailable: a GPU was asked for and cannot be used.
        InputError: $FOLDCLI_GPU_MEMORY is no size.
    """
    from msa.search.engine_selection import EngineSettings, create_engine

    # a short query's alignment is a small launch, which numba warns of at every shape
    warnings.filterwarnings("ignore", message=".*GPU under-utilization due to low occupancy")
    settings = EngineSettings(device, cache_dir() / "kernels", share, most_gpu_bytes())
    return create_engine(settings, lambda line: logger.info("%s", line), CompilationProgress())


def most_gpu_bytes() -> int | None:
    """$FOLDCLI_GPU_MEMORY in bytes, None where it is not set.

    Raises:
        InputError: it is no size.
    """
    text = os.environ.get("FOLDCLI_GPU_MEMORY", "")
    if not text:
        return None
    size = parse_size(text)
    if size is None:
        from msa.errors import InputError

        raise InputError(f"FOLDCLI_GPU_MEMORY is {text!r}: expected bytes such as 500000000, 500M or 2G")
    return size
