"""Kernels are compiled at the first use of a size, and what says that they have been is kept beside them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from foldcli.pipeline import kernel_warmup as first_use
from model.alphafold import AlphaFold
from model.config import model_config
from model.first_use import DIVISOR, LEAST, operations, small
from model.memory_plan import PassSize
from model.parameters import random_parameters

SIZE = PassSize(residues=20, msa_rows=3, extra_rows=5)


@pytest.fixture(scope="module")
def network() -> AlphaFold:
    config = model_config("demo").with_blocks(1, 1)
    return AlphaFold.from_parameters(config, random_parameters(config))


def test_small_sizes_divide_as_large_ones() -> None:
    for size in (1, 7, 16, 255, 256, 257, 508, 512, 5120, 6143):
        assert small(size) % DIVISOR == size % DIVISOR and small(size) < LEAST + DIVISOR
        assert small(size) == size or size > LEAST


def test_operations_are_those_of_a_pass(network: AlphaFold) -> None:
    seen: list[str] = []
    stacks = ("evoformer.extra_msa_stack.0.", "evoformer.evoformer_iteration.0.")
    parts = [
        (name, part)
        for name, part in network.named_modules()
        if name.startswith(stacks) and name.count(".") == 3
    ]
    handles = [part.register_forward_hook(lambda *_, name=name: seen.append(name)) for name, part in parts]
    calls = operations(network, SIZE)
    for call in calls:
        call()
    for handle in handles:
        handle.remove()
    assert len(calls) == len(seen) == 18 and sorted(seen) == sorted(name for name, _ in parts)


def test_it_is_done_once(network: AlphaFold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=SimpleNamespace(utils=None)))
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    rounds: list[int] = []
    failing = False

    def made(network: AlphaFold, size: PassSize) -> list[Any]:
        rounds.append(size.residues)
        return [lambda: 1 // 0 if failing else None]

    monkeypatch.setattr("model.first_use.operations", made)
    first_use.compile_kernels(network, SIZE)
    first_use.compile_kernels(network, SIZE)
    # as many sixteenths, more or less
    first_use.compile_kernels(network, PassSize(residues=23, msa_rows=3, extra_rows=5))
    assert rounds == [20]
    failing = True
    for _ in range(2):
        first_use.compile_kernels(network, PassSize(residues=32, msa_rows=3, extra_rows=5))
    assert rounds == [20, 32, 32]
