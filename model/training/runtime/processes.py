"""The processes that train together."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as distributed


@dataclass(frozen=True)
class TrainingProcesses:
    """The processes that train together, one for each GPU, as one of them sees them."""

    rank: int
    count: int
    device: torch.device

    @classmethod
    def from_environment(cls, device: str) -> "TrainingProcesses":
        """Join the processes that torchrun has started, if there are any."""
        count, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
        torch_device = torch.device("cpu")
        if device == "cuda":
            torch_device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        if count > 1:
            distributed.init_process_group("nccl" if device == "cuda" else "gloo")
        return cls(rank, count, torch_device)

    def add(self, buffer: torch.Tensor) -> None:
        """Sum a buffer over all processes, in place."""
        if self.count > 1:
            distributed.all_reduce(buffer)

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the sums of numbers over all processes, in float32 if there are several."""
        if self.count == 1:
            return dict(values)
        sums = torch.tensor([*values.values()], device=self.device)
        self.add(sums)
        return dict(zip(values, sums.tolist(), strict=True))

    def close(self) -> None:
        """Leave the other processes."""
        if self.count > 1:
            distributed.destroy_process_group()
