"""Source of the gapless kernels: fully unrolled, with a register per pair of columns.

A lane's cells are a tuple, which the compiler takes apart into registers; a loop over a local array would
spill. An intrinsic computes a row, from the last pair to the first, so that each takes up its diagonal
neighbour before that is overwritten and nothing is copied.

All kernels walk along targets in the same way (`_walk`); they differ in where a group's work comes from and
where its score goes:

    exact     all targets, longest first; scores that reach the limit are flagged
    listed    stretches of listed targets (cuda/alignment/gapless/stretches.py), flagged likewise
    bounds    all targets; a score that reaches the limit is UNBOUNDED. Long ones are shared by the groups of
              a warp: one would still be at work when all others are done
    bordered  bounds of one tile of a longer query: the last column of the tile before comes from global
              memory, and this tile's goes there
"""

from dataclasses import dataclass
from typing import Literal

from cuda.alignment.gapless.layout import BYTE, RESET, Arithmetic, Layout

Kind = Literal["exact", "listed", "bounds", "bordered"]

UNBOUNDED = 2**15 - 1
"""Instead of a bound that the kernel cannot vouch for."""

_RESET: dict[Kind, str] = {"listed": "\n            stretches[0] = 0"}
_WARP = 32
_ROWS_PER_WORD = 4
# chains of running maxima: one would wait for itself
_CHAINS = 4
# columns of a lane from which the other chains' registers are needed for cells
_FEW_REGISTERS = 112


@dataclass(frozen=True)
class Variant:
    """A kernel to be generated.

    Args:
        kind: what it does.
        layout: lanes and columns.
        arithmetic: what is packed; "byte" for bounds and bordered, and for them only.
        packed_integer_maximum: the GPU has max.s16x2 (sm_90), which takes two numbers per instruction;
            non-negative halves order as integers do.
    """

    kind: Kind
    layout: Layout
    arithmetic: Arithmetic
    packed_integer_maximum: bool

    def __post_init__(self) -> None:
        if (self.kind in ("bounds", "bordered")) != (self.arithmetic is BYTE):
            raise ValueError(f"no kernel of {self.kind} in {self.arithmetic.name} arithmetic")
        if self.layout.entry_bytes != self.arithmetic.entry_bytes:
            raise ValueError(f"a table of {self.arithmetic.name} entries has another layout")

    @property
    def name(self) -> str:
        """Of the kernel's function and module."""
        maximum = "integer" if self.packed_integer_maximum else "half"
        size = f"{self.layout.lanes}x{self.layout.columns}"
        return f"gapless_{self.kind}_{self.arithmetic.name}_{size}_{maximum}"

    @property
    def advance(self) -> str:
        """The intrinsic that computes a row."""
        plural = {"half": "halves", "short": "shorts", "byte": "bytes"}[self.arithmetic.name]
        return f"advance_{plural}" + ("_sm90" if self.packed_integer_maximum else "")

    @property
    def better(self) -> str:
        """The intrinsic that keeps the larger scores of two pairs."""
        order = "lesser" if self.arithmetic is BYTE else "greater"
        return f"{order}_shorts" if self.packed_integer_maximum else f"{order}_halves"

    @property
    def largest(self) -> str:
        """The intrinsic that makes a number of a pair."""
        return "largest_bound" if self.arithmetic is BYTE else f"largest_{self.arithmetic.name}"


_ARGUMENTS: dict[Kind, str] = {
    "exact": "flagged, scores",
    "listed": "flagged, scores, listed, stretches, stretch, overlap",
    "bounds": "bounds, slack, long_from, overlap",
    "bordered": "bounds, slack, border, first_tile, from_byte, to_byte",
}

# which targets a warp may take, from the last to the first: longest first, so that none is left with much
# work at the end
_RANGE: dict[Kind, str] = {
    "exact": "begin, end = 0, lengths.size",
    "listed": "count = stretches[0]",
    "bounds": """
end = np.int32(lengths.size)
short_end = np.int32(0)
high = end
while short_end < high:
    middle = np.int32((short_end + high) >> 1)
    if lengths[middle] < long_from:
        short_end = np.int32(middle + 1)
    else:
        high = middle
""",
    "bordered": """
begin, end = np.int64(0), np.int64(offsets.size)
high = end
while begin < high:
    middle = (begin + high) >> 1
    if offsets[middle] < from_byte:
        begin = middle + 1
    else:
        high = middle
low = begin
while low < end:
    middle = (low + end) >> 1
    if offsets[middle] < to_byte:
        low = middle + 1
    else:
        end = middle
""",
}

_TAKE_TARGETS = """
last = end - 1 - taken * {groups}
if last < begin:
    break
target = last - group
valid = target >= begin
if valid:
    length = lengths[target]
    start = np.uint64(offsets[target] >> 2)
"""

_TAKE: dict[Kind, str] = {
    "exact": _TAKE_TARGETS,
    "bounds": """
split = taken < end - short_end
target = np.int32(end - 1 - taken)
if not split:
    last = np.int32(short_end - 1 - (taken - (end - short_end)) * {groups})
    if last < 0:
        break
    target = np.int32(last - group)
valid = target >= 0
if valid:
    length = lengths[target]
    start = np.uint64(offsets[target] >> 2)
    if split:
        # each group takes a part, and the rows before in which an alignment that ends in it can start
        part = (length // {groups} + 4) & ~3
        before = max(part * group - overlap, 0)
        length = np.int32(max(min(length, part * (group + 1)) - before, 0))
        start += np.uint64(before >> 2)
""",
    "bordered": _TAKE_TARGETS
    + """
column = np.int32(0)
fits = True
if valid:
    fits = offsets[target] - from_byte + length <= 2 * np.int64(border.size)
if not fits:
    length = np.int32(0)
earlier = next_low = next_high = zero_cells
if length > 0:
    column = np.int32((offsets[target] - from_byte) >> 1)
    if not first_tile:
        next_low, next_high = border[column], border[column + 1]
""",
    "listed": """
if taken * {groups} >= count:
    break
item = taken * {groups} + group
valid = item < count
place = np.int32(0)
if valid:
    place, row_from = stretches[1 + 2 * item], stretches[2 + 2 * item]
    target = listed[1 + place]
    # an alignment that ends in the stretch starts no more than a query before it
    before = max(row_from - overlap, 0)
    length = np.int32(min(lengths[target], row_from + stretch) - before)
    start = np.uint64((offsets[target] + before) >> 2)
""",
}

_GIVE: dict[Kind, str] = {
    "exact": """
scores[target] = score
if score >= {limit}:
    flagged[1 + cuda.atomic.add(flagged, 0, 1)] = target
""",
    "listed": """
if cuda.atomic.max(scores, place, score) < {limit} and score >= {limit}:
    flagged[1 + cuda.atomic.add(flagged, 0, 1)] = place
""",
    "bounds": """
score = score + slack
if not split or lane == 0:
    bounds[target] = score if score < {limit} else {unbounded}
""",
    "bordered": """
score = np.int32(score + slack)
if score >= {limit} or not fits:
    score = np.int32({unbounded})
if not first_tile:
    score = max(score, np.int32(bounds[target]))
bounds[target] = score
""",
}


def _chains(variant: Variant) -> int:
    """Of running maxima, two pairs at a time; of bytes every second pair counts."""
    if variant.arithmetic is not BYTE:
        return min(_CHAINS, variant.layout.pairs // 2)
    return 1 if variant.layout.columns > _FEW_REGISTERS else min(_CHAINS, (variant.layout.pairs + 2) // 4)


def _row_lines(variant: Variant) -> list[str]:
    """Four rows of cells, for the four residues of `word`."""
    layout, last = variant.layout, variant.layout.pairs - 1
    first = layout.first_pieces[0][0].words
    places = ["at"] + [f"np.int32(at + reach{piece.words})" for piece, _ in layout.first_pieces[1:]]
    # the high half of a word is what counts: of the row before, of this word's first, second and third
    lefts = ["earlier", "now_low << 16", "now_low", "now_high << 16"]
    lines = []
    for which in range(_ROWS_PER_WORD):
        lines.append(f"neighbour = shuffle_up(cells[{last}])")
        if variant.kind == "bordered":
            lines.append(f"neighbour = np.int32({lefts[which]}) if first_lane else neighbour")
        elif variant.arithmetic.zero:
            lines.append("neighbour = (neighbour & kept) | instead")
        lines.append(f"edge = permute(neighbour, cells[{last}], selector)")
        lines.append(f"at = row(base, word, {which}, {layout.row_bytes})")
        lines.append(
            f"cells, best = {variant.advance}"
            f"(shared, ({', '.join(places)},), {layout.piece_bytes(first)}, edge, cells, best)"
        )
        if variant.kind == "bordered":
            lines.append(f"own{which} = cells[{last}]")
    return lines


def _place_lines(layout: Layout) -> list[str]:
    """Where a lane's pieces of a row lie: `base`, and for narrower ones how much further."""
    (first, _), *narrower = layout.first_pieces
    own = f"lane % {layout.slots(first.words)} * {4 * first.words}"
    lines = [f"base = np.int32(shared_address(shared) + {own})"]
    for piece, byte in narrower:
        there = f"{byte} + lane % {layout.slots(piece.words)} * {4 * piece.words}"
        lines.append(f"reach{piece.words} = np.int32({there} - {own})")
    return lines


def _reduce_lines(variant: Variant) -> list[str]:
    """The score of a group, from its lanes' running maxima."""
    lines = ["most = best[0]"]
    lines += [f"most = {variant.better}(most, best[{k}])" for k in range(1, _chains(variant))]
    if variant.arithmetic is BYTE:
        # what the last row left in pairs that did not count
        lines += [f"most = {variant.better}(most, cells[{k}])" for k in range(0, variant.layout.pairs, 2)]
    lines.append(f"score = {variant.largest}(most)")
    distance = 1
    while distance < variant.layout.lanes:
        lines.append(f"score = max(score, shuffle_xor(score, {distance}))")
        distance *= 2
    if variant.kind == "bounds" and distance < _WARP:
        lines.append("if split:")
        while distance < _WARP:
            lines.append(f"    score = max(score, shuffle_xor(score, {distance}))")
            distance *= 2
    return lines


def _longest_lines(layout: Layout) -> list[str]:
    """The most residues of a group of the warp."""
    lines, distance = ["longest = length"], layout.lanes
    while distance < _WARP:
        lines.append(f"longest = max(longest, shuffle_xor(longest, {distance}))")
        distance *= 2
    return lines


def _block(depth: int, lines: list[str] | str, **values: int) -> str:
    if isinstance(lines, str):
        lines = lines.format(**values).strip("\n").split("\n")
    return "\n".join(" " * 4 * depth + line if line else "" for line in lines)


def source(variant: Variant) -> str:
    """Python source of a module with one function, `variant.name`, to be compiled with numba.cuda.

    Its arguments are those of its kind (cuda/alignment/gapless/signatures.py). It wants table_bytes of
    dynamic shared memory and blocks of whole warps.
    """
    layout, arithmetic, kind = variant.layout, variant.arithmetic, variant.kind
    values = {
        "groups": layout.groups,
        "limit": arithmetic.limit, "unbounded": UNBOUNDED,
    }  # fmt: skip
    names = sorted({
        variant.advance, variant.better, variant.largest, "cut", "permute", "repeated", "row",
        "shared_address", "shuffle_first", "shuffle_up", "shuffle_xor", "unmask",
    })  # fmt: skip
    imports = f"from cuda.alignment.intrinsics import {', '.join(names)}"
    # the left neighbour's last column beside one's own column in the middle. The group's first lane has no
    # neighbour: where a score of 0 is a 0, it takes the sign of a number that has none
    selector = "0x5432" if arithmetic.zero else "0x54BB if first_lane else 0x5432"
    step_lines = [
        "word = unmask(following)",
        "if left < 4:",
        f"    word = cut(word, left, {RESET * 0x01010101})",
        "if left > 4:",
        "    start += np.uint64(1)",
        "    following = residues[start]",
    ]
    fetch, store = [], []
    if kind == "bordered":
        fetch = [
            "now_low, now_high = next_low, next_high",
            "inside = left > 0",
            "if left > 4 and not first_tile:",
            "    next_low, next_high = border[column + 2], border[column + 3]",
        ]
        store = [
            "earlier = now_high",
            "if inside and last_lane:",
            "    border[column] = permute(own0, own1, np.int32(0x7632))",
            "    border[column + 1] = permute(own2, own3, np.int32(0x7632))",
            "column = np.int32(column + 2)",
        ]
    step_lines += [*fetch, "left = np.int32(left - 4)", *_row_lines(variant), *store]
    return f'''"""Generated; see cuda/alignment/gapless/generator.py."""

import numpy as np
from numba import cuda, types

{imports}

no_cells = repeated({layout.pairs}, {arithmetic.zero})
no_best = repeated({_chains(variant)}, {arithmetic.zero})

def {variant.name}(table, residues, offsets, lengths, work, {_ARGUMENTS[kind]}):
    shared = cuda.shared.array(0, types.int32)
    for k in range(cuda.threadIdx.x, table.size, cuda.blockDim.x):
        shared[k] = table[k]
    cuda.syncthreads()
    lane = np.int32(cuda.threadIdx.x & 31)
    group = lane // {layout.lanes}
    first_lane = lane % {layout.lanes} == 0
    last_lane = lane % {layout.lanes} == {layout.lanes - 1}
    selector = np.int32({selector})
    zero_cells = np.int32({arithmetic.zero})
    kept, instead = np.int32(0 if first_lane else -1), np.int32(zero_cells if first_lane else 0)
{_block(1, _place_lines(layout))}
{_block(1, _RANGE[kind])}
    while True:
        taken = np.int32(0)
        if lane == 0:
            taken = cuda.atomic.add(work, 0, 1)
        taken = shuffle_first(taken)
        length = np.int32(0)
        start = np.uint64(0)
{_block(2, _TAKE[kind], **values)}
{_block(2, _longest_lines(layout))}
        left = length
        following = np.int32({RESET * 0x01010101})
        if left > 0:
            following = residues[start]
        cells = no_cells()
        best = no_best()
        for step in range(np.int32((longest + 3) >> 2)):
{_block(3, step_lines)}
{_block(2, _reduce_lines(variant))}
        if valid and first_lane:
{_block(3, _GIVE[kind], **values)}
    # the last warp to find nothing leaves the counters as it found them
    if lane == 0:
        warps = cuda.gridDim.x * cuda.blockDim.x // 32
        if cuda.atomic.add(work, 1, 1) == warps - 1:
            work[0] = 0
            work[1] = 0{_RESET.get(kind, "")}
'''
