"""Between the names of a network's tensors and the keys of DeepMind's parameter files.

A key is a scope and a name, `alphafold/alphafold_iteration/evoformer/preprocess_1d//weights`. The blocks of
a stack share one key, whose array has a leading axis of blocks.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

ROOT = "alphafold/alphafold_iteration"
TRUNK = f"{ROOT}/evoformer/"
# modules that group layers here and are no scope there
UNNAMED = frozenset(
    {"heads", "input_embedding", "recycling_embedding", "extra_msa_embedding", "template_rows"}
)
# scopes that are longer there
LONGER = {"template_pair_stack": "template_pair_stack/__layer_stack_no_state"}


def key_of(tensor_name: str) -> tuple[str, int | None]:
    """The key of a tensor such as `evoformer.extra_msa_stack.3.msa_transition.transition1.bias`.

    Returns:
        The key, and the tensor's block in a stack or None.
    """
    *scopes, name = tensor_name.split(".")
    block = next((int(scope) for scope in scopes if scope.isdigit()), None)
    path = [LONGER.get(s, s) for s in scopes if s not in UNNAMED and not s.isdigit()]
    return f"{'/'.join([ROOT, *path])}//{name}", block


def shapes_of(network: nn.Module) -> dict[str, tuple[int, ...]]:
    """Every key that the network has parameters for, with the shape of its array."""
    shapes: dict[str, tuple[int, ...]] = {}
    for tensor_name, tensor in network.named_parameters():
        key, block = key_of(tensor_name)
        # blocks come in order, so the last one tells how many there are
        shapes[key] = tuple(tensor.shape) if block is None else (block + 1, *tensor.shape)
    return shapes


def assign(
    network: nn.Module, arrays: Mapping[str, np.ndarray], device: torch.device, dtype: torch.dtype
) -> None:
    """Replace all of a network's parameters by those of the arrays.

    Args:
        network: may be on the meta device.
        arrays: by key, of the shapes of `shapes_of`.
        device: to put the parameters on.
        dtype: to convert those of the trunk to, the others being float32; float32 on the CPU shares the
            arrays' memory.
    """
    stacks = {}
    for key, array in arrays.items():
        wanted = dtype if key.startswith(TRUNK) else torch.float32
        stacks[key] = torch.from_numpy(np.ascontiguousarray(array)).to(device=device, dtype=wanted)
    for module_name, module in network.named_modules():
        for name in [name for name, _ in module.named_parameters(recurse=False)]:
            key, block = key_of(f"{module_name}.{name}")
            value = stacks[key] if block is None else stacks[key][block]
            setattr(module, name, nn.Parameter(value, requires_grad=False))
