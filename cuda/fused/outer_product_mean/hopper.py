"""The outer products and their contraction on Hopper's tensor cores, without outer products in memory.

A tile of pairs is 64 residues i × 4 residues j, and a program goes through the left factor's channels c one
by one. For one c the sums over sequences of a_ic ⊗ b_j are a matrix [64 i, e] for each j, which lies in
registers just as the next product takes its left operand: rounded to the tensors' dtype it is multiplied with
the output weights [e, Z] of that c there and then. So the right factor's columns of the tile stay in shared
memory, the left factor streams by, and the output weights are read once for 256 pairs.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

I, J, INNER, PAIR = 64, 4, 32, 128
SEQUENCES = 128
RESIDENT = 512


@gluon.jit
def _tile(job, length, GROUP: gl.constexpr):
    """First i and first j of a tile; tiles of GROUP blocks of i follow on each other over all j."""
    tiles_i = gl.cdiv(length, 64)
    tiles_j = gl.cdiv(length, 4)
    group = job // (GROUP * tiles_j)
    size = gl.minimum(tiles_i - group * GROUP, GROUP)
    within = job - group * (GROUP * tiles_j)
    return (group * GROUP + within % size) * 64, (within // size) * 4


@gluon.jit
def _load(
    left, right, weights, lefts, rights, outputs, left_full, left_empty, right_full, right_empty,
    output_full, output_empty, sequences, length, jobs, GROUP: gl.constexpr,
):
    STAGES: gl.constexpr = lefts.shape[0]
    BLOCK: gl.constexpr = lefts.shape[1]
    chunks = gl.cdiv(sequences, BLOCK)
    stage = 0
    stage_phase = 1
    output = 0
    output_phase = 1
    right_phase = 1
    for job in range(gl.program_id(0), jobs, gl.num_programs(0)):
        i, j = _tile(job, length, GROUP)
        for c in range(32):
            for k in range(chunks):
                if c == 0:
                    mbarrier.wait(right_empty.index(k), right_phase)
                    mbarrier.expect(right_full.index(k), 2 * BLOCK * 64 * 2)
                    tma.async_copy_global_to_shared(right, [k * BLOCK, j * 32], right_full.index(k), rights.index(2 * k))
                    tma.async_copy_global_to_shared(right, [k * BLOCK, j * 32 + 64], right_full.index(k), rights.index(2 * k + 1))
                mbarrier.wait(left_empty.index(stage), stage_phase)
                mbarrier.expect(left_full.index(stage), BLOCK * 64 * 2)
                tma.async_copy_global_to_shared(left, [k * BLOCK, c * length + i], left_full.index(stage), lefts.index(stage))
                stage += 1
                if stage == STAGES:
                    stage = 0
                    stage_phase ^= 1
            mbarrier.wait(output_empty.index(output), output_phase)
            mbarrier.expect(output_full.index(output), 32 * 128 * 2)
            tma.async_copy_global_to_shared(weights, [c * 32, 0], output_full.index(output), outputs.index(output))
            output += 1
            if output == outputs.shape[0]:
                output = 0
                output_phase ^= 1
        right_phase ^= 1


@gluon.jit
def _store(update, bias, counts, share, result, i, j, length, ADD: gl.constexpr, LAYOUT: gl.constexpr):
    """Divide and write, or add, what belongs to 64 residues i and residue j."""
    update = gl.convert_layout(update, LAYOUT)
    rows = i + gl.arange(0, 64, gl.SliceLayout(1, LAYOUT))
    columns = gl.arange(0, 128, gl.SliceLayout(0, LAYOUT))
    real = (rows < length) & (j < length)
    cells = rows.to(gl.int64) * length + j
    update += gl.load(bias + columns).to(gl.float32)[None, :]
    if counts is not None:
        update /= gl.load(counts + cells, mask=real, other=1.0)[:, None]
    else:
        update *= share
    target = result + cells[:, None] * 128 + columns[None, :]
    present = real[:, None] & (columns < 128)[None, :]
    if ADD:
        update += gl.load(target, mask=present, other=0.0).to(gl.float32)
    gl.store(target, update.to(result.dtype.element_ty), mask=present)


@gluon.jit
def _consume(
    WHICH: gl.constexpr, lefts, rights, outputs, left_full, left_empty, right_full, right_empty,
    output_full, output_empty, bias, counts, share, result, sequences, length, jobs,
    GROUP: gl.constexpr, ADD: gl.constexpr, DEFER: gl.constexpr,
):
    STAGES: gl.constexpr = lefts.shape[0]
    BLOCK: gl.constexpr = lefts.shape[1]
    dtype: gl.constexpr = lefts.dtype
    OUTER: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    UPDATE: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, UPDATE, 2)
    # eight channels a thread
    STORED: gl.constexpr = gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4], [0, 32], [0, 64], [8, 0]],
        [[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0]], [], [64, 128])
    chunks = gl.cdiv(sequences, BLOCK)
    stage = 0
    stage_phase = 0
    output = 0
    output_phase = 0
    right_phase = 0
    used = 0
    for job in range(gl.program_id(0), jobs, gl.num_programs(0)):
        first = gl.zeros([64, 128], gl.float32, UPDATE)
        second = gl.zeros([64, 128], gl.float32, UPDATE)
        outer = gl.zeros([64, 64], gl.float32, OUTER)
        for c in range(32):
            mbarrier.wait(right_full.index(0), right_phase, pred=c == 0)
            mbarrier.wait(left_full.index(stage), stage_phase)
            outer = warpgroup_mma(lefts.index(stage).permute((1, 0)), rights.index(WHICH), outer, use_acc=False, is_async=True)
            if DEFER:
                outer, first, second = warpgroup_mma_wait(1, deps=[outer, first, second])
                if c > 0:
                    mbarrier.arrive(output_empty.index(used))
            else:
                outer = warpgroup_mma_wait(1, deps=[outer])
            held = stage
            stage += 1
            if stage == STAGES:
                stage = 0
                stage_phase ^= 1
            for k in range(1, chunks):
                mbarrier.wait(right_full.index(k), right_phase, pred=c == 0)
                mbarrier.wait(left_full.index(stage), stage_phase)
                outer = warpgroup_mma(lefts.index(stage).permute((1, 0)), rights.index(2 * k + WHICH), outer, is_async=True)
                outer = warpgroup_mma_wait(1, deps=[outer])
                mbarrier.arrive(left_empty.index(held))
                if c == 31:
                    mbarrier.arrive(right_empty.index(k - 1))
                held = stage
                stage += 1
                if stage == STAGES:
                    stage = 0
                    stage_phase ^= 1
            outer = warpgroup_mma_wait(0, deps=[outer])
            mbarrier.arrive(left_empty.index(held))
            if c == 31:
                mbarrier.arrive(right_empty.index(chunks - 1))
            one, two = outer.to(dtype).reshape([64, 2, 32]).permute((0, 2, 1)).split()
            one = gl.convert_layout(one, OPERAND)
            two = gl.convert_layout(two, OPERAND)
            mbarrier.wait(output_full.index(output), output_phase)
            first = warpgroup_mma(one, outputs.index(output), first, is_async=True)
            second = warpgroup_mma(two, outputs.index(output), second, is_async=True)
            if DEFER:
                first, second, one, two = warpgroup_mma_wait(2, deps=[first, second, one, two])
            else:
                first, second, one, two = warpgroup_mma_wait(0, deps=[first, second, one, two])
                mbarrier.arrive(output_empty.index(output))
            used = output
            output += 1
            if output == outputs.shape[0]:
                output = 0
                output_phase ^= 1
        if DEFER:
            first, second = warpgroup_mma_wait(0, deps=[first, second])
            mbarrier.arrive(output_empty.index(used))
        right_phase ^= 1
        i, j = _tile(job, length, GROUP)
        j += 2 * WHICH
        _store(first, bias, counts, share, result, i, j, length, ADD, STORED)
        _store(second, bias, counts, share, result, i, j + 1, length, ADD, STORED)


@gluon.jit(do_not_specialize=["sequences", "length", "jobs"])
def outer_kernel(
    left, right, weights, bias, counts, share, result, sequences, length, jobs,
    GROUP: gl.constexpr, ADD: gl.constexpr, STAGES: gl.constexpr, CHUNKS: gl.constexpr, REGISTERS: gl.constexpr,
    DEFER: gl.constexpr, OUTPUTS: gl.constexpr,
):
    BLOCK: gl.constexpr = left.block_type.shape[0]
    lefts = gl.allocate_shared_memory(left.dtype, [STAGES, BLOCK, 64], left.layout)
    rights = gl.allocate_shared_memory(left.dtype, [2 * CHUNKS, BLOCK, 64], right.layout)
    outputs = gl.allocate_shared_memory(left.dtype, [OUTPUTS, 32, 128], weights.layout)
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    left_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    left_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    right_full = gl.allocate_shared_memory(gl.int64, [CHUNKS, 1], BARRIER)
    right_empty = gl.allocate_shared_memory(gl.int64, [CHUNKS, 1], BARRIER)
    output_full = gl.allocate_shared_memory(gl.int64, [OUTPUTS, 1], BARRIER)
    output_empty = gl.allocate_shared_memory(gl.int64, [OUTPUTS, 1], BARRIER)
    for k in gl.static_range(STAGES):
        mbarrier.init(left_full.index(k), 1)
        mbarrier.init(left_empty.index(k), 2)
    for k in gl.static_range(CHUNKS):
        mbarrier.init(right_full.index(k), 1)
        mbarrier.init(right_empty.index(k), 2)
    for k in gl.static_range(OUTPUTS):
        mbarrier.init(output_full.index(k), 1)
        mbarrier.init(output_empty.index(k), 2)
    fence_async_shared()
    gl.warp_specialize(
        [
            (_consume, (0, lefts, rights, outputs, left_full, left_empty, right_full, right_empty,
                        output_full, output_empty, bias, counts, share, result, sequences, length, jobs,
                        GROUP, ADD, DEFER)),
            (_consume, (1, lefts, rights, outputs, left_full, left_empty, right_full, right_empty,
                        output_full, output_empty, bias, counts, share, result, sequences, length, jobs,
                        GROUP, ADD, DEFER)),
            (_load, (left, right, weights, lefts, rights, outputs, left_full, left_empty, right_full, right_empty,
                     output_full, output_empty, sequences, length, jobs, GROUP)),
        ],
        [4, 1],
        [REGISTERS, 24],
    )


def suits(sequences, inner, pair):
    return sequences <= RESIDENT and inner == INNER and pair == PAIR


OPTIONS = dict(BLOCK=128, STAGES=5, OUTPUTS=1, DEFER=False, GROUP=8)


def add_outer_products(left, right, output, output_bias, counts, result, added, share, options=None):
    """left [S, E * N], right [S, N * E]; the update is written to result [N, N, Z], or added to it."""
    o = dict(OPTIONS, **(options or {}))
    sequences = left.shape[0]
    length = result.shape[0]
    jobs = -(-length // I) * -(-length // J)
    block = o.pop("BLOCK")
    dtype = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}[left.dtype]
    tile = gl.NVMMASharedLayout.get_default_for([block, 64], dtype)
    weights = gl.NVMMASharedLayout.get_default_for([INNER, PAIR], dtype)
    count = min(jobs, torch.cuda.get_device_properties(left.device).multi_processor_count)
    outer_kernel[(count,)](
        TensorDescriptor.from_tensor(left, [block, 64], tile),
        TensorDescriptor.from_tensor(right, [block, 64], tile),
        TensorDescriptor.from_tensor(output, [INNER, PAIR], weights),
        output_bias, counts, share, result, sequences, length, jobs,
        ADD=added, CHUNKS=RESIDENT // block, REGISTERS=240, num_warps=4, **o)
