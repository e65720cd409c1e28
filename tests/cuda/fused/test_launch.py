"""Launch tables, checks of tensors, and matrices for the tensor memory accelerator."""

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused.gpu_model import GpuModel, assume_gpu
from cuda.fused.launch import (
    check_tensors,
    choose_launch,
    first_fitting,
    launch_table,
    program_count,
    tma_aligned,
    tma_readable,
)


def test_first_row_that_fits_is_chosen() -> None:
    table = [
        {"bytes": 2, "channels": 64, "length": 10, "options": {"ROWS": 1}},
        {"bytes": 2, "channels": 64, "options": {"ROWS": 2}},
        {"bytes": 4, "channels": 128, "options": {"ROWS": 3}},
    ]
    half, single = torch.empty(0, dtype=torch.bfloat16), torch.empty(0)
    assert first_fitting(table, half, 64, length=10) == {"ROWS": 1}
    assert first_fitting(table, half, 64, length=11) == {"ROWS": 2}
    assert first_fitting(table, single, 65) == {"ROWS": 3}
    assert first_fitting(table, half, 65) is None


def test_gpu_without_a_table_gets_the_default_one() -> None:
    assert launch_table("attention", "Unknown GPU") == launch_table("attention")
    assert launch_table("attention", "NVIDIA H200") != launch_table("attention")


def test_all_hopper_gpus_share_a_table() -> None:
    x, name = torch.empty(0, dtype=torch.bfloat16), "NVIDIA H100 80GB HBM3"
    with assume_gpu(GpuModel(name, (9, 0))):
        options = choose_launch("attention", x, 32, biased=1)
    assert options == first_fitting(launch_table("attention", "NVIDIA H200"), x, 32, biased=1)
    with assume_gpu(GpuModel(name, (8, 0))):
        assert choose_launch("attention", x, 32, biased=1) != options


def test_unsupported_tensors_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"does not support 65 channels of torch\.float32"):
        choose_launch("attention", torch.empty(0), 65)
    with pytest.raises(ValueError, match="fused test does not support meta tensors"):
        check_tensors("test", torch.empty(0, device="meta"))


def test_matrix_is_copied_only_if_its_rows_are_not_aligned() -> None:
    matrix = torch.randn(5, 8)
    assert tma_readable(matrix) is matrix
    shifted = torch.randn(41)[1:].view(5, 8)
    assert not tma_aligned(shifted)
    for unreadable in (shifted, torch.randn(8, 5).T):
        copy = tma_readable(unreadable)
        assert tma_aligned(copy) and copy.is_contiguous() and torch.equal(copy, unreadable)
    with pytest.raises(ValueError, match=r"6 columns of torch\.float32 are not a multiple of 16 bytes"):
        tma_readable(torch.randn(4, 6))


def test_there_are_no_more_programs_than_blocks() -> None:
    x = torch.empty(0)
    assert program_count(x, 3, 2) == 3
    assert program_count(x, 100, 2) == 4
