"""Batches with labels on which the losses of OpenFold3 were recorded; made by NumPy alone, from fixed seeds.

The features are those of `tests/model/alphafold3/data/openbind.npz`: protein with a modified residue, DNA,
RNA, two ligands and an ion; one ligand gets a bond to the protein.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

FEATURES = Path(__file__).parents[2] / "alphafold3" / "data" / "openbind.npz"
COPIES = 3


@dataclass(frozen=True)
class Case:
    """One batch: features by name without batch axis, labels, and outputs of a network."""

    features: dict[str, np.ndarray]
    positions: np.ndarray
    resolved: np.ndarray
    outputs: dict[str, np.ndarray]


def read_features() -> dict[str, np.ndarray]:
    """Read the features without batch axis, with a bond of a ligand's first atom with the first residue."""
    with np.load(FEATURES) as arrays:
        features = {
            key.removeprefix("features/"): arrays[key][0] for key in arrays if key.startswith("features/")
        }
    bonds = features["token_bonds"].copy()
    ligand = int(np.flatnonzero(features["is_ligand"])[0])
    protein = int(np.flatnonzero((features["is_protein"] == 1) & (features["is_atomized"] == 0))[1])
    bonds[ligand, protein] = bonds[protein, ligand] = 1
    return features | {"token_bonds": bonds}


def resize(features: dict[str, np.ndarray], tokens: int, atoms: int) -> dict[str, np.ndarray]:
    """Cut the features after some tokens and atoms, or pad them with zeros."""
    sizes = {len(features["token_mask"]): tokens, len(features["atom_mask"]): atoms}
    return {
        name: resize_array(x, [sizes.get(size, size) for size in x.shape]) for name, x in features.items()
    }


def resize_array(x: np.ndarray, shape: list[int]) -> np.ndarray:
    """Cut each axis of an array, or pad it with zeros."""
    kept = x[tuple(map(slice, shape))]
    return np.pad(kept, [(0, new - old) for new, old in zip(shape, kept.shape, strict=True)])


def cases() -> dict[str, Case]:
    """Return all cases by name."""
    features = read_features()
    atoms = len(features["atom_mask"])
    cut = 37
    start = int(features["start_atom_index"][cut])
    first = features["asym_id"][features["atom_to_token_index"].astype(int)] != features["asym_id"][0]
    generator = np.random.default_rng(5)
    return {
        "plain": make_case(features, 1),
        "unresolved": make_case(features, 2, resolved=generator.random(atoms) < 0.6),
        "chain_missing": make_case(features, 3, resolved=first),
        "prime": make_case(resize(features, cut, start), 5),
        "long_tails": make_case(features, 6, tail=30.0),
    }


def make_case(
    features: dict[str, np.ndarray], seed: int, resolved: np.ndarray | None = None, tail: float = 1.0
) -> Case:
    """Draw labels and outputs.

    Args:
        features: the features.
        seed: seed of all draws.
        resolved: bool [A], atoms with known positions, by default all.
        tail: factor of a tenth of the errors and logits.
    """
    generator = np.random.default_rng(seed)
    atoms, tokens = len(features["atom_mask"]), len(features["token_mask"])

    def draw(*shape: int) -> np.ndarray:
        factors = np.where(generator.random(shape) < 0.1, tail, 1.0)
        return generator.standard_normal(shape) * factors

    # a folded chain: a random walk that is pulled back to its centre
    positions = np.zeros((atoms, 3))
    for i in range(1, atoms):
        step = generator.standard_normal(3) - 0.03 * positions[i - 1]
        length = generator.uniform(1.2, 1.6)
        positions[i] = positions[i - 1] + length * step / np.linalg.norm(step)
    mask = features["atom_mask"].astype(np.float64)
    known = mask if resolved is None else mask * resolved
    sigmas = 16 * np.exp(-1.2 + 1.5 * generator.standard_normal(COPIES))
    errors = np.array([0.2, 1.0, 5.0])[:, None, None] * draw(COPIES, atoms, 3)
    rotations, _ = np.linalg.qr(generator.standard_normal((COPIES, 3, 3)))
    rotations *= np.linalg.det(rotations)[:, None, None]
    moved = positions @ rotations + 20 * generator.standard_normal((COPIES, 1, 3))
    outputs = {
        "denoised": (moved + errors) * mask[:, None],
        "sigmas": sigmas,
        "positions": (positions + 1.5 * draw(atoms, 3)) * mask[:, None],
        "distogram": draw(tokens, tokens, 64),
        "plddt": draw(atoms, 50),
        "pae": draw(tokens, tokens, 64),
        "pde": draw(tokens, tokens, 64),
        "resolved": draw(atoms, 2),
    }
    return Case(features, positions * known[:, None], known, outputs)


def gradient_case() -> tuple[Case, np.ndarray]:
    """Return the case on which gradients were recorded, and noised copies of its structure."""
    features = read_features()
    generator = np.random.default_rng(14)
    case = make_case(features, 12, resolved=generator.random(len(features["atom_mask"])) < 0.9)
    noise = generator.standard_normal((COPIES, len(case.positions), 3))
    noisy = case.positions + case.outputs["sigmas"][:, None, None] * noise
    return case, noisy * case.resolved[:, None]


def sketch(name: str, gradient: np.ndarray, products: int = 4) -> np.ndarray:
    """Return the norm of a gradient, and its products with random vectors that depend on its name."""
    generator = np.random.default_rng(list(name.encode()))
    flat = gradient.astype(np.float64).ravel()
    return np.array(
        [np.linalg.norm(flat), *(flat @ generator.standard_normal(len(flat)) for _ in range(products))]
    )
