"""The inputs of the all-atom network: names, types and axes.

The contract between `features.alphafold3.inputs`, which makes the arrays, and `model.alphafold3.inputs`,
which the network reads. Names are those of OpenFold3's features.
"""

from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np


class InputArray(NamedTuple):
    """The type and axes of one input.

    Attributes:
        dtype: type of the array in samples and their cache.
        axes: sizes, with N tokens, A atoms, R alignment rows and T templates.
        kind: the network reads an index as int64, a flag as bool, one-hot classes as int8 and a number as
            floating point.
    """

    dtype: type[np.generic]
    axes: str
    kind: Literal["index", "flag", "one-hot", "number"]


SCHEMA = MappingProxyType(
    {
        "token_index": InputArray(np.int32, "N", "index"),
        "restype": InputArray(np.int8, "N 32", "number"),
        "is_protein": InputArray(np.int32, "N", "flag"),
        "is_rna": InputArray(np.int32, "N", "flag"),
        "is_dna": InputArray(np.int32, "N", "flag"),
        "is_ligand": InputArray(np.int32, "N", "flag"),
        "is_atomized": InputArray(np.int32, "N", "flag"),
        "token_mask": InputArray(np.float32, "N", "number"),
        "num_atoms_per_token": InputArray(np.int32, "N", "index"),
        "start_atom_index": InputArray(np.int32, "N", "index"),
        "atom_mask": InputArray(np.float32, "A", "number"),
        "residue_index": InputArray(np.int32, "N", "index"),
        "asym_id": InputArray(np.int32, "N", "index"),
        "entity_id": InputArray(np.int32, "N", "index"),
        "sym_id": InputArray(np.int32, "N", "index"),
        "token_bonds": InputArray(np.int32, "N N", "number"),
        "atom_to_token_index": InputArray(np.int32, "A", "index"),
        "cyclic_mask": InputArray(np.bool_, "N", "flag"),
        "ref_pos": InputArray(np.float32, "A 3", "number"),
        "ref_mask": InputArray(np.int32, "A", "number"),
        "ref_element": InputArray(np.int8, "A 119", "one-hot"),
        "ref_charge": InputArray(np.float32, "A", "number"),
        "ref_atom_name_chars": InputArray(np.int8, "A 4 64", "one-hot"),
        "ref_space_uid": InputArray(np.int32, "A", "index"),
        "msa": InputArray(np.int8, "R N 32", "one-hot"),
        "has_deletion": InputArray(np.float32, "R N", "number"),
        "deletion_value": InputArray(np.float32, "R N", "number"),
        "deletion_mean": InputArray(np.float32, "N", "number"),
        "profile": InputArray(np.float32, "N 32", "number"),
        "num_paired_seqs": InputArray(np.int32, "1", "index"),
        "msa_mask": InputArray(np.float32, "R N", "number"),
        "template_pseudo_beta_mask": InputArray(np.float32, "T N", "number"),
        "template_backbone_frame_mask": InputArray(np.float32, "T N", "number"),
        "template_restype": InputArray(np.int8, "T N 32", "one-hot"),
        "template_distogram": InputArray(np.float32, "T N N 39", "number"),
        "template_unit_vector": InputArray(np.float32, "T N N 3", "number"),
    }
)
