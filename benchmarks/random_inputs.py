"""Random features of the networks, for scripts that time passes.

Needs nothing but NumPy, so that a script can import it next to another program's network.
"""

import numpy as np

Arrays = dict[str, np.ndarray]

ROWS, EXTRA_ROWS, SLOTS = 508, 2048, 4


def random_features(residues: int, msa_rows: int, extra_rows: int, seed: int = 0) -> Arrays:
    """Return random features of one iteration, with masks of all ones."""
    random = np.random.default_rng(seed)
    aatype = random.integers(0, 20, residues)
    return {
        "aatype": aatype[None],
        "residue_index": np.arange(residues)[None],
        "seq_mask": np.ones((1, residues), np.float32),
        "target_feat": np.eye(22, dtype=np.float32)[aatype + 1][None],
        "msa_feat": random.random((1, msa_rows, residues, 49), np.float32),
        "msa_mask": np.ones((1, msa_rows, residues), np.float32),
        "extra_msa": random.integers(0, 22, (1, extra_rows, residues)),
        "extra_msa_mask": np.ones((1, extra_rows, residues), np.float32),
        "extra_has_deletion": np.zeros((1, extra_rows, residues), np.float32),
        "extra_deletion_value": np.zeros((1, extra_rows, residues), np.float32),
    }


def template_arrays(residues: int, templates: int, mask_name: str) -> Arrays:
    """Return the first templates of SLOTS filled with random atoms."""
    random = np.random.default_rng(1)
    positions = np.zeros((SLOTS, residues, 37, 3), np.float32)
    positions[:templates] = 20 * random.standard_normal((templates, residues, 37, 3))
    mask = np.zeros((SLOTS, residues, 37), np.float32)
    mask[:templates] = 1
    aatype = np.zeros((SLOTS, residues), np.int64)
    aatype[:templates] = random.integers(0, 20, (templates, residues))
    return {"template_aatype": aatype, "template_all_atom_positions": positions, mask_name: mask}


def monomer_features(residues: int, templates: int, rows: int = ROWS, extra_rows: int = EXTRA_ROWS) -> Arrays:
    """Return features of one iteration of the monomer network."""
    arrays = template_arrays(residues, templates, "template_all_atom_masks")
    present = (np.arange(SLOTS) < templates).astype(np.float32)
    features = random_features(residues, rows, extra_rows)
    return features | {name: array[None] for name, array in (arrays | {"template_mask": present}).items()}


def multimer_features(
    residues: int, templates: int, rows: int = ROWS, extra_rows: int = EXTRA_ROWS
) -> Arrays:
    """Return features of a complex of two chains."""
    random = np.random.default_rng(0)
    arrays = template_arrays(residues, templates, "template_all_atom_mask")
    chain = (np.arange(residues) >= residues // 2).astype(np.int64)
    msa = random.integers(0, 22, (rows + extra_rows, residues))
    msa[0] %= 20
    return arrays | {
        "aatype": msa[0],
        "residue_index": np.arange(residues) - chain * (residues // 2),
        "asym_id": chain + 1,
        "entity_id": chain + 1,
        "sym_id": np.ones(residues, np.int64),
        "msa": msa,
        "deletion_matrix": np.zeros(msa.shape, np.float32),
    }
