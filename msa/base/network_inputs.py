"""The inputs of networks: names, types and axes.

The contract between `features`, which makes the arrays, and `model`, whose networks read them. Names and
meanings are AlphaFold2's (Jumper et al. 2021, Supplementary Information 1.2.9, Table 1), those of
AlphaFold-Multimer's data pipeline, and OpenFold3's.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np


class InputArray(NamedTuple):
    """The type and axes of one input.

    Attributes:
        dtype: type of the array in samples and their cache.
        axes: sizes, with N tokens or residues, A atoms, S alignment rows, E rows of the extra MSA and T
            templates.
        kind: the network reads an index as int64, a flag as bool, one-hot classes as int8 and a number as
            floating point; a mask is a number that is left out if it is 1 everywhere. None for arrays that
            networks do not read, or change first.
    """

    dtype: type[np.generic]
    axes: str
    kind: Literal["index", "flag", "one-hot", "number", "mask"] | None = None

    @property
    def channels(self) -> int:
        """The size of the last axis, which must be fixed."""
        return int(self.axes.split()[-1])

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape, given the sizes of the axes that are letters."""
        return tuple(sizes[axis] if axis in sizes else int(axis) for axis in self.axes.split())


# Inputs of AlphaFold2, which are sampled for each iteration, except for the unchanging ones. Networks without
# templates have no template features.
UNCHANGING = MappingProxyType(
    {
        "aatype": InputArray(np.int32, "N", "index"),
        "residue_index": InputArray(np.int32, "N", "index"),
        "seq_length": InputArray(np.int32, ""),
        "atom14_atom_exists": InputArray(np.float32, "N 14"),
        "atom37_atom_exists": InputArray(np.float32, "N 37"),
        "residx_atom14_to_atom37": InputArray(np.int32, "N 14"),
        "residx_atom37_to_atom14": InputArray(np.int32, "N 37"),
        "template_aatype": InputArray(np.int32, "T N", "index"),
        "template_all_atom_positions": InputArray(np.float32, "T N 37 3", "number"),
        "template_all_atom_masks": InputArray(np.float32, "T N 37", "number"),
        "template_sum_probs": InputArray(np.float32, "T 1"),
        "template_pseudo_beta": InputArray(np.float32, "T N 3"),
        "template_pseudo_beta_mask": InputArray(np.float32, "T N"),
    }
)
MONOMER = MappingProxyType(
    UNCHANGING
    | {
        "seq_mask": InputArray(np.float32, "N", "mask"),
        "is_distillation": InputArray(np.float32, ""),
        "target_feat": InputArray(np.float32, "N 22", "number"),
        "msa_feat": InputArray(np.float32, "S N 49", "number"),
        "msa_mask": InputArray(np.float32, "S N", "mask"),
        "msa_row_mask": InputArray(np.float32, "S"),
        "true_msa": InputArray(np.int32, "S N"),
        "bert_mask": InputArray(np.float32, "S N"),
        "extra_msa": InputArray(np.int32, "E N", "index"),
        "extra_msa_mask": InputArray(np.float32, "E N", "mask"),
        "extra_msa_row_mask": InputArray(np.float32, "E"),
        "extra_has_deletion": InputArray(np.float32, "E N", "number"),
        "extra_deletion_value": InputArray(np.float32, "E N", "number"),
        "template_mask": InputArray(np.float32, "T", "number"),
    }
)

# inputs of AlphaFold-Multimer, which samples its alignment itself
COMPLEX = MappingProxyType(
    {
        "aatype": InputArray(np.int32, "N", "index"),
        "residue_index": InputArray(np.int32, "N", "index"),
        "seq_length": InputArray(np.int32, ""),
        "seq_mask": InputArray(np.float32, "N", "mask"),
        "assembly_num_chains": InputArray(np.int64, ""),
        "asym_id": InputArray(np.float32, "N", "index"),
        "entity_id": InputArray(np.float32, "N", "index"),
        "sym_id": InputArray(np.float32, "N", "index"),
        "entity_mask": InputArray(np.int32, "N"),
        "all_atom_mask": InputArray(np.int32, "N 37"),
        "all_atom_positions": InputArray(np.float32, "N 37 3"),
        "msa": InputArray(np.int32, "S N"),
        "msa_mask": InputArray(np.float32, "S N"),
        "deletion_matrix": InputArray(np.float32, "S N"),
        "deletion_mean": InputArray(np.float32, "N"),
        "bert_mask": InputArray(np.float32, "S N"),
        "cluster_bias_mask": InputArray(np.float32, "S"),
        "num_alignments": InputArray(np.int32, ""),
        "num_templates": InputArray(np.int32, ""),
        "template_aatype": InputArray(np.int64, "4 N", "index"),
        "template_all_atom_positions": InputArray(np.float32, "4 N 37 3", "number"),
        "template_all_atom_mask": InputArray(np.float32, "4 N 37", "number"),
    }
)

# inputs of the all-atom network
ALL_ATOM = MappingProxyType(
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
        "msa": InputArray(np.int8, "S N 32", "one-hot"),
        "has_deletion": InputArray(np.float32, "S N", "number"),
        "deletion_value": InputArray(np.float32, "S N", "number"),
        "deletion_mean": InputArray(np.float32, "N", "number"),
        "profile": InputArray(np.float32, "N 32", "number"),
        "num_paired_seqs": InputArray(np.int32, "1", "index"),
        "msa_mask": InputArray(np.float32, "S N", "number"),
        "template_pseudo_beta_mask": InputArray(np.float32, "T N", "number"),
        "template_backbone_frame_mask": InputArray(np.float32, "T N", "number"),
        "template_restype": InputArray(np.int8, "T N 32", "one-hot"),
        "template_distogram": InputArray(np.int8, "T N N 39", "one-hot"),
        "template_unit_vector": InputArray(np.float32, "T N N 3", "number"),
    }
)

# given by the user, without an axis of iterations: cycle_length int64 [N], length of a residue's chain if it
# is cyclic, else 0; start_positions float32 [N, 37, 3] in Å, where recycling starts, NaN if unknown
GIVEN = frozenset({"cycle_length", "start_positions"})
