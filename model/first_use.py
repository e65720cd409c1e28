"""The operations of a network's blocks, each on a small input: a kernel is compiled when it is first called.

A pass would compile them one after another; here each can be called in a thread of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import nn

from model.alphafold import AlphaFold
from model.config import StackConfig
from model.memory_plan import PassSize

# no tile of a kernel has more rows, and no kernel is for longer sequences alone
LEAST = 512
# Triton compiles anew for integers that are not divisible by it
DIVISOR = 16

Operation = Callable[[], None]


def small(size: int) -> int:
    """A number of rows or residues for which the kernels are those of a larger one."""
    return min(size, LEAST + size % DIVISOR)


def operations(network: AlphaFold, size: PassSize) -> list[Operation]:
    """Those of one block of each stack, in the order in which a pass needs them.

    They may be called in several threads at once, and write to nothing but memory of their own.

    Args:
        network: ready to run.
        size: of its passes.
    """
    trunk, config = network.evoformer, network.config
    like = trunk.single_activations.bias
    residues = small(size.residues)
    return [
        partial(_in_thread, call, like.device)
        for stack, block, rows in (
            (config.extra_msa, trunk.extra_msa_stack[0], size.extra_rows),
            (config.evoformer, trunk.evoformer_iteration[0], size.msa_rows),
        )
        for call in _of_block(stack, block, small(rows), residues, like)
    ]


def _of_block(
    stack: StackConfig, block: nn.Module, rows: int, residues: int, like: torch.Tensor
) -> Iterator[Operation]:
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
        yield partial(_call, block.get_submodule(str(name)), arguments)


def _call(part: nn.Module, arguments: Sequence[Callable[[], torch.Tensor] | None]) -> None:
    part(*(make and make() for make in arguments))


def _in_thread(call: Operation, device: torch.device) -> None:
    """The current device and inference mode are the thread's own."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with torch.inference_mode():
        call()
