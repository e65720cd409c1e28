"""The place of a process among the ranks of a run. Imports nothing heavy, because commands read it early."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class RankPlace:
    """The place of a process among the ranks of a run.

    Args:
        rank: index of the process.
        size: number of ranks.
        local_rank: index among the ranks of its host.
        local_size: number of ranks of its host.
        address: host of rank 0.
        port: port of the store there; 0 lets rank 0 use any free port.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int

    @classmethod
    def from_environment(cls) -> "RankPlace | None":
        """Return the place that torchrun has given this process, or None if torchrun has not started it."""
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
