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


def deepmind_parameter(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw a parameter of DeepMind's network, given its scope and name, and its shape."""
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
    values = np.random.Generator(np.random.Philox(key=key)).standard_normal(shape).astype(np.float32)
    leaf = name.rpartition("/")[2]
    if leaf == "scale":
        return np.float32(1) + np.float32(0.1) * values
    if leaf in ("bias", "offset", "output_b"):
        return np.float32(0.1) * values
    return values / np.float32(np.sqrt(max(shape, default=1)))


def random_templates(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return two templates with random atoms: one of all proteins, and one of none.

    Args:
        inputs: features without a leading axis; see `AlphaFold3Inputs`.

    Returns:
        classes [2, N], our residue types; positions [2, N, 24, 3], Å, and mask [2, N, 24] of atoms in the
        order of the components. Proteins lack some residues, which are gaps; other chains are alanines
        without atoms, and so is the second template.
    """
    generator = np.random.default_rng(7)
    tokens = len(inputs["token_index"])
    protein = inputs["is_protein"].astype(bool) & ~inputs["is_atomized"].astype(bool)
    covered = protein & (np.arange(tokens) % 4 != 1)
    classes = np.zeros((2, tokens), int)
    classes[0, inputs["is_protein"].astype(bool)] = 31
    classes[0, covered] = generator.integers(0, 20, covered.sum())
    mask = np.zeros((2, tokens, 24), bool)
    mask[0, covered, :5] = True
    positions = 8 * generator.standard_normal((2, tokens, 24, 3)).astype(np.float32)
    # exact in float32: DeepMind's code gives directions of a residue from itself, which is 0 up to rounding
    positions[:, :, 1] = np.round(positions[:, :, 1] * 16) / 16
    axes = np.eye(3, dtype=np.float32)[np.argsort(generator.random((2, tokens, 3)))]
    positions[:, :, 0], positions[:, :, 2] = (positions[:, :, 1] + axes[:, :, i] for i in (0, 1))
    return {"classes": classes, "positions": positions * mask[..., None], "mask": mask}
