"""How the engine uses GPUs."""

from dataclasses import dataclass
from pathlib import Path

TURN_SECONDS = 1e-4
"""For which a thread has the interpreter to itself."""


@dataclass(frozen=True)
class GpuSettings:
    """How the engine uses a GPU; hits do not depend on it.

    Args:
        kernels: folder that keeps compiled kernels between runs.
        share: of a GPU's free memory that the database may take.
        most_bytes: that it may take on each GPU.
        most_chunk_bytes: of residues scored at a time; what msa/gpu/database_stream.py finds enough if None.
    """

    kernels: Path
    share: float = 0.9
    most_bytes: int = 2**62
    most_chunk_bytes: int | None = None

    def budget(self, free_bytes: int) -> int:
        """Bytes of GPU memory that a database may take where so many are free."""
        return min(int(self.share * free_bytes), self.most_bytes)
