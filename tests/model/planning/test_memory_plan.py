"""Tests of memory estimates and of the chunk sizes derived from them."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.random_parameters import random_parameters
from cuda.fused.chunking import chunk_budget, row_slices
from model.alphafold2.modules.config import model_config
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import RecyclingSettings, predict
from model.checkpoints.alphafold2 import build_network
from model.planning.memory_plan import (
    DEFAULT_CHUNK_ELEMENTS,
    GIB,
    MIN_CHUNK_ELEMENTS,
    PassSize,
    estimate_peak_bytes,
    plan_memory,
    usable_bytes,
)
from model.planning.pass_time import pass_operations

CONFIG = model_config("model_3_ptm")
UNLIMITED = 2**50


def test_operations_of_a_pass_are_those_that_torch_counts(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features(iterations=1)
    with FlopCounterMode(display=False) as counter:
        predict(tiny, features, RecyclingSettings(0))
    counted = sum(counter.get_flop_counts()["Trunk"].values())
    estimated = pass_operations(tiny.config, PassSize.from_features(tiny, features))
    assert estimated == pytest.approx(counted, rel=0.02)


def size(residues: int, **others: Any) -> PassSize:
    return PassSize(residues, 508, 5120, **others)


def test_triangle_multiplication_determines_the_peak_of_long_proteins() -> None:
    length = 6144
    pair = length**2 * 128 * 2
    # the pair representation, two factors and their product
    plan = plan_memory(CONFIG, size(length), UNLIMITED)
    assert 4 * pair <= plan.peak_bytes <= 6 * pair
    assert plan.peak_bytes < 135 * GIB
    assert plan_memory(CONFIG, size(4096), UNLIMITED).peak_bytes < 75 * GIB
    # chunks are as large as the factors of triangle multiplication
    assert plan.chunk_elements == 2 * length**2 * 128
    assert plan_memory(CONFIG, size(100), UNLIMITED).chunk_elements == DEFAULT_CHUNK_ELEMENTS


def test_chunks_shrink_to_fit_available_memory() -> None:
    full = plan_memory(CONFIG, size(4096), UNLIMITED)
    some = plan_memory(CONFIG, size(4096), int(full.peak_bytes * 0.97))
    assert MIN_CHUNK_ELEMENTS <= some.chunk_elements < full.chunk_elements
    assert some.peak_bytes <= some.available_bytes * 0.95
    none = plan_memory(CONFIG, size(4096), 1)
    assert none.chunk_elements == MIN_CHUNK_ELEMENTS and none.peak_bytes > none.available_bytes
    assert none.peak_bytes <= some.peak_bytes


def test_chunks_never_exceed_the_whole_operation() -> None:
    assert estimate_peak_bytes(CONFIG, size(64), DEFAULT_CHUNK_ELEMENTS) == estimate_peak_bytes(
        CONFIG, size(64), 2 * DEFAULT_CHUNK_ELEMENTS
    )


@pytest.mark.parametrize(
    "more",
    [{"residues": 4097}, {"msa_rows": 600}, {"extra_rows": 6000}, {"element_bytes": 4}, {"in_place": False}],
)
def test_peak_grows_with_each_size(more: dict[str, int]) -> None:
    chunk = 2**20
    assert estimate_peak_bytes(CONFIG, replace(size(4096), **more), chunk) > estimate_peak_bytes(
        CONFIG, size(4096), chunk
    )


def test_peak_grows_with_templates() -> None:
    with_templates = model_config("model_1_ptm")
    one, eight = (
        estimate_peak_bytes(with_templates, size(4096, templates=n), MIN_CHUNK_ELEMENTS) for n in (1, 8)
    )
    assert eight > one
    # a network without templates ignores them
    without = estimate_peak_bytes(CONFIG, size(4096), MIN_CHUNK_ELEMENTS)
    assert estimate_peak_bytes(CONFIG, size(4096, templates=4), MIN_CHUNK_ELEMENTS) == without <= one


def test_pass_size_is_read_from_the_features(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features(residues=9, rows=4, extra=5, templates=3)
    features["template_mask"][:, 2] = 0
    assert PassSize.from_features(tiny, features) == PassSize(9, 7, 5, 2, element_bytes=4, in_place=False)
    config = replace(tiny.config, template=None)
    half = build_network(config, random_parameters(config), dtype=torch.bfloat16)
    assert PassSize.from_features(half, features) == PassSize(9, 4, 5, 0, element_bytes=2, in_place=False)


def test_plan_is_described_in_one_line() -> None:
    text = str(plan_memory(CONFIG, size(1024), 80 * GIB))
    assert text.startswith("chunks of 512 Mi elements, ") and text.endswith(", 80.0 GiB free")


def test_the_innermost_chunk_budget_applies() -> None:
    x = torch.empty(100, device="meta")

    def rows() -> int:
        first = next(row_slices(x, 10))
        return first.stop - first.start

    assert rows() == 100
    with chunk_budget(300):
        assert rows() == 30
        with chunk_budget(None):
            assert rows() == 30
        with chunk_budget(5):
            assert rows() == 1
    assert rows() == 100


def test_graphs_of_several_ranks_have_memory_of_their_own() -> None:
    short, long = (plan_memory(CONFIG, size(n, ranks=2), UNLIMITED).peak_bytes / GIB for n in (1024, 1449))
    # on two H200s, tensors of 1,024 residues took 2.9 GiB with graphs, of which 0.2 were parameters, and
    # 2.05 GiB without
    assert 2 * (2.9 - 0.2) > short > 2.9
    assert short > long > 2.05 * 1449 / 1024
    # the steps outside of graphs cannot use the memory of a block in them
    assert short > 2 * estimate_peak_bytes(CONFIG, size(1024, ranks=2, graphs=False), 2**29) / GIB
    # without enough memory for them there are none, so that two devices do not need more than one
    scarce = plan_memory(CONFIG, size(1024, ranks=2), int(short * GIB))
    assert not scarce.graphs and scarce.peak_bytes < plan_memory(CONFIG, size(1024), UNLIMITED).peak_bytes
    assert plan_memory(CONFIG, size(1024, ranks=2), int(1.2 * short * GIB)).graphs


def test_memory_is_divided_among_ranks() -> None:
    whole, *divided = (
        plan_memory(CONFIG, size(6144, ranks=ranks), UNLIMITED).peak_bytes for ranks in (1, 2, 4, 8)
    )
    assert 0.5 * whole < divided[0] < 0.75 * whole
    assert 0.25 * whole < divided[1] < 0.45 * whole
    assert divided[2] < 0.3 * whole
    # with several ranks, more memory is reserved for fragmentation
    assert usable_bytes(size(9, ranks=2), 100 * GIB) == 88 * GIB < usable_bytes(size(9), 100 * GIB)
    # a rank without rows needs no more than one with a row
    one, three = (plan_memory(CONFIG, PassSize(1, 1, 1, ranks=ranks), UNLIMITED) for ranks in (1, 3))
    assert three.peak_bytes <= 2 * one.peak_bytes
