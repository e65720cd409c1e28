"""Tests of the network against DeepMind's JAX code on the same random parameters and features.

tests/model/data contains a sample of each tensor; if ../shared/parity exists, whole tensors are compared too.
"""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.model.deepmind_bounds import POSITIONS, check_tensor

SETS = ("model_1_ptm_2_blocks", "model_3_ptm_2_blocks", "model_1_ptm_48_blocks")
AMPLIFIED = ("confidence/aligned_confidence_probs", "/taps/sm/")

Results = dict[str, list[dict[str, np.ndarray]]]


@pytest.fixture(scope="module")
def ours(parity: ModuleType, parity_data: ModuleType) -> Results:
    """Return the network's results for all sets and iterations."""
    results = {}
    for name in SETS:
        with np.load(parity_data.DATA / f"{name.split('_ptm_')[0]}_features.npz") as features:
            results[name] = parity.run_iterations(parity.parity_network(name), dict(features))
    return results


@pytest.mark.parametrize("name", SETS)
def test_sampled_tensors_match_deepmind(
    name: str, ours: Results, parity: ModuleType, parity_data: ModuleType
) -> None:
    with np.load(parity_data.DATA / f"{name}.npz") as archive:
        kept = {key: archive[key] for key in archive.files}
    assert any(key.endswith(POSITIONS) for key in kept)
    for key, theirs in kept.items():
        iteration, _, tensor = key.partition("/")
        mine = parity_data.sample_rows(tensor, ours[name][int(iteration.removeprefix("iter"))][tensor])
        check_tensor(parity, key, mine, theirs, AMPLIFIED)


@pytest.mark.parametrize("name", SETS)
def test_whole_tensors_match_deepmind(name: str, ours: Results, parity: ModuleType, shared_dir: Path) -> None:
    files = sorted((shared_dir / "parity" / name).glob("iter*.npz"))
    assert files
    for file in files:
        with np.load(file) as archive:
            for tensor in archive.files:
                mine = ours[name][int(file.stem.removeprefix("iter"))][tensor]
                check_tensor(parity, f"{file.stem}/{tensor}", mine, archive[tensor], AMPLIFIED)
