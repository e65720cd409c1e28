"""Small inputs of the all-atom network."""

import numpy as np

from model.alphafold3.inputs import AlphaFold3Inputs


def make_inputs(types: list[int], counts: list[int], rows: int = 1, **changes: object) -> AlphaFold3Inputs:
    """Return protein tokens of one chain, with other features as given.

    Args:
        types: residue type of each token.
        counts: number of atoms of each token.
        rows: rows of the alignment.
        changes: tensors that differ, as lists.
    """
    n, a = len(types), sum(counts)
    shapes = {
        "restype": (n, 32), "token_bonds": (n, n), "ref_pos": (a, 3), "ref_mask": (a,), "ref_charge": (a,),
        "ref_element": (a, 119), "ref_atom_name_chars": (a, 4, 64), "ref_space_uid": (a,), "profile": (n, 32),
        "msa": (rows, n, 32), "has_deletion": (rows, n), "deletion_value": (rows, n), "deletion_mean": (n,),
        "template_restype": (1, n, 32), "template_pseudo_beta_mask": (1, n),
        "template_backbone_frame_mask": (1, n), "template_distogram": (1, n, n, 39),
        "template_unit_vector": (1, n, n, 3), "is_rna": (n,), "is_dna": (n,), "is_ligand": (n,),
        "is_atomized": (n,), "asym_id": (n,), "entity_id": (n,), "sym_id": (n,),
    }  # fmt: skip
    arrays: dict[str, np.ndarray] = {name: np.zeros(shape) for name, shape in shapes.items()}
    arrays |= {
        "restype": np.eye(32)[types],
        "is_protein": np.ones(n),
        "token_index": np.arange(n),
        "residue_index": np.arange(n),
        "token_mask": np.ones(n),
        "atom_mask": np.ones(a),
        "msa_mask": np.ones((rows, n)),
        "num_atoms_per_token": np.array(counts),
        "start_atom_index": np.cumsum(counts) - counts,
        "atom_to_token_index": np.repeat(np.arange(n), counts),
    }
    return AlphaFold3Inputs.from_arrays(arrays | {name: np.array(x) for name, x in changes.items()})
