"""A natural coiled coil, and random ones."""

import numpy as np

# human tropomyosin 1 (P09493), residues 1 to 120: a coiled coil
TROPOMYOSIN = (
    "MDAIKKKMQMLKLDKENALDRAEQAEADKKAAEDRSKQLEDELVSLQKKLKGTEDELDKYSEALKDAQEKLELAEKKATDAEADVASLNRRIQLVEEELDR"
    "AQERLATALQKLEEAEKAA"
)
HEPTAD = ("LLIVA", "EKRQNTS", "EKRQAD", "LLAVMY", "EKQASR", "EKRDQA", "EKRQNH")
"""Residues at the seven positions of a coiled coil's heptad."""


def coil(seed: int) -> str:
    """Create a random coiled coil of 140 residues."""
    rng = np.random.default_rng(seed)
    return "".join(rng.choice(list(HEPTAD[(k + seed) % 7])) for k in range(140))
