"""Tests of the small calls that compile a network's kernels."""

import pytest

from model.alphafold import AlphaFold
from model.config import model_config
from model.kernel_warmup import DIVISOR, MAX_SIZE, warmup_calls, warmup_size
from model.memory_plan import PassSize
from model.parameters import random_parameters


@pytest.fixture(scope="module")
def network() -> AlphaFold:
    config = model_config("demo").with_blocks(1, 1)
    return AlphaFold.from_parameters(config, random_parameters(config))


def test_warmup_sizes_are_small_with_unchanged_divisibility() -> None:
    for size in (1, 7, 16, 255, 256, 257, 508, 512, 5120, 6143):
        assert warmup_size(size) % DIVISOR == size % DIVISOR and warmup_size(size) < MAX_SIZE + DIVISOR
        assert warmup_size(size) == size or size > MAX_SIZE


def test_warmup_calls_cover_every_operation_of_a_block(network: AlphaFold) -> None:
    called: list[str] = []
    stacks = ("evoformer.extra_msa_stack.0.", "evoformer.evoformer_iteration.0.")
    modules = [
        (name, module)
        for name, module in network.named_modules()
        if name.startswith(stacks) and name.count(".") == 3
    ]
    handles = [
        module.register_forward_hook(lambda *_, name=name: called.append(name)) for name, module in modules
    ]
    calls = warmup_calls(network, PassSize(residues=20, msa_rows=3, extra_rows=5))
    for call in calls:
        call()
    for handle in handles:
        handle.remove()
    assert len(calls) == len(called) == 18 and sorted(called) == sorted(name for name, _ in modules)
