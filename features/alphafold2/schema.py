"""Names, dtypes and shapes of cached features; `msa.base.network_inputs` has those that networks take.

Names and meanings are AlphaFold2's, except for `species_row` and `species`, by which the rows of chains are
paired.
"""

from msa.base.network_inputs import UNCHANGING

# part of each cache key; increased when the meaning of a cached feature changes
SCHEMA_VERSION = 1
# increased when the file format of an entry changes; the path stays the same, so older entries are replaced
FORMAT_VERSION = 5

# Features that depend only on the alignment and the templates: name → dtype and shape (N residues, M
# distinct rows, P rows of known species, T templates). "uint*" is the narrowest of uint8, uint16 and uint32
# that holds the values.
CACHED_FEATURES = {name: array[:2] for name, array in UNCHANGING.items()} | {
    "between_segment_residues": ("int32", "N"),
    "domain_name": ("bytes", "1"),
    "sequence": ("bytes", "1"),
    "msa": ("int8", "M N"),
    "deletion_matrix": ("uint*", "M N"),
    "num_alignments": ("int32", ""),
    "hhblits_profile": ("float32", "N 22"),
    "species_row": ("uint*", "P"),
    "species": ("bytes", "P"),
}

# The same for a complex: the rows of its alignment (E distinct chains with N residues in all, without copies;
# C chains). `row_entity` is the distinct chain of an unpaired row and -1 of a paired row; `order` and
# `is_complete` are those of `features.complexes.rows.ComplexRows`.
CACHED_COMPLEX_FEATURES = {
    "domain_name": ("bytes", "1"),
    "sequence": ("bytes", "E"),
    "order": ("int32", "C"),
    "is_complete": ("int32", ""),
    "row_entity": ("int32", "M"),
    "msa": ("int8", "M N"),
    "deletion_matrix": ("uint*", "M N"),
}
