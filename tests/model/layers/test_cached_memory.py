"""Tests of the release of cached GPU memory."""

import pytest
import torch

from model.layers import cached_memory
from model.layers.cached_memory import ENOUGH_PAIRS, release_cached_memory


def test_nothing_is_released_for_tensors_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[bool] = []
    monkeypatch.setattr(cached_memory, "memory_is_scarce", lambda pair_bytes: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: released.append(True))
    release_cached_memory(torch.zeros(4, 4, 2))
    assert released == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_cached_blocks_are_released_where_memory_is_scarce() -> None:
    pair = torch.zeros(512, 512, 128, device="cuda")  # 128 MiB
    total = torch.cuda.get_device_properties().total_memory
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    try:
        for pairs, released in ((2 * ENOUGH_PAIRS, False), (ENOUGH_PAIRS // 2, True)):
            cached = torch.empty_like(pair)
            del cached
            torch.cuda.set_per_process_memory_fraction(pairs * pair.nbytes / total)
            release_cached_memory(pair)
            assert (torch.cuda.memory_reserved() == before) == released
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
