"""Tests of the network against DeepMind's JAX code on the same random parameters and features.

tests/model/data contains a sample of each tensor; if ../shared/parity exists, whole tensors are compared too.
"""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.model.deepmind_bounds import POSITIONS, check_tensor

SETS = (
    "model_1_ptm_2_blocks",
    "model_3_ptm_2_blocks",
    pytest.param("model_1_ptm_48_blocks", marks=pytest.mark.slow),
)
AMPLIFIED = ("confidence/aligned_confidence_probs", "/taps/sm/")

Results = list[dict[str, np.ndarray]]


@pytest.fixture(scope="module", params=SETS)
def name(request: pytest.FixtureRequest) -> str:
    """Return the name of each set."""
    return request.param


@pytest.fixture(scope="module")
def ours(name: str, parity: ModuleType, parity_data: ModuleType) -> Results:
    """Return the network's results of all iterations for one set."""
    with np.load(parity_data.DATA / f"{name.split('_ptm_')[0]}_features.npz") as features:
        return parity.run_iterations(parity.parity_network(name), dict(features))


def test_sampled_tensors_match_deepmind(
    name: str, ours: Results, parity: ModuleType, parity_data: ModuleType
) -> None:
    with np.load(parity_data.DATA / f"{name}.npz") as archive:
        kept = {key: archive[key] for key in archive.files}
    assert any(key.endswith(POSITIONS) for key in kept)
    for key, theirs in kept.items():
        iteration, _, tensor = key.partition("/")
        mine = parity_data.sample_rows(tensor, ours[int(iteration.removeprefix("iter"))][tensor])
        check_tensor(parity, key, mine, theirs, AMPLIFIED)


def test_whole_tensors_match_deepmind(name: str, ours: Results, parity: ModuleType, shared_dir: Path) -> None:
    files = sorted((shared_dir / "parity" / name).glob("iter*.npz"))
    assert files
    for file in files:
        with np.load(file) as archive:
            for tensor in archive.files:
                mine = ours[int(file.stem.removeprefix("iter"))][tensor]
                check_tensor(parity, f"{file.stem}/{tensor}", mine, archive[tensor], AMPLIFIED)
