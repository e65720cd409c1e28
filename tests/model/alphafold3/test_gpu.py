"""Tests of the all-atom network on a GPU."""

from collections.abc import Iterator

import pytest
import torch

from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3, TrunkOutput
from model.alphafold3.sampling import SeededDraws, sample_positions
from model.checkpoints.openfold3 import translate
from tests.model.alphafold3.goldens import checkpoint
from tests.model.alphafold3.parity_networks import NETWORKS, features, network, shallow_names

pytestmark = pytest.mark.gpu


def on_gpu(name: str, dtype: torch.dtype, kernels: str) -> tuple[AlphaFold3, AlphaFold3Inputs]:
    config, tensors = translate(checkpoint(shallow_names(name)))
    return AlphaFold3.load(config, tensors, kernels, "cuda", dtype), features(name).to("cuda")


def difference(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first.cpu() - second).norm() / second.norm())


def trunk_on_cpu(name: str) -> TrunkOutput:
    return network(name).trunk(features(name), SeededDraws(0), cycles=2)


@pytest.mark.parametrize(
    ("dtype", "kernels", "limit"),
    [
        (torch.float32, "reference", 1e-5),
        (torch.bfloat16, "reference", 0.02),
        (torch.bfloat16, "fused", 0.02),
    ],
)
@pytest.mark.parametrize("name", NETWORKS)
def test_trunk_is_as_close_to_the_cpu_as_its_format_allows(
    name: str, dtype: torch.dtype, kernels: str, limit: float
) -> None:
    gpu, inputs = on_gpu(name, dtype, kernels)
    trunk, expected = gpu.trunk(inputs, SeededDraws(0), cycles=2), trunk_on_cpu(name)
    assert difference(trunk.pair, expected.pair) < limit
    assert difference(trunk.single, expected.single) < limit


def test_steps_of_a_graph_equal_normal_ones() -> None:
    gpu, inputs = on_gpu("openbind", torch.float32, "reference")
    trunk, draws = gpu.trunk(inputs, SeededDraws(0), cycles=1), SeededDraws(0)
    module = gpu.diffusion_module
    with torch.no_grad():
        conditions = module.conditions(inputs, trunk.features, trunk.single, trunk.pair, trunk.relative)
        expected = sample_positions(
            lambda noisy, sigma: module(inputs, conditions, noisy, sigma),
            inputs.atom_mask,
            draws,
            gpu.config.diffusion,
            samples=2,
            steps=6,
        )
    graphed = gpu.sample(inputs, trunk, draws, steps=6, samples=2)
    assert torch.equal(graphed, expected)


@pytest.fixture
def tf32() -> Iterator[None]:
    """Allow TF32, as predictions with a bfloat16 trunk do."""
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize("sigma", [0.05, 1.0, 16.0, 300.0, 2560.0])
def test_half_precision_is_as_close_to_single_precision_as_tf32(sigma: float, tf32: None) -> None:
    single, inputs = on_gpu("openbind", torch.float32, "reference")
    half, _ = on_gpu("openbind", torch.float32, "fused")
    half.diffusion_module.use_half_precision()
    torch.backends.cuda.matmul.allow_tf32 = False
    trunk = single.trunk(inputs, SeededDraws(0), cycles=1)
    noise = SeededDraws(0).initial(5, len(inputs.atom_mask)).cuda()

    def denoised(network: AlphaFold3, precise: bool) -> torch.Tensor:
        torch.backends.cuda.matmul.allow_tf32 = not precise
        module = network.diffusion_module
        with torch.inference_mode():
            conditions = module.conditions(inputs, trunk.features, trunk.single, trunk.pair, trunk.relative)
            return module(inputs, conditions, sigma * noise, torch.tensor(sigma, device="cuda"))

    exact = denoised(single, True)
    allowed = (denoised(single, False) - exact).square().mean()
    assert (denoised(half, False) - exact).square().mean() <= 1.5**2 * allowed


def test_graphs_of_the_pairformer_change_nothing() -> None:
    gpu, inputs = on_gpu("p2", torch.bfloat16, "fused")
    first, second = (gpu.trunk(inputs, SeededDraws(0), cycles=4) for _ in range(2))
    gpu.pairformer_stack.graphed.enabled = False
    normal = gpu.trunk(inputs, SeededDraws(0), cycles=4)
    for trunk in (first, second):
        assert trunk.pair.equal(normal.pair) and trunk.single.equal(normal.single)
