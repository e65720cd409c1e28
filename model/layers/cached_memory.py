"""Release of GPU memory that torch's allocator caches, between the stages of a long protein's passes.

The allocator keeps freed blocks for later tensors, and gives parts of a large block to small ones. A small
tensor that outlives a stage may so occupy part of a block as large as the pair representation, and the rest
of that block is too small for what the next stage needs. Released blocks return to the driver whole.
"""

import torch

# Memory is scarce if it holds fewer pair representations than this. A pass needs 4 to 6 of them, and cached
# blocks can waste 2 or 3. The release waits for the GPU, and takes tens of milliseconds.
ENOUGH_PAIRS = 8


def memory_is_scarce(pair_bytes: int) -> bool:
    """Return whether cached blocks of the current GPU might prevent a pass.

    The pair representation, or a rank's part of it, has `pair_bytes`.
    """
    total = torch.cuda.get_device_properties().total_memory
    return ENOUGH_PAIRS * pair_bytes > total * torch.cuda.get_per_process_memory_fraction()


def release_cached_memory(pair: torch.Tensor) -> None:
    """Return cached blocks of the pair representation's GPU to the driver if memory is scarce."""
    if pair.is_cuda and memory_is_scarce(pair.nbytes):
        torch.cuda.empty_cache()
