"""Predict within the memory there is: chunks planned for it, and a second try with smaller ones."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foldcli.logs import logger
from foldcli.progress import Progress

if TYPE_CHECKING:
    import numpy as np

    from model.alphafold import AlphaFold
    from model.memory_plan import MemoryPlan
    from model.recycling import Prediction, RecyclingSettings

# the second try's chunks, as a share of the first's
SMALLER = 8


@dataclass(frozen=True)
class NetworkMemory:
    """What the network may take of one device.

    Args:
        device: a torch device, such as "cpu" or "cuda:0"; memory is planned on GPUs alone.
        most_bytes: at most, or None for all that is free.
    """

    device: str
    most_bytes: int | None = None

    def limit(self) -> None:
        """Have the allocator refuse what goes beyond `most_bytes`."""
        import torch

        if self.device != "cpu" and self.most_bytes is not None:
            total = torch.cuda.get_device_properties(self.device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, self.most_bytes / total), self.device)

    def available_bytes(self) -> int:
        """What a prediction may take now: free on the GPU, or kept by the allocator and unused."""
        import torch

        free, _ = torch.cuda.mem_get_info(self.device)
        used = torch.cuda.memory_allocated(self.device)
        available = free + torch.cuda.memory_reserved(self.device) - used
        return available if self.most_bytes is None else min(available, max(0, self.most_bytes - used))

    def reset_peak(self) -> None:
        """Count the peak of `facts` from now on."""
        import torch

        if self.device != "cpu":
            torch.cuda.reset_peak_memory_stats(self.device)

    def facts(self) -> dict[str, str | int]:
        """For done.json: the device, and on a GPU the most bytes that were allocated there."""
        import torch

        if self.device == "cpu":
            return {"device": "cpu"}
        peak = torch.cuda.max_memory_allocated(self.device)
        return {"device": torch.cuda.get_device_name(self.device), "peak_gpu_memory_bytes": peak}

    def plan(self, network: "AlphaFold", features: "Mapping[str, np.ndarray]") -> "MemoryPlan | None":
        """How a target's passes are cut into chunks; None on the CPU."""
        from model.memory_plan import PassSize, plan_memory

        if self.device == "cpu":
            return None
        return plan_memory(network.config, PassSize.from_features(network, features), self.available_bytes())

    def shortage(self, said: str) -> str:
        """Of the allocator's words: what was asked for, and what is free once this prediction is let go."""
        import torch

        asked = re.search(r"Tried to allocate ([\d.]+ \w+)", said)
        text = f"{asked[1]} more" if asked else said.partition(". ")[0]
        if self.device != "cpu":
            torch.cuda.empty_cache()
            free, total = (size / 2**30 for size in torch.cuda.mem_get_info(self.device))
            limit = "" if self.most_bytes is None else f", --max-memory {self.most_bytes / 2**30:.1f} GiB"
            text += f"; without this target {free:.1f} of the GPU's {total:.1f} GiB are free{limit}"
        return text


def predict_within(
    memory: NetworkMemory,
    name: str,
    network: "AlphaFold",
    features: "Mapping[str, np.ndarray]",
    settings: "RecyclingSettings",
    progress: Progress,
) -> "Prediction":
    """`model.recycling.predict` with chunks that fit; when memory runs out, once more with smaller ones.

    Raises:
        OutOfMemory: it ran out again.
    """
    import torch

    from model.errors import OutOfMemory
    from model.memory_plan import CPU_CHUNK_ELEMENTS
    from model.recycling import predict

    plan = memory.plan(network, features)
    if plan is not None:
        logger.debug("%s: %s", name, plan)
    chunk = CPU_CHUNK_ELEMENTS if plan is None else plan.chunk_elements
    for elements in (chunk, chunk // SMALLER):
        try:
            return predict(network, features, settings, progress, elements)
        except torch.OutOfMemoryError as error:
            # the error itself holds the tensors of the try through its traceback
            said = str(error)
        shortage = memory.shortage(said)
        if elements == chunk:
            logger.warning("%s: memory ran out (%s); trying once more with smaller chunks", name, shortage)
    residues = features["aatype"].shape[1]
    raise OutOfMemory(f"{residues} residues, {shortage}; tried twice, with smaller chunks the second time")
