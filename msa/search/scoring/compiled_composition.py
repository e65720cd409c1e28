"""The loop of msa/search/scoring/composition.py, compiled; results are equal."""

from msa.alphabet import LETTER_BITS
from msa.base.jit import kernel


@kernel
def count_residues(residues, starts, ends, counts):  # type: ignore[no-untyped-def]
    """Count the residues of regions.

    Args:
        residues: uint8, residue bytes of the database.
        starts: int64 [n], index of the first residue of each region.
        ends: int64 [n], index after its last residue.
        counts: int64 [n, letters], incremented; letters with larger codes are not counted.
    """
    for region in range(len(starts)):
        for k in range(starts[region], ends[region]):
            letter = residues[k] & LETTER_BITS
            if letter < counts.shape[1]:
                counts[region, letter] += 1
