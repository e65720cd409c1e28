"""Inputs that OpenFold3's featuriser made (make_goldens.py)."""

import numpy as np

from tests.features.alphafold3.query_jobs import FOLDER

ONE_HOT = {"restype": 32, "ref_element": 119, "ref_atom_name_chars": 64, "msa": 32, "template_restype": 32}


def golden(name: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / "data" / f"{name}.npz") as file:
        arrays = dict(file)
    for key, count in ONE_HOT.items():
        arrays[key] = (arrays[key][..., None] == np.arange(count)).astype(np.int32)
    tokens = len(arrays["token_index"])
    bonds = np.zeros((tokens, tokens), np.int32)
    bonds[tuple(arrays["token_bonds"].T)] = 1
    arrays["token_bonds"] = bonds
    arrays["template_distogram"] = np.zeros((4, tokens, tokens, 39), np.float32)
    arrays["template_unit_vector"] = np.zeros((4, tokens, tokens, 3), np.float32)
    return arrays
