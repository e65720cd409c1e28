"""Random parameters of OpenFold3, which depend on their names and shapes alone."""

import hashlib

import numpy as np


def parameter(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw a parameter of OpenFold3, which depends on its name and shape alone."""
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
    generator = np.random.Generator(np.random.Philox(key=key))
    if name.endswith("fourier_emb.b"):
        return generator.random(shape).astype(np.float32)
    values = generator.standard_normal(shape).astype(np.float32)
    module, leaf = name.split(".")[-2:]
    if name.endswith("fourier_emb.w"):
        return values
    if leaf == "bias":
        gate = module == "linear_ada_out" or (
            module == "linear_g" and "conditioned_transition" in name and "layer_norm" not in name
        )
        return np.float32(-2 if gate else 0) + np.float32(0.1) * values
    if len(shape) == 2:
        gain = 0.5 if module in ("linear_o", "linear_out") else 1.0
        return values * np.float32(gain / np.sqrt(shape[1]))
    return np.float32(1) + np.float32(0.1) * values
