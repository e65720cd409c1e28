"""The rank of a process, and where it meets the others.

Imports nothing heavy, because commands read it before they import torch.
"""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class RankAssignment:
    """The rank that a process has in a run of several processes, and the address where all ranks meet.

    Args:
        rank: index of the process.
        size: number of ranks.
        local_rank: index among the ranks on the same host.
        local_size: number of ranks on the same host.
        address: host of rank 0, which opens a store of keys and values for all ranks.
        port: port of this store; 0 lets rank 0 use any free port.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int

    @classmethod
    def from_environment(cls) -> "RankAssignment | None":
        """Return the rank that torchrun has assigned to this process; None if torchrun has not started it."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size < 2 or "MASTER_PORT" not in os.environ:
            return None
        return cls(
            int(os.environ["RANK"]),
            size,
            int(os.environ.get("LOCAL_RANK", "0")),
            int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
        )
