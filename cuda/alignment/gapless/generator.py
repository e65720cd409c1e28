"""Source of the generated gapless kernels: fully unrolled, with one register per pair of columns.

A lane's cells are a tuple, which the compiler splits into registers; a loop over a local array would spill.
One intrinsic computes a row, from the last pair to the first, so that each pair reads its diagonal neighbour
before that is overwritten, and nothing is copied.

All kernels process a target in the same way (`source`). They differ in the targets that they process, and in
what they do with a score:

    listed    exact scores of stretches of the targets in lists (lists.py), for several queries, each with its
              own blocks
    bounds    all targets; a score that reaches the limit becomes UNBOUNDED. Several groups of a warp share
              each long target, which would otherwise keep a single group busy after all others have finished
    bordered  bounds of one tile of a longer query: reads the last column of the previous tile from global
              memory and writes its own there
"""

from dataclasses import dataclass
from typing import Literal

from cuda.alignment.gapless.layout import BYTE, RESET, Arithmetic, LaneLayout
from cuda.alignment.gapless.lists import LISTED, SCORED, STRETCHES, TAKEN, WARPS

Kind = Literal["listed", "bounds", "bordered"]

UNBOUNDED = 2**15 - 1
"""Replaces a bound that the kernel cannot guarantee."""

_WARP = 32
_ROWS_PER_WORD = 4
# words of the array `begins`, enough for six classes, so that the table stays aligned to 128 bytes
_CLASS_WORDS = 32
# maximum number of running maxima per lane; with several, consecutive instructions do not wait for each other
_CHAINS = 4
# maximum columns per lane for which there are registers for more than one running maximum
_MAX_CHAINED_COLUMNS = 112


@dataclass(frozen=True)
class Variant:
    """A kernel to generate.

    Args:
        kind: "listed", "bounds" or "bordered".
        layout: lanes and columns.
        arithmetic: number format; "byte" for bounds and bordered only.
        packed_integer_maximum: whether the GPU has max.s16x2 (sm_90), which handles two numbers per
            instruction. Non-negative halves have the same order as integers.

    Raises:
        ValueError: kind, arithmetic and layout do not match.
    """

    kind: Kind
    layout: LaneLayout
    arithmetic: Arithmetic
    packed_integer_maximum: bool

    def __post_init__(self) -> None:
        if (self.kind in ("bounds", "bordered")) != (self.arithmetic is BYTE):
            raise ValueError(f"there is no {self.kind} kernel with {self.arithmetic.name} arithmetic")
        if self.layout.entry_bytes != self.arithmetic.entry_bytes:
            raise ValueError(
                f"{self.arithmetic.name} arithmetic needs a layout with "
                f"{self.arithmetic.entry_bytes}-byte entries, not {self.layout.entry_bytes}"
            )

    @property
    def name(self) -> str:
        """Name of the kernel's function and module."""
        maximum = "integer" if self.packed_integer_maximum else "half"
        size = f"{self.layout.lanes}x{self.layout.columns}"
        return f"gapless_{self.kind}_{self.arithmetic.name}_{size}_{maximum}"

    @property
    def intrinsics(self) -> str:
        """End of the names of the intrinsics that compute rows and scores."""
        plural = {"half": "halves", "short": "shorts", "byte": "bytes"}[self.arithmetic.name]
        return plural + ("_sm90" if self.packed_integer_maximum else "")


_ARGUMENTS: dict[Kind, str] = {
    "listed": "state, scores, targets, ends, first_query, blocks, stretch",
    "bounds": "work, bounds, slack, longest_part, overlap",
    "bordered": "work, bounds, slack, border, first_tile, from_byte, to_byte",
}

# for a launch with one query, and for one with several
_LOAD_TABLE = (
    """
for k in range(cuda.threadIdx.x, table.size, cuda.blockDim.x):
    shared[k] = table[k]
""",
    """
member = np.int32(cuda.blockIdx.x // blocks)
query = np.int32(first_query + member)
count, scored, listed = state[query, {stretches}], state[query, {scored}], state[query, {listed}]
if count == 0:
    return
for k in range(cuda.threadIdx.x, {words}, cuda.blockDim.x):
    shared[k] = table[member * {words} + k]
""",
)

# array of the counters, index of the work items taken, index of the warps that have finished, and blocks
_COUNTERS = (
    ("work", "0", "1", "cuda.gridDim.x"),
    ("state", f"(query, {TAKEN})", f"(query, {WARPS})", "blocks"),
)

# computes the range of targets; warps take targets from last to first, so that the longest come first
_WORK_RANGE: dict[Kind, str] = {
    "listed": "",
    # Targets are divided into classes by length. Those of class c are cut into 2ᶜ parts, one for each group
    # of a warp in the last class. Class c begins at target begins[c]. Searches for longer targets never end
    # earlier, so also if targets are not sorted, each belongs to one class.
    "bounds": """
begins = cuda.shared.array({class_words}, types.int32)
thread = np.int32(cuda.threadIdx.x)
if thread == 0:
    begins[0] = 0
    begins[{last_class} + 1] = lengths.size
elif thread <= {last_class}:
    low, high = np.int32(0), np.int32(lengths.size)
    while low < high:
        middle = np.int32((low + high) >> 1)
        if lengths[middle] <= longest_part << (thread - 1):
            low = np.int32(middle + 1)
        else:
            high = middle
    begins[thread] = low
cuda.syncthreads()
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

# `taken` is the number of work items taken before; each group of the warp takes one target
_TAKE_TARGET = """
last = end - 1 - taken * {groups}
if last < begin:
    break
target = last - group
valid = target >= begin
if valid:
    length = lengths[target]
    start = np.uint64(offsets[target] >> 2)
"""

_TAKE_WORK: dict[Kind, str] = {
    "bounds": """
class_, later, begin, end = np.int32({last_class}), taken, np.int32(0), np.int32(0)
while class_ >= 0:
    begin, end = begins[class_], begins[class_ + 1]
    items = np.int32((end - begin + ({groups} >> class_) - 1) >> ({last_class} - class_))
    if later < items:
        break
    later, class_ = np.int32(later - items), np.int32(class_ - 1)
if class_ < 0:
    break
target = np.int32(end - 1 - (later << ({last_class} - class_)) - (group >> class_))
valid = target >= begin
if valid:
    length = lengths[target]
    start = np.uint64(offsets[target] >> 2)
    if class_ > 0:
        # each group takes a part, and the rows before it in which an alignment that ends in it can start
        part = ((length >> class_) + 4) & ~3
        part_from = part * (group & ((1 << class_) - 1))
        before = max(part_from - overlap, 0)
        length = np.int32(max(min(length, part_from + part) - before, 0))
        start += np.uint64(before >> 2)
""",
    "bordered": _TAKE_TARGET
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
position = np.int32(0)
if valid:
    position, high = scored, np.int32(listed - 1)
    while position < high:
        middle = np.int32((position + high) >> 1)
        if ends[query, middle] > item:
            high = middle
        else:
            position = np.int32(middle + 1)
    row_from = item * stretch
    if position > scored:
        row_from -= ends[query, position - 1] * stretch
    target = targets[query, position]
    # an alignment that ends in the stretch starts at most one query length before it
    before = max(row_from - {tile}, 0)
    length = np.int32(min(lengths[target], row_from + stretch) - before)
    start = np.uint64((offsets[target] + before) >> 2)
""",
}

# executed by the first lane of each group
_STORE_SCORE: dict[Kind, str] = {
    "listed": """
cuda.atomic.max(scores, (query, position), score)
""",
    "bounds": """
score = score + slack
if group & ((1 << class_) - 1) == 0:
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
    """Return the number of running maxima, which divide the pairs (with bytes, every second one)."""
    if variant.arithmetic is not BYTE:
        return min(_CHAINS, variant.layout.pairs // 2)
    return (
        1 if variant.layout.columns > _MAX_CHAINED_COLUMNS else min(_CHAINS, (variant.layout.pairs + 2) // 4)
    )


def _row_lines(variant: Variant) -> list[str]:
    """Generate four rows of cells, for the four residues of `word`."""
    layout, last = variant.layout, variant.layout.pairs - 1
    first = layout.first_loads[0][0].words
    addresses = ["at"] + [f"np.int32(at + reach{load.words})" for load, _ in layout.first_loads[1:]]
    # only the high half of a word counts: of the previous row, then of this word's first three rows
    lefts = ["earlier", "now_low << 16", "now_low", "now_high << 16"]
    lines = []
    for index in range(_ROWS_PER_WORD):
        shuffled = f"neighbour = shuffle_up(cells[{last}])"
        if variant.kind == "bordered":
            lines += [shuffled, f"neighbour = np.int32({lefts[index]}) if first_lane else neighbour"]
        elif layout.lanes == 1:
            lines.append("neighbour = zero_cells")
        else:
            lines.append(shuffled)
            if variant.arithmetic.zero:
                lines.append("neighbour = (neighbour & kept) | instead")
        lines.append(f"edge = permute(neighbour, cells[{last}], selector)")
        lines.append(f"at = row(base, word, {index}, {layout.row_bytes})")
        lines.append(
            f"cells, best = advance_{variant.intrinsics}"
            f"(shared, ({', '.join(addresses)},), {layout.segment_bytes(first)}, edge, cells, best)"
        )
        if variant.kind == "bordered":
            lines.append(f"own{index} = cells[{last}]")
    return lines


def _address_lines(layout: LaneLayout) -> list[str]:
    """Generate a lane's address in a row: `base`, and the extra distance `reach…` for narrower loads."""
    (first, _), *narrower = layout.first_loads
    own = f"lane % {layout.slots(first.words)} * {4 * first.words}"
    lines = [f"base = np.int32(shared_address(shared) + {own})"]
    for load, byte in narrower:
        address = f"{byte} + lane % {layout.slots(load.words)} * {4 * load.words}"
        lines.append(f"reach{load.words} = np.int32({address} - {own})")
    return lines


def _score_lines(variant: Variant) -> list[str]:
    """Generate the score of a group, or of the groups that share a target."""
    lanes = f"{variant.layout.lanes}" + (" << class_" if variant.kind == "bounds" else "")
    return [f"score = score_{variant.intrinsics}(cells, best)", *_shuffled_maximum("score", "1", lanes)]


def _shuffled_maximum(name: str, first_distance: str, end: str) -> list[str]:
    """Generate the maximum of a variable over lanes at distances that double.

    A loop is compiled faster than the single steps, and becomes these.
    """
    return [
        f"distance = np.int32({first_distance})",
        f"while distance < {end}:",
        f"    {name} = max({name}, shuffle_xor({name}, distance))",
        "    distance = np.int32(distance << 1)",
    ]


def _indent(depth: int, lines: list[str] | str, **values: int) -> str:
    """Indent lines, or a template filled with values, by a number of levels."""
    if isinstance(lines, str):
        lines = lines.format(**values).strip("\n").split("\n")
    return "\n".join(" " * 4 * depth + line if line else "" for line in lines)


def source(variant: Variant) -> str:
    """Generate the Python source of a module with one kernel, `variant.name`, for numba.cuda.

    Its arguments are described at GENERATED_SIGNATURES in kernels.py. It needs `table_bytes` of dynamic
    shared memory, and blocks of whole warps.
    """
    layout, arithmetic, kind = variant.layout, variant.arithmetic, variant.kind
    values = {
        "groups": layout.groups, "last_class": layout.groups.bit_length() - 1,
        "class_words": _CLASS_WORDS,
        "tile": layout.tile, "words": layout.table_bytes // 4,
        "limit": arithmetic.limit, "unbounded": UNBOUNDED,
        "stretches": STRETCHES, "scored": SCORED, "listed": LISTED,
    }  # fmt: skip
    names = sorted({
        f"advance_{variant.intrinsics}", f"score_{variant.intrinsics}", "cut", "permute", "repeated", "row",
        "shared_address", "shuffle_first", "shuffle_up", "shuffle_xor", "unmask",
    })  # fmt: skip
    shared = {"permute", "shuffle_first", "shuffle_up", "shuffle_xor"}
    imports = (
        f"from cuda.alignment.gapless.intrinsics import {', '.join(n for n in names if n not in shared)}\n"
        f"from cuda.alignment.intrinsics import {', '.join(n for n in names if n in shared)}"
    )
    # combines the left neighbour's last column with this lane's middle column. The group's first lane has no
    # neighbour: if a zero score is stored as 0, `permute` fills in the sign bits of a non-negative number
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
    counters, taken, finished, blocks = _COUNTERS[kind == "listed"]
    return f'''"""Generated; see cuda/alignment/gapless/generator.py."""

import numpy as np
from numba import cuda, types

{imports}

no_cells = repeated({layout.pairs}, {arithmetic.zero})
no_best = repeated({_chains(variant)}, {arithmetic.zero})

def {variant.name}(table, residues, offsets, lengths, {_ARGUMENTS[kind]}):
    shared = cuda.shared.array(0, types.int32)
{_indent(1, _LOAD_TABLE[kind == "listed"], **values)}
    cuda.syncthreads()
    lane = np.int32(cuda.threadIdx.x & 31)
    group = np.int32(lane // {layout.lanes})
    first_lane = lane % {layout.lanes} == 0
    last_lane = lane % {layout.lanes} == {layout.lanes - 1}
    selector = np.int32({selector})
    zero_cells = np.int32({arithmetic.zero})
    kept, instead = np.int32(0 if first_lane else -1), np.int32(zero_cells if first_lane else 0)
{_indent(1, _address_lines(layout))}
{_indent(1, _WORK_RANGE[kind], **values)}
    while True:
        taken = np.int32(0)
        if lane == 0:
            taken = cuda.atomic.add({counters}, {taken}, 1)
        taken = shuffle_first(taken)
        length = np.int32(0)
        start = np.uint64(0)
{_indent(2, _TAKE_WORK[kind], **values)}
        # the most residues of any group of the warp
        longest = length
{_indent(2, _shuffled_maximum("longest", str(layout.lanes), str(_WARP)))}
        left = length
        following = np.int32({RESET * 0x01010101})
        if left > 0:
            following = residues[start]
        cells = no_cells()
        best = no_best()
        for step in range(np.int32((longest + 3) >> 2)):
{_indent(3, step_lines)}
{_indent(2, _score_lines(variant))}
        if valid and first_lane:
{_indent(3, _STORE_SCORE[kind], **values)}
    # the last warp to find no work resets the counters
    if lane == 0 and cuda.atomic.add({counters}, {finished}, 1) == {blocks} * cuda.blockDim.x // 32 - 1:
        {counters}[{taken}] = 0
        {counters}[{finished}] = 0
'''
