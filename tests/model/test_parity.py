"""The network against DeepMind's JAX code on the same random parameters and features.

tests/model/data holds part of each tensor; where ../shared/parity lies beside the checkout, all is compared.
"""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SETS = ("model_1_ptm_2_blocks", "model_3_ptm_2_blocks", "model_1_ptm_48_blocks")
RELATIVE = 3e-6
# Two float32 computations of these differ by 2.5e-6 to 3.0e-6, depending on the CPU's instructions:
# probabilities have the logits' absolute error, and geometry that of all layers before it.
LOOSER = 4e-6
AMPLIFYING = ("confidence/aligned_confidence_probs", "/taps/sm/")
COORDINATES = 3e-4  # Å
POSITIONS = "structure_module/final_atom_positions"

Results = dict[str, list[dict[str, np.ndarray]]]


@pytest.fixture(scope="module")
def ours(parity: ModuleType, parity_data: ModuleType) -> Results:
    """What the network gives for every set and iteration."""
    results = {}
    for name in SETS:
        with np.load(parity_data.DATA / f"{name.split('_ptm_')[0]}_features.npz") as features:
            results[name] = parity.iterations(parity.network_of(name), dict(features))
    return results


@pytest.mark.parametrize("name", SETS)
def test_every_kept_tensor_agrees(
    name: str, ours: Results, parity: ModuleType, parity_data: ModuleType
) -> None:
    with np.load(parity_data.DATA / f"{name}.npz") as archive:
        kept = {key: archive[key] for key in archive.files}
    assert any(key.endswith(POSITIONS) for key in kept)
    for key, theirs in kept.items():
        iteration, _, tensor = key.partition("/")
        mine = parity_data.sampled(tensor, ours[name][int(iteration.removeprefix("iter"))][tensor])
        _check(parity, key, mine, theirs)


@pytest.mark.parametrize("name", SETS)
def test_every_tensor_agrees_in_full(name: str, ours: Results, parity: ModuleType, shared_dir: Path) -> None:
    files = sorted((shared_dir / "parity" / name).glob("iter*.npz"))
    assert files
    for file in files:
        with np.load(file) as archive:
            for tensor in archive.files:
                mine = ours[name][int(file.stem.removeprefix("iter"))][tensor]
                _check(parity, f"{file.stem}/{tensor}", mine, archive[tensor])


def _check(parity: ModuleType, name: str, mine: np.ndarray, theirs: np.ndarray) -> None:
    assert mine.shape == theirs.shape, name
    difference = parity.rms(mine.astype(np.float64) - theirs)
    bar = LOOSER if any(part in name for part in AMPLIFYING) else RELATIVE
    assert difference <= bar * parity.rms(theirs), name
    if name.endswith(POSITIONS):
        assert difference <= COORDINATES
        assert np.abs(mine - theirs).max() <= COORDINATES
