"""Arguments of the gapless kernels."""

from numba import types

_WORDS = types.int32[::1]
_OFFSETS = types.int64[::1]
_BOUNDS = types.int16[::1]

# table int32 [table_bytes / 4]; residues int32 [bytes / 4], four letter codes a word; offsets int64 [n], in
# bytes; lengths int32 [n]; work int32 [2], zeros between calls
_COMMON = (_WORDS, _WORDS, _OFFSETS, _WORDS, _WORDS)

SIGNATURES = {
    # flagged int32 [n + 1], how many targets reached the limit and which; scores int32 [n]
    "exact": types.void(*_COMMON, _WORDS, _WORDS),
    # flagged and scores by place in the list; listed int32 [n + 1], how many and which; stretches as
    # cuda/alignment/gapless/stretches.py makes them, none on return; residues of a stretch; residues to see
    # before it, at least the query's; both multiples of 4
    "listed": types.void(*_COMMON, _WORDS, _WORDS, _WORDS, _WORDS, types.int32, types.int32),
    # bounds int16 [n]; what to add to a maximum over every second pair (byte_table.py); residues from which a
    # target is shared by the groups of a warp; residues to see before a share, as for a stretch
    "bounds": types.void(*_COMMON, _BOUNDS, types.int32, types.int32, types.int32),
    # border int32 [half of the residues that a launch may span], two halves a word; 1 for a query's first
    # tile; the launch takes targets that start at bytes from … to
    "bordered": types.void(*_COMMON, _BOUNDS, types.int32, _WORDS, types.int32, types.int64, types.int64),
}
"""Of the kernels of each kind (cuda/alignment/gapless/generator.py)."""

# profile int32 [32 · query length], letter by letter; query length; residues uint8; offsets; lengths; 1 to
# score all, 0 to score those flagged; 1 if places are of a list, 0 if of all targets; listed; work; flagged;
# scores
WIDE_SIGNATURE = types.void(
    _WORDS, types.int32, types.uint8[::1], _OFFSETS, _WORDS, types.int32, types.int32, _WORDS, _WORDS, _WORDS,
    _WORDS,
)  # fmt: skip

# listed, lengths, residues of a stretch, stretches, scores
STRETCHES_SIGNATURE = types.void(_WORDS, _WORDS, types.int32, _WORDS, _WORDS)
