"""Bounds of the difference to DeepMind's JAX code, in float32 on a CPU."""

from collections.abc import Sequence
from types import ModuleType

import numpy as np

RELATIVE = 3e-6
# Probabilities and geometry amplify earlier errors: two float32 computations of them differ by up to 3e-6,
# depending on the CPU.
RELATIVE_AMPLIFIED = 4e-6
COORDINATES = 3e-4  # Å
POSITIONS = "structure_module/final_atom_positions"


def check_tensor(
    parity: ModuleType, name: str, actual: np.ndarray, expected: np.ndarray, amplified: Sequence[str]
) -> None:
    """Compare one tensor.

    Args:
        parity: the module `benchmarks/parity.py`.
        name: name of the tensor.
        actual: our tensor.
        expected: DeepMind's tensor.
        amplified: parts of the names of tensors that amplify earlier errors.
    """
    assert actual.shape == expected.shape, name
    difference = parity.rms(actual.astype(np.float64) - expected)
    limit = RELATIVE_AMPLIFIED if any(part in name for part in amplified) else RELATIVE
    assert difference <= limit * parity.rms(expected), name
    if name.endswith(POSITIONS):
        assert np.abs(actual - expected).max() <= COORDINATES
