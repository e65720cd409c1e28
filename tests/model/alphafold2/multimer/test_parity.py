"""Tests of the multimer network against DeepMind's JAX code on the same parameters, features and draws.

tests/model/data contains a sample of each tensor; if ../shared/parity exists, whole tensors are compared too.
"""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from model.alphafold2.multimer.sampling import order_rows
from tests.model.deepmind_bounds import COORDINATES, POSITIONS, RELATIVE_AMPLIFIED, check_tensor

TWO_BLOCKS = ("heterodimer", "heterodimer_templates", "one_and_two_copies_templates")
AMPLIFIED = ("confidence/", "taps/sm/")

Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def network(parity: ModuleType) -> object:
    """Return the network with two Evoformer blocks and one extra MSA block."""
    return parity.parity_network("model_1_multimer_v3_2_blocks")


def recorded(parity: ModuleType, parity_data: ModuleType, name: str) -> tuple[Arrays, list[Arrays]]:
    """Return the features of a set, and the recorded tensors of its iterations."""
    features = parity.read_arrays(
        parity_data.DATA / f"multimer_{name.removesuffix('_48_blocks')}_features.npz"
    )
    iterations: dict[str, Arrays] = {}
    for key, tensor in parity.read_arrays(parity_data.DATA / f"multimer_{name}.npz").items():
        iteration, _, tensor_name = key.partition("/")
        iterations.setdefault(iteration, {})[tensor_name] = tensor
    return features, list(iterations.values())


def check_sampled(parity: ModuleType, parity_data: ModuleType, network: object, name: str) -> None:
    """Compare the sampled tensors of a set."""
    features, iterations = recorded(parity, parity_data, name)
    draws = [parity.RecordedDraws(arrays) for arrays in iterations]
    for index, (results, expected) in enumerate(
        zip(parity.run_iterations(network, features, draws), iterations, strict=True)
    ):
        compared = {key for key in expected if not key.startswith(parity.INTERNAL) or key in results}
        assert {POSITIONS, "predicted_aligned_error/logits", "representations/single"} <= compared
        for tensor in compared:
            sample = parity_data.sample_rows(tensor, results[tensor], parity_data.MULTIMER_SAMPLE)
            check_tensor(parity, f"iter{index}/{tensor}", sample, expected[tensor], AMPLIFIED)


@pytest.mark.parametrize("name", TWO_BLOCKS)
def test_sampled_tensors_match_deepmind(
    name: str, network: object, parity: ModuleType, parity_data: ModuleType
) -> None:
    check_sampled(parity, parity_data, network, name)


@pytest.mark.slow
def test_sampled_tensors_of_48_blocks_match_deepmind(parity: ModuleType, parity_data: ModuleType) -> None:
    network = parity.parity_network("model_1_multimer_v3_48_blocks")
    check_sampled(parity, parity_data, network, "heterodimer_48_blocks")


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO_BLOCKS)
def test_whole_tensors_match_deepmind(
    name: str, parity: ModuleType, shared_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    relative, position = parity.compare(shared_dir / "parity" / "multimer" / name)
    assert relative <= RELATIVE_AMPLIFIED and position <= COORDINATES, capsys.readouterr().out


@pytest.mark.parametrize("name", TWO_BLOCKS)
def test_order_of_rows_matches_deepmind(name: str, parity: ModuleType, parity_data: ModuleType) -> None:
    features, iterations = recorded(parity, parity_data, name)
    for arrays in iterations:
        uniform = arrays["draws/uniform_rows"]
        order = order_rows(features["msa_mask"], features["cluster_bias_mask"], uniform)
        assert np.array_equal(order, arrays["draws/row_order"])
