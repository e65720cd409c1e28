"""What DeepMind published: the archive, the files in it that are read here, and their licence."""

from collections.abc import Sequence
from typing import Literal

# of December 2022; the same files that ColabFold uses
ARCHIVE = "https://storage.googleapis.com/alphafold/alphafold_params_2022-12-06.tar"
LICENCE = "CC BY 4.0"
LICENCE_FILE = "LICENSE"
NOTICE = """\
AlphaFold2's parameters are (c) DeepMind Technologies Limited, under the Creative Commons Attribution 4.0
International licence (CC BY 4.0), https://creativecommons.org/licenses/by/4.0/legalcode, without warranty.
Cite: Jumper et al., Highly accurate protein structure prediction with AlphaFold, Nature 596, 583 (2021).
"""

Which = Literal["ptm", "monomer", "all"]
SUFFIXES: dict[str, tuple[str, ...]] = {"ptm": ("_ptm",), "monomer": ("",), "all": ("_ptm", "")}


def networks_by_file(which: str, numbers: Sequence[int]) -> dict[str, str]:
    """The networks to have, by the names of their files.

    Args:
        which: "ptm", with a head that predicts the aligned error; "monomer", without; or "all".
        numbers: of models, 1 to 5.
    """
    names = [f"model_{number}{suffix}" for suffix in SUFFIXES[which] for number in numbers]
    return {f"params_{name}.npz": name for name in names}


def parameter_bytes(network: str) -> int:
    """What the arrays of a network's file take, as float32."""
    from math import prod

    from model.config import model_config
    from model.parameters import expected_shapes

    return 4 * sum(prod(shape) for shape in expected_shapes(model_config(network)).values())
