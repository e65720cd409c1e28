"""Small calls to every operation of a network's blocks, which compile the kernels before the first pass.

A pass would compile the kernels one after another; these calls can run in parallel threads.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import nn

from model.alphafold import AlphaFold
from model.config import StackConfig
from model.memory_plan import PassSize

# no kernel has tiles larger than this, or is used only for sequences longer than this
MAX_SIZE = 512
# Triton compiles a separate kernel for integer arguments that are divisible by this
DIVISOR = 16

WarmupCall = Callable[[], None]


def warmup_size(size: int) -> int:
    """Return a small number of rows or residues for which the same kernels are compiled as for `size`."""
    return min(size, MAX_SIZE + size % DIVISOR)


def warmup_calls(network: AlphaFold, size: PassSize) -> list[WarmupCall]:
    """Return a call to each operation in one block of each stack, in execution order.

    The calls may run in several threads at once; each writes only to its own memory.

    Args:
        network: the network, with the device and dtype that it will run with.
        size: the sizes of its passes.
    """
    trunk, config = network.evoformer, network.config
    like = trunk.single_activations.bias
    residues = warmup_size(size.residues)
    return [
        partial(_call_in_thread, call, like.device)
        for stack, block, rows in (
            (config.extra_msa, trunk.extra_msa_stack[0], size.extra_rows),
            (config.evoformer, trunk.evoformer_iteration[0], size.msa_rows),
        )
        for call in _block_calls(stack, block, warmup_size(rows), residues, like)
    ]


def _block_calls(
    stack: StackConfig, block: nn.Module, rows: int, residues: int, like: torch.Tensor
) -> Iterator[WarmupCall]:
    def msa() -> torch.Tensor:
        return like.new_zeros(rows, residues, stack.msa.channels)

    def pair() -> torch.Tensor:
        return like.new_zeros(residues, residues, stack.pair.channels)

    for name, arguments in (
        ("msa_row_attention_with_pair_bias", (msa, pair, None)),
        (block.column_attention_name, (msa, None)),
        ("msa_transition", (msa,)),
        ("outer_product_mean", (pair, msa, None)),
        ("triangle_multiplication_outgoing", (pair, None)),
        ("triangle_multiplication_incoming", (pair, None)),
        ("triangle_attention_starting_node", (pair, None)),
        ("triangle_attention_ending_node", (pair, None)),
        ("pair_transition", (pair,)),
    ):
        yield partial(_call_module, block.get_submodule(str(name)), arguments)


def _call_module(module: nn.Module, arguments: Sequence[Callable[[], torch.Tensor] | None]) -> None:
    module(*(make and make() for make in arguments))


def _call_in_thread(call: WarmupCall, device: torch.device) -> None:
    """Make a call after setting the current device and inference mode, which threads do not inherit."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with torch.inference_mode():
        call()
