"""The gradient of the pair bias of gated attention on Hopper GPUs.

A program sums dS over rows for a tile of 128 queries and 128 keys of one head. Four warpgroups recompute dS
of 64 queries and 64 keys each; the bias stays in shared memory. The first group also copies the operands of
later rows to a ring of buffers, because a loading warp would leave too few registers. For the formulas see
`triton_backward_kernels`.
"""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from cuda.fused.attention.hopper_core import (
    LOG2_E,
    LOGITS,
    WIDTH,
    rows_of_tile,
)
from cuda.fused.hopper_tiles import (
    allocate_barriers,
    allocate_buffers,
    load_tile,
    next_stage,
    tile_descriptor,
)
from cuda.fused.launch import program_count

# queries and keys of a program, of a warpgroup, and keys of a product
TILE = gl.constexpr(128)
PART = gl.constexpr(64)
KEYS = gl.constexpr(32)
GROUPS = gl.constexpr(4)
# rows whose operands are in shared memory, and how many rows ahead they are loaded
STAGES = gl.constexpr(4)
AHEAD = gl.constexpr(3)
REGISTERS = gl.constexpr(128)


@gluon.jit
def _load_row(descriptors, buffers, barriers, place, step, INNER: gl.constexpr):
    """Load queries, keys, values and upstream gradients of a row, if it exists, once its buffers are free."""
    projected, upstream = descriptors
    full, empty = barriers
    first_row, count, query, key, channel, length = place
    if step < count:
        stage = step % STAGES
        start = (first_row + step) * length
        loaded = full.index(stage)
        mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
        load_tile(projected, (start + query, channel), loaded, buffers.index(4 * stage))
        load_tile(projected, (start + key, channel + INNER), loaded, buffers.index(4 * stage + 1))
        load_tile(projected, (start + key, channel + 2 * INNER), loaded, buffers.index(4 * stage + 2))
        load_tile(upstream, (start + query, channel), loaded, buffers.index(4 * stage + 3))


@gluon.jit
def _sum_group(GROUP: gl.constexpr, inputs, INNER: gl.constexpr):
    """Sum the gradients of one group's queries and keys over rows and store them."""
    descriptors, buffers, biases, barriers, bias_full, statistics, target, place, scale = inputs
    full, empty = barriers
    maximum, delta, first_position = statistics
    _, count, query, key, _, length = place
    HEADS: gl.constexpr = INNER // WIDTH
    QUERY: gl.constexpr = GROUP // 2
    KEY: gl.constexpr = GROUP % 2
    zeros = gl.zeros([PART, KEYS], gl.float32, LOGITS)
    queries = query + QUERY * PART + gl.arange(0, PART, gl.SliceLayout(1, LOGITS))
    position = first_position + queries
    next_highest, next_offset = gl.load(maximum + position) * LOG2_E, gl.load(delta + position)
    totals = (zeros, zeros)
    stage = 0
    phase = 0
    mbarrier.wait(bias_full, 0)
    for step in range(count):
        if GROUP == 0:
            _load_row(descriptors, buffers, barriers, place, step + AHEAD, INNER)
        highest, offset = next_highest, next_offset
        # loaded a row ahead; those after the last row are not used
        position += gl.where(step + 1 < count, HEADS * length, 0)
        next_highest, next_offset = gl.load(maximum + position) * LOG2_E, gl.load(delta + position)
        mbarrier.wait(full.index(stage), phase)
        left = rows_of_tile(buffers.index(4 * stage), QUERY, PART)
        upstream = rows_of_tile(buffers.index(4 * stage + 3), QUERY, PART)
        new_totals = ()
        for half in gl.static_range(2):
            k = 2 * KEY + half
            right = rows_of_tile(buffers.index(4 * stage + 1), k, KEYS).permute((1, 0))
            value = rows_of_tile(buffers.index(4 * stage + 2), k, KEYS).permute((1, 0))
            logits = warpgroup_mma(left, right, zeros, use_acc=False, is_async=True)
            product = warpgroup_mma(upstream, value, zeros, use_acc=False, is_async=True)
            tile = rows_of_tile(biases.index(k), QUERY, PART)
            shift = tile.load(LOGITS).to(gl.float32) * LOG2_E - highest[:, None]
            logits, product = warpgroup_mma_wait(0, deps=[logits, product])
            weight = gl.exp2(logits * scale + shift)
            new_totals += (totals[half] + weight * (product - offset[:, None]),)
        totals = new_totals
        mbarrier.arrive(empty.index(stage), count=1)
        stage, phase = next_stage(stage, phase, STAGES)
    for half in gl.static_range(2):
        keys = key + (2 * KEY + half) * KEYS + gl.arange(0, KEYS, gl.SliceLayout(0, LOGITS))
        gl.store(target + (queries * length)[:, None] + keys[None, :], totals[half])


@gluon.jit(do_not_specialize=["rows", "part_rows", "parts", "length"])
def bias_gradient_kernel(
    projected, upstream, bias, maximum, delta, sums, rows, part_rows, parts, length, scale,
    HEADS: gl.constexpr,
):  # fmt: skip
    """Write the sums of dS over part_rows of the rows that share the bias.

    Descriptors: projected [M*L, 4*H*D] and upstream [M*L, H*D] in tiles [TILE, WIDTH], bias [S*H*L, L] in
    tiles [TILE, KEYS]. maximum and delta are [M, H, L]; rows is M / S; sums [parts, S, H, L, L] float32. The
    grid is S * parts * H * (L / TILE)². The scale includes log2 e.
    """
    INNER: gl.constexpr = HEADS * WIDTH
    blocks = length // TILE
    program = gl.program_id(0)
    tile = program % (blocks * blocks)
    rest = program // (blocks * blocks)
    head = rest % HEADS
    part = rest // HEADS % parts
    batch = rest // HEADS // parts
    query = tile // blocks * TILE
    key = tile % blocks * TILE
    buffers = allocate_buffers(projected, 4 * STAGES)
    biases = allocate_buffers(bias, TILE // KEYS)
    full, empty = allocate_barriers(STAGES, 4), allocate_barriers(STAGES, GROUPS)
    bias_full = allocate_barriers(1, TILE // KEYS)
    fence_async_shared()
    for k in gl.static_range(TILE // KEYS):
        start = ((batch * HEADS + head) * length + query, key + k * KEYS)
        load_tile(bias, start, bias_full.index(0), biases.index(k))
    first = part * part_rows
    first_row = batch * rows + first
    place = (first_row, gl.minimum(part_rows, rows - first), query, key, head * WIDTH, length)
    descriptors, barriers = (projected, upstream), (full, empty)
    for step in gl.static_range(AHEAD):
        _load_row(descriptors, buffers, barriers, place, step, INNER)
    statistics = (maximum, delta, (first_row * HEADS + head) * length)
    groups = gl.num_programs(0) // (blocks * blocks * parts)
    target = sums + (part * groups + batch * HEADS + head).to(gl.int64) * length * length
    inputs = (
        descriptors, buffers, biases, barriers, bias_full.index(0), statistics, target, place, scale,
    )  # fmt: skip
    gl.warp_specialize(
        [
            (_sum_group, (0, inputs, INNER)),
            (_sum_group, (1, inputs, INNER)),
            (_sum_group, (2, inputs, INNER)),
            (_sum_group, (3, inputs, INNER)),
        ],
        [4, 4, 4],
        [REGISTERS, REGISTERS, REGISTERS],
    )


def sum_bias_gradients(
    projected: torch.Tensor,
    scaled: torch.Tensor,
    maximum: torch.Tensor,
    delta: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    """Compute dB, summed over the rows that share it.

    Args:
        projected: [M, L, 4*H*D] bfloat16 with D = 32, contiguous; L is a multiple of 128.
        scaled: [M, L, H*D], dO'.
        maximum: [M, H, L] float32.
        delta: [M, H, L] float32, δ'.
        bias: [S, H, L, L], contiguous, for M / S rows each.

    Returns:
        [S, H, L, L] float32.
    """
    batch, heads, length, _ = bias.shape
    rows = len(projected) // batch
    groups = batch * heads * (length // TILE.value) ** 2
    part_rows = triton.cdiv(rows, max(1, program_count(projected, groups * rows, 1) // groups))
    parts = triton.cdiv(rows, part_rows)
    sums = delta.new_empty(parts, *bias.shape)
    tile = (TILE.value, WIDTH.value)
    bias_gradient_kernel[(groups * parts,)](
        tile_descriptor(projected.flatten(0, 1), *tile),
        tile_descriptor(scaled.flatten(0, 1), *tile),
        tile_descriptor(bias.view(-1, length), TILE.value, KEYS.value),
        maximum,
        delta,
        sums,
        rows,
        part_rows,
        parts,
        length,
        WIDTH.value**-0.5 * LOG2_E.value,
        HEADS=heads,
        num_warps=4,
        maxnreg=REGISTERS.value,
    )
    return sums[0] if parts == 1 else sums.sum(0)
