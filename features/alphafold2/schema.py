"""Names, dtypes and shapes of features: cached ones, sampled ones, and those of complexes.

Names and meanings are AlphaFold2's (Jumper et al. 2021, Supplementary Information 1.2.9, Table 1), except for
`species_row` and `species`, by which the rows of chains are paired. No feature is both cached and sampled.
"""

# part of each cache key; increased when the meaning of a cached feature changes
SCHEMA_VERSION = 1
# increased when the file format of an entry changes; the path stays the same, so older entries are replaced
FORMAT_VERSION = 4

# Features that depend only on the alignment and the templates: name → dtype and shape (R residues, M
# distinct rows, P rows of known species, T templates). "uint*" is the narrowest of uint8, uint16 and uint32
# that holds the values.
CACHED = {
    "aatype": ("int32", "R"),
    "residue_index": ("int32", "R"),
    "seq_length": ("int32", ""),
    "between_segment_residues": ("int32", "R"),
    "domain_name": ("bytes", "1"),
    "sequence": ("bytes", "1"),
    "msa": ("int8", "M R"),
    "deletion_matrix": ("uint*", "M R"),
    "num_alignments": ("int32", ""),
    "hhblits_profile": ("float32", "R 22"),
    "species_row": ("uint*", "P"),
    "species": ("bytes", "P"),
    "atom14_atom_exists": ("float32", "R 14"),
    "atom37_atom_exists": ("float32", "R 37"),
    "residx_atom14_to_atom37": ("int32", "R 14"),
    "residx_atom37_to_atom14": ("int32", "R 37"),
    "template_aatype": ("int32", "T R"),
    "template_all_atom_positions": ("float32", "T R 37 3"),
    "template_all_atom_masks": ("float32", "T R 37"),
    "template_sum_probs": ("float32", "T 1"),
    "template_pseudo_beta": ("float32", "T R 3"),
    "template_pseudo_beta_mask": ("float32", "T R"),
}

# The same for a complex: the rows of its alignment (E distinct chains with R residues in all, without copies;
# C chains). `row_entity` is the distinct chain of an unpaired row and -1 of a paired row; `order` and
# `is_complete` are those of `features.complexes.rows.ComplexRows`.
CACHED_COMPLEX = {
    "domain_name": ("bytes", "1"),
    "sequence": ("bytes", "E"),
    "order": ("int32", "C"),
    "is_complete": ("int32", ""),
    "row_entity": ("int32", "M"),
    "msa": ("int8", "M R"),
    "deletion_matrix": ("uint*", "M R"),
    "hhblits_profile": ("float32", "R 22"),
}

# Features computed from the cached ones for each seed and iteration: name → dtype and shape without the
# leading axis of iterations (S sampled rows, E extra rows, K template slots).
SAMPLED = {
    "seq_mask": ("float32", "R"),
    "is_distillation": ("float32", ""),
    "target_feat": ("float32", "R 22"),
    "msa_feat": ("float32", "S R 49"),
    "msa_mask": ("float32", "S R"),
    "msa_row_mask": ("float32", "S"),
    "true_msa": ("int32", "S R"),
    "bert_mask": ("float32", "S R"),
    "extra_msa": ("int32", "E R"),
    "extra_msa_mask": ("float32", "E R"),
    "extra_msa_row_mask": ("float32", "E"),
    "extra_has_deletion": ("float32", "E R"),
    "extra_deletion_value": ("float32", "E R"),
    "template_mask": ("float32", "K"),
}

# cached features that the network reads unchanged, repeated for each iteration
UNCHANGED = (
    "aatype",
    "residue_index",
    "seq_length",
    "atom14_atom_exists",
    "atom37_atom_exists",
    "residx_atom14_to_atom37",
    "residx_atom37_to_atom14",
)

# the same for networks with templates, padded to the number of template slots
UNCHANGED_TEMPLATES = (
    "template_aatype",
    "template_all_atom_positions",
    "template_all_atom_masks",
    "template_sum_probs",
    "template_pseudo_beta",
    "template_pseudo_beta_mask",
)

# Features of a complex, which the network samples itself: name → dtype and shape (N residues of all chains, S
# rows of the merged alignment). Names, values and dtypes are those of AlphaFold-Multimer's data pipeline.
COMPLEX = {
    "aatype": ("int32", "N"),
    "residue_index": ("int32", "N"),
    "seq_length": ("int32", ""),
    "seq_mask": ("float32", "N"),
    "assembly_num_chains": ("int64", ""),
    "asym_id": ("float32", "N"),
    "entity_id": ("float32", "N"),
    "sym_id": ("float32", "N"),
    "entity_mask": ("int32", "N"),
    "all_atom_mask": ("int32", "N 37"),
    "all_atom_positions": ("float32", "N 37 3"),
    "msa": ("int32", "S N"),
    "msa_mask": ("float32", "S N"),
    "deletion_matrix": ("float32", "S N"),
    "deletion_mean": ("float32", "N"),
    "bert_mask": ("float32", "S N"),
    "cluster_bias_mask": ("float32", "S"),
    "num_alignments": ("int32", ""),
    "num_templates": ("int32", ""),
    "template_aatype": ("int64", "4 N"),
    "template_all_atom_positions": ("float32", "4 N 37 3"),
    "template_all_atom_mask": ("float32", "4 N 37"),
}
