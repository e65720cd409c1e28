"""Tests that a few small launches need the same compiled kernels as targets of all sizes."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused.compilation import KernelVariant, record_variants
from cuda.fused.gpu_model import GpuModel, assume_gpu
from foldcli.training.settings import read_run_settings
from model.alphafold2.modules.config import ModelConfig, model_config
from model.alphafold2.network import AlphaFold
from model.layers.kernels import select_kernels
from model.planning.kernel_launches import NetworkLaunches

H200, A100 = GpuModel("NVIDIA H200", (9, 0)), GpuModel("NVIDIA A100-SXM4-40GB", (8, 0))
# sizes at which other kernels may run, and their neighbours
BOUNDARIES = (1, 2, 16, 32, 64, 128, 384, 512)
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing"
)

Size = tuple[int, int, int, int]
"""Residues, MSA rows, extra MSA rows, templates."""


def enumerated(config: ModelConfig, dtype: torch.dtype, gpu: GpuModel) -> set[KernelVariant]:
    """Return the variants that are compiled ahead."""
    with assume_gpu(gpu):
        kernels = select_kernels("fused")
    found: set[KernelVariant] = set()
    with record_variants(gpu, found.add), torch.inference_mode():
        for launch in NetworkLaunches(config, dtype, kernels).calls():
            launch()
    return found


def launched(
    config: ModelConfig, dtype: torch.dtype, gpu: GpuModel, sizes: list[Size]
) -> Iterator[tuple[Size, set[KernelVariant]]]:
    """Yield the variants that passes of these sizes launch, with tensors that have no memory."""
    with assume_gpu(gpu):
        kernels = select_kernels("fused")
    with torch.device("meta"):
        network = AlphaFold(config.with_blocks(1, 1), kernels).eval()
        network.evoformer.to(dtype)
    for residues, rows, extra_rows, templates in sizes:
        found: set[KernelVariant] = set()
        with torch.device("meta"):
            features = {
                "aatype": torch.zeros(residues, dtype=torch.int64),
                "residue_index": torch.zeros(residues, dtype=torch.int64),
                "target_feat": torch.zeros(residues, 22 if config.multimer is None else 21),
                "msa_feat": torch.zeros(rows, residues, 49),
                "extra_msa": torch.zeros(extra_rows, residues, dtype=torch.int64),
                "extra_has_deletion": torch.zeros(extra_rows, residues),
                "extra_deletion_value": torch.zeros(extra_rows, residues),
                "template_aatype": torch.zeros(templates, residues, dtype=torch.int64),
                "template_all_atom_positions": torch.zeros(templates, residues, 37, 3),
                "template_all_atom_masks": torch.zeros(templates, residues, 37),
            }
            if extra_rows == 1:
                # what `features.alphafold2.sampling` makes if the MSA has all sequences
                features["extra_msa_mask"] = torch.zeros(extra_rows, residues)
            if config.multimer is not None:
                features |= dict.fromkeys(("asym_id", "entity_id", "sym_id"), features["aatype"])
                features["template_chains"] = features["template_aatype"]
        features["template_mask"] = torch.ones(templates)
        if config.multimer is not None:
            features["template_weights"] = torch.ones(templates)
        with record_variants(gpu, found.add), torch.inference_mode():
            network(features)
        yield (residues, rows, extra_rows, templates), found


def check(name: str, dtype: torch.dtype, gpu: GpuModel, sizes: list[Size]) -> None:
    config = model_config(name)
    known, used = enumerated(config, dtype, gpu), set()
    for size, found in launched(config, dtype, gpu, sizes):
        missing = [(variant.name, variant.specialization) for variant in found - known]
        assert not missing, f"{size}: {missing}"
        used |= found
    # none is compiled in vain
    assert {variant.name for variant in known} == {variant.name for variant in used}


def test_targets_of_some_sizes_launch_enumerated_kernels_only() -> None:
    sizes = [(30, 1, 1, 0), (47, 508, 33, 4), (64, 512, 5120, 0), (384, 508, 513, 1), (700, 3, 5120, 0)]
    check("model_1_ptm", torch.bfloat16, H200, sizes)


def test_compact_network_launches_enumerated_kernels_only(root: Path) -> None:
    config = read_run_settings(root / "examples/train/compact.yaml").network
    assert isinstance(config, ModelConfig)
    known = enumerated(config, torch.bfloat16, H200)
    sizes = [(30, 1, 1, 0), (47, 62, 33, 2), (384, 62, 96, 1), (700, 3, 1, 2)]
    for size, found in launched(config, torch.bfloat16, H200, sizes):
        assert found and found <= known, size


@pytest.mark.slow
def test_complexes_of_some_sizes_launch_enumerated_kernels_only() -> None:
    sizes = [(30, 1, 1, 1), (64, 508, 2048, 4), (700, 33, 1152, 2)]
    check("model_1_multimer_v3", torch.bfloat16, H200, sizes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "gpu, dtype, count", [(H200, torch.bfloat16, 24), (H200, torch.float32, 8), (A100, torch.bfloat16, 8)]
)
def test_targets_of_all_sizes_launch_enumerated_kernels_only(
    gpu: GpuModel, dtype: torch.dtype, count: int
) -> None:
    generator = random.Random(0)
    near = {size + offset for size in BOUNDARIES for offset in (-1, 0, 1)} - {0}
    lengths = near | set(range(30, 701, 31)) | {2048}
    depths, extra_depths = [size for size in near if size <= 512], [*near, 1000, 5119, 5120]
    sizes = [
        (residues, generator.choice(depths), generator.choice(extra_depths), generator.choice([0, 1, 4]))
        for residues in sorted(lengths)
    ]
    check("model_1_ptm", dtype, gpu, generator.sample(sizes, count))
