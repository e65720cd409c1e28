"""Triton kernels of the backward pass of gated attention on projected inputs; logits are never in memory.

Softmax weights are recomputed from queries, keys, bias and two numbers per query that the forward pass saved:
the logit m that the weights are relative to, and the sum t of the weights. With P = exp(s − m) and
dO' = dO / t the gradients are

    dV = Pᵀ dO'    dS = P ⊙ (dO' Vᵀ − δ')    dQ = scale · dS K    dK = scale · dSᵀ Q    dB = Σ_rows dS

where δ' = Σ_channels dO' ⊙ O, so no logit is divided. One kernel computes dO', δ' and the gradient of the
gates. The others compute dK and dV of a block of keys, dQ of a block of queries, and dB of a tile. The last
loops over rows that share the bias; partial sums are added up afterwards, so that the result does not depend
on the order of execution. If its tile covers all keys, it computes dQ too, and if it covers all queries, dK
and dV. For rows whose keys fit in a program, another kernel computes dQ, dK and dV from the same weights.
"""

import triton
import triton.language as tl

from cuda.fused.attention.triton_core import LOG2_E, MASK_PENALTY
from cuda.fused.rows import sigmoid


@triton.jit
def prepare_gradient(
    gradient, projected, gating_bias, gated, maximum, total, scaled, delta, projected_gradient, partial_sums,
    count, length, HEADS: tl.constexpr, WIDTH: tl.constexpr, BLOCK_HEADS: tl.constexpr,
    POSITIONS: tl.constexpr,
):  # fmt: skip
    """Write dO', δ' and the gradient of the gates of POSITIONS positions, and the sum of the last.

    gradient, gated and scaled are [M, L, H*D]; projected and its gradient [M, L, 4*H*D]; delta [M, H, L].
    """
    inner: tl.constexpr = HEADS * WIDTH
    # offsets from the program's first position fit in 32 bits
    first = tl.program_id(0).to(tl.int64) * POSITIONS
    local = tl.arange(0, POSITIONS)
    head = tl.arange(0, BLOCK_HEADS)
    channel = head[None, :, None] * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    mask_2d = (first + local < count)[:, None] & (head < HEADS)[None, :]
    mask = mask_2d[:, :, None] & (channel < inner)
    offsets = local[:, None, None] * inner + channel
    gate_offsets = local[:, None, None] * (4 * inner) + channel
    gradient += first * inner
    gated += first * inner
    scaled += first * inner
    projected += first * (4 * inner) + 3 * inner
    projected_gradient += first * (4 * inner) + 3 * inner
    gate_bias = tl.load(gating_bias + channel, mask=channel < inner, other=0.0).to(tl.float32)
    gate = sigmoid(tl.load(projected + gate_offsets, mask=mask, other=0.0).to(tl.float32) + gate_bias)
    upstream = tl.load(gradient + offsets, mask=mask, other=0.0).to(tl.float32)
    result = tl.load(gated + offsets, mask=mask, other=0.0).to(tl.float32)
    gate_gradient = upstream * result * (1.0 - gate)
    tl.store(
        projected_gradient + gate_offsets, gate_gradient.to(projected_gradient.dtype.element_ty), mask=mask
    )
    sums = tl.sum(gate_gradient, 0)[None]  # [1, BLOCK_HEADS, WIDTH]
    tl.store(partial_sums + tl.program_id(0) * inner + channel, sums, mask=channel < inner)
    position = first + local
    row = position // length
    statistics = (row[:, None] * HEADS + head[None, :]) * length + (position - row * length)[:, None]
    inverse = 1.0 / tl.load(total + statistics, mask=mask_2d, other=1.0)  # [POSITIONS, BLOCK_HEADS]
    rounded = (upstream * gate * inverse[:, :, None]).to(scaled.dtype.element_ty)
    tl.store(scaled + offsets, rounded, mask=mask)
    # from the rounded dO', so that its error cancels in dO' Vᵀ − δ'
    attended = tl.where(gate > 0.0, result / gate, 0.0)
    tl.store(delta + statistics, tl.sum(rounded.to(tl.float32) * attended, 2), mask=mask_2d)


@triton.jit
def _load_head(base, position, stride, real, WIDTH: tl.constexpr, PADDED: tl.constexpr, MASKED: tl.constexpr):
    """Load one head's channels of positions [positions, PADDED], 0 where not real if MASKED."""
    channel = tl.arange(0, PADDED)
    pointers = base + position[:, None] * stride + channel[None, :]
    if MASKED:
        return tl.load(pointers, mask=real[:, None] & (channel < WIDTH)[None, :], other=0.0)
    if PADDED == WIDTH:
        return tl.load(pointers)
    return tl.load(pointers, mask=(channel < WIDTH)[None, :], other=0.0)


@triton.jit
def _load_query(base, position, stride, real, WIDTH: tl.constexpr, PADDED: tl.constexpr, EDGE: tl.constexpr):
    """Load queries, scaled and rounded as in the forward pass, which scales float32 products instead."""
    query = _load_head(base, position, stride, real, WIDTH, PADDED, EDGE)
    if query.dtype == tl.float32:
        return query
    return (query.to(tl.float32) * WIDTH**-0.5).to(query.dtype)


@triton.jit
def _key_penalty(mask, mask_row, mask_position, position, real, exponent_scale, EDGE: tl.constexpr):
    """Return what is added to the exponents of keys, in base 2: 0, a mask's penalty, or -inf if not real."""
    penalty = tl.zeros(position.shape, tl.float32)
    if mask is not None:
        keep = tl.load(mask + mask_row + position * mask_position, mask=real, other=0.0)
        penalty = (keep.to(tl.float32) - 1.0) * MASK_PENALTY * exponent_scale
    if EDGE:
        penalty = tl.where(real, penalty, float("-inf"))
    return penalty


@triton.jit
def _exponent_scale(maximum, mask):
    """Return the factor of the exponents of a row and head: log₂ e, or 0 if all keys are masked.

    Then float32 logits have lost their digits, and all keys have the same weight. `maximum` points to the
    statistics of the row and head.
    """
    scale = LOG2_E
    if mask is not None:
        scale = tl.where(tl.load(maximum) < -0.5 * MASK_PENALTY, 0.0, LOG2_E)
    return scale


@triton.jit
def _load_statistics(maximum, delta, position, real, EDGE: tl.constexpr):
    """Return the logits that weights of queries are relative to, and δ' (0 where not real)."""
    if EDGE:
        highest = tl.load(maximum + position, mask=real, other=0.0)
        return highest, tl.load(delta + position, mask=real, other=0.0)
    return tl.load(maximum + position), tl.load(delta + position)


@triton.jit
def _weights(
    left, right, bias, penalty, highest, exponent_scale, WIDTH: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """Return exp(s − m) of a tile of logits s = left right + bias; left and right are from `_load_query`.

    bias and penalty may be None; penalty and highest have the tile's shape, or 1 along one axis.
    """
    if left.dtype == tl.float32:
        # the same operations as in the forward pass, as large logits must round to the same numbers
        logits = tl.dot(left, right, input_precision=PRECISION) * WIDTH**-0.5
        if bias is not None:
            logits += bias
        exponents = (logits - highest) * exponent_scale
        if penalty is not None:
            exponents += penalty
    else:
        logits = tl.dot(left, right, bias, input_precision=PRECISION)
        if penalty is not None:
            exponents = logits * exponent_scale + (penalty - highest * exponent_scale)
        else:
            exponents = logits * exponent_scale - highest * exponent_scale
    return tl.exp2(exponents)


@triton.jit
def _own_block(length, HEADS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the positions, row and head of this program, one of those for each block of positions.

    Heads vary faster than rows, as those of a position are adjacent in memory.
    """
    blocks = tl.cdiv(length, BLOCK)
    index = tl.program_id(0)
    position = index % blocks * BLOCK + tl.arange(0, BLOCK)
    index //= blocks
    return position, (index // HEADS).to(tl.int64), index % HEADS


@triton.jit
def key_gradients(
    projected, scaled, maximum, delta, mask, mask_row, mask_position, pair_bias, bias_batch, bias_head,
    bias_query, projected_gradient, length, bias_rows, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    PADDED: tl.constexpr, EDGE: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write dK and dV of one block of keys of one head and row; tiles are [keys, queries]."""
    position, row, head = _own_block(length, HEADS, KEYS)
    inner: tl.constexpr = HEADS * WIDTH
    real = position < length
    start = row * length
    base = projected + start * (4 * inner) + head * WIDTH
    key = _load_head(base + inner, position, 4 * inner, real, WIDTH, PADDED, EDGE)
    value = _load_head(base + 2 * inner, position, 4 * inner, real, WIDTH, PADDED, EDGE)
    scaled += start * inner + head * WIDTH
    statistics = (row * HEADS + head) * length
    exponent_scale = _exponent_scale(maximum + statistics, mask)
    penalty = None
    if mask is not None or EDGE:
        penalty = _key_penalty(
            mask, row * mask_row, mask_position, position, real, exponent_scale, EDGE
        )[:, None]  # fmt: skip
    if pair_bias is not None:
        pair_bias += row // bias_rows * bias_batch + head.to(tl.int64) * bias_head
    key_gradient = tl.zeros([KEYS, PADDED], tl.float32)
    value_gradient = tl.zeros([KEYS, PADDED], tl.float32)
    for first in tl.range(0, length, QUERIES, num_stages=STAGES):
        queries = first + tl.arange(0, QUERIES)
        real_queries = queries < length
        query = _load_query(base, queries, 4 * inner, real_queries, WIDTH, PADDED, EDGE)
        upstream = _load_head(scaled, queries, inner, real_queries, WIDTH, PADDED, EDGE)
        highest, offset = _load_statistics(
            maximum + statistics, delta + statistics, queries, real_queries, EDGE
        )
        bias = None
        if pair_bias is not None:
            pointers = pair_bias + (queries[None, :] * bias_query + position[:, None])
            if EDGE:
                bias = tl.load(pointers, mask=real_queries[None, :] & real[:, None], other=0.0).to(tl.float32)
            else:
                bias = tl.load(pointers).to(tl.float32)
        weight = _weights(key, query.T, bias, penalty, highest[None, :], exponent_scale, WIDTH, PRECISION)
        value_gradient = tl.dot(
            weight.to(upstream.dtype), upstream, value_gradient, input_precision=PRECISION
        )
        logit_gradient = weight * (tl.dot(value, upstream.T, input_precision=PRECISION) - offset[None, :])
        key_gradient = tl.dot(logit_gradient.to(query.dtype), query, key_gradient, input_precision=PRECISION)
    if key.dtype == tl.float32:
        key_gradient *= WIDTH**-0.5
    channel = tl.arange(0, PADDED)
    out = projected_gradient + start * (4 * inner) + inner + head * WIDTH
    out += position[:, None] * (4 * inner) + channel[None, :]
    stored = real[:, None] & (channel < WIDTH)[None, :]
    tl.store(out, key_gradient.to(projected_gradient.dtype.element_ty), mask=stored)
    tl.store(out + inner, value_gradient.to(projected_gradient.dtype.element_ty), mask=stored)


@triton.jit
def row_gradients(
    projected, scaled, maximum, delta, mask, mask_row, mask_position, pair_bias, bias_batch, bias_head,
    bias_key, projected_gradient, length, bias_rows, HEADS: tl.constexpr,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, EDGE: tl.constexpr, BLOCKS: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write dQ, dK and dV of one head and row, whose keys are in BLOCKS blocks; tiles are [keys, queries].

    pair_bias is transposed, with queries last.
    """
    head = tl.program_id(0) % HEADS
    row = (tl.program_id(0) // HEADS).to(tl.int64)
    inner: tl.constexpr = HEADS * WIDTH
    start = row * length
    base = projected + start * (4 * inner) + head * WIDTH
    scaled += start * inner + head * WIDTH
    statistics = (row * HEADS + head) * length
    exponent_scale = _exponent_scale(maximum + statistics, mask)
    if pair_bias is not None:
        pair_bias += row // bias_rows * bias_batch + head.to(tl.int64) * bias_head
    keys = ()
    values = ()
    penalties = ()
    key_gradients = ()
    value_gradients = ()
    for k in tl.static_range(BLOCKS):
        position = k * KEYS + tl.arange(0, KEYS)
        real = position < length
        keys += (_load_head(base + inner, position, 4 * inner, real, WIDTH, PADDED, EDGE),)
        values += (_load_head(base + 2 * inner, position, 4 * inner, real, WIDTH, PADDED, EDGE),)
        # a tuple of a kernel cannot contain None
        penalty = _key_penalty(mask, row * mask_row, mask_position, position, real, exponent_scale, EDGE)
        penalties += (penalty[:, None],)
        key_gradients += (tl.zeros([KEYS, PADDED], tl.float32),)
        value_gradients += (tl.zeros([KEYS, PADDED], tl.float32),)
    channel = tl.arange(0, PADDED)
    out = projected_gradient + start * (4 * inner) + head * WIDTH + channel[None, :]
    for first in tl.range(0, length, QUERIES, num_stages=STAGES):
        queries = first + tl.arange(0, QUERIES)
        real_queries = queries < length
        query = _load_query(base, queries, 4 * inner, real_queries, WIDTH, PADDED, EDGE)
        upstream = _load_head(scaled, queries, inner, real_queries, WIDTH, PADDED, EDGE)
        highest, offset = _load_statistics(
            maximum + statistics, delta + statistics, queries, real_queries, EDGE
        )
        query_gradient = tl.zeros([QUERIES, PADDED], tl.float32)
        new_key_gradients = ()
        new_value_gradients = ()
        for k in tl.static_range(BLOCKS):
            bias = None
            if pair_bias is not None:
                position = k * KEYS + tl.arange(0, KEYS)
                pointers = pair_bias + (position[:, None] * bias_key + queries[None, :])
                if EDGE:
                    inside = real_queries[None, :] & (position < length)[:, None]
                    bias = tl.load(pointers, mask=inside, other=0.0).to(tl.float32)
                else:
                    bias = tl.load(pointers).to(tl.float32)
            weight = _weights(
                keys[k], query.T, bias, penalties[k], highest[None, :], exponent_scale, WIDTH, PRECISION
            )
            narrow = weight.to(upstream.dtype)
            new_value_gradients += (tl.dot(narrow, upstream, value_gradients[k], input_precision=PRECISION),)
            product = tl.dot(values[k], upstream.T, input_precision=PRECISION)
            narrow = (weight * (product - offset[None, :])).to(query.dtype)
            new_key_gradients += (tl.dot(narrow, query, key_gradients[k], input_precision=PRECISION),)
            query_gradient = tl.dot(narrow.T, keys[k], query_gradient, input_precision=PRECISION)
        key_gradients = new_key_gradients
        value_gradients = new_value_gradients
        tl.store(
            out + queries[:, None] * (4 * inner),
            (query_gradient * WIDTH**-0.5).to(projected_gradient.dtype.element_ty),
            mask=real_queries[:, None] & (channel < WIDTH)[None, :],
        )
    for k in tl.static_range(BLOCKS):
        position = k * KEYS + tl.arange(0, KEYS)
        target = out + inner + position[:, None] * (4 * inner)
        stored = (position < length)[:, None] & (channel < WIDTH)[None, :]
        key_gradient = key_gradients[k]
        if keys[k].dtype == tl.float32:
            key_gradient *= WIDTH**-0.5
        tl.store(target, key_gradient.to(projected_gradient.dtype.element_ty), mask=stored)
        tl.store(target + inner, value_gradients[k].to(projected_gradient.dtype.element_ty), mask=stored)


@triton.jit
def query_gradients(
    projected, scaled, maximum, delta, mask, mask_row, mask_position, pair_bias, bias_batch, bias_head,
    bias_query, projected_gradient, length, bias_rows, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    PADDED: tl.constexpr, EDGE: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write dQ of one block of queries of one head and row; tiles are [queries, keys]."""
    queries, row, head = _own_block(length, HEADS, QUERIES)
    inner: tl.constexpr = HEADS * WIDTH
    real = queries < length
    start = row * length
    base = projected + start * (4 * inner) + head * WIDTH
    query = _load_query(base, queries, 4 * inner, real, WIDTH, PADDED, EDGE)
    scaled += start * inner + head * WIDTH
    upstream = _load_head(scaled, queries, inner, real, WIDTH, PADDED, EDGE)
    statistics = (row * HEADS + head) * length
    exponent_scale = _exponent_scale(maximum + statistics, mask)
    highest, offset = _load_statistics(maximum + statistics, delta + statistics, queries, real, EDGE)
    if pair_bias is not None:
        pair_bias += row // bias_rows * bias_batch + head.to(tl.int64) * bias_head
    query_gradient = tl.zeros([QUERIES, PADDED], tl.float32)
    for first in tl.range(0, length, KEYS, num_stages=STAGES):
        position = first + tl.arange(0, KEYS)
        real_keys = position < length
        key = _load_head(base + inner, position, 4 * inner, real_keys, WIDTH, PADDED, EDGE)
        value = _load_head(base + 2 * inner, position, 4 * inner, real_keys, WIDTH, PADDED, EDGE)
        bias = None
        if pair_bias is not None:
            pointers = pair_bias + (queries[:, None] * bias_query + position[None, :])
            if EDGE:
                bias = tl.load(pointers, mask=real[:, None] & real_keys[None, :], other=0.0).to(tl.float32)
            else:
                bias = tl.load(pointers).to(tl.float32)
        penalty = None
        if mask is not None or EDGE:
            penalty = _key_penalty(
                mask, row * mask_row, mask_position, position, real_keys, exponent_scale, EDGE
            )[None, :]  # fmt: skip
        weight = _weights(query, key.T, bias, penalty, highest[:, None], exponent_scale, WIDTH, PRECISION)
        logit_gradient = weight * (tl.dot(upstream, value.T, input_precision=PRECISION) - offset[:, None])
        query_gradient = tl.dot(logit_gradient.to(key.dtype), key, query_gradient, input_precision=PRECISION)
    channel = tl.arange(0, PADDED)
    out = projected_gradient + start * (4 * inner) + head * WIDTH
    out += queries[:, None] * (4 * inner) + channel[None, :]
    tl.store(
        out,
        (query_gradient * WIDTH**-0.5).to(projected_gradient.dtype.element_ty),
        mask=real[:, None] & (channel < WIDTH)[None, :],
    )


@triton.jit(do_not_specialize=["part_rows", "bias_rows"])
def tile_gradients(
    projected, scaled, maximum, delta, mask, mask_row, mask_position, pair_bias, bias_batch, bias_head,
    bias_query, projected_gradient, bias_gradient, part_size, part_rows, length, bias_rows,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, EDGE: tl.constexpr,
    ALL_KEYS: tl.constexpr, ALL_QUERIES: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write dB of one tile of one head, summed over part_rows of the bias_rows rows that share the bias.

    ALL_KEYS: the tile covers all keys; write dQ. ALL_QUERIES: it covers all queries; write dK and dV. The
    grid is (tiles, S * H, parts), and bias_gradient [parts, S, H, L, L] float32; part_size is S * H * L * L.
    """
    blocks = tl.cdiv(length, KEYS)
    queries = tl.program_id(0) // blocks * QUERIES + tl.arange(0, QUERIES)
    position = tl.program_id(0) % blocks * KEYS + tl.arange(0, KEYS)
    batch = tl.program_id(1) // HEADS
    head = tl.program_id(1) % HEADS
    part = tl.program_id(2)
    inner: tl.constexpr = HEADS * WIDTH
    channel = tl.arange(0, PADDED)
    real = queries < length
    real_keys = position < length
    if pair_bias is not None:
        pair_bias += batch.to(tl.int64) * bias_batch + head.to(tl.int64) * bias_head
    total_gradient = tl.zeros([QUERIES, KEYS], tl.float32)
    first_row = part * part_rows
    last_row = tl.minimum(first_row + part_rows, bias_rows)
    for local_row in tl.range(first_row, last_row, num_stages=STAGES):
        row = batch.to(tl.int64) * bias_rows + local_row
        start = row * length
        base = projected + start * (4 * inner) + head * WIDTH
        query = _load_query(base, queries, 4 * inner, real, WIDTH, PADDED, EDGE)
        key = _load_head(base + inner, position, 4 * inner, real_keys, WIDTH, PADDED, EDGE)
        value = _load_head(base + 2 * inner, position, 4 * inner, real_keys, WIDTH, PADDED, EDGE)
        upstream = _load_head(
            scaled + start * inner + head * WIDTH, queries, inner, real, WIDTH, PADDED, EDGE
        )
        statistics = (row * HEADS + head) * length
        exponent_scale = _exponent_scale(maximum + statistics, mask)
        highest, offset = _load_statistics(maximum + statistics, delta + statistics, queries, real, EDGE)
        bias = None
        if pair_bias is not None:
            # loaded for each row, because keeping the tile would take registers
            pointers = pair_bias + (queries[:, None] * bias_query + position[None, :])
            if EDGE:
                bias = tl.load(pointers, mask=real[:, None] & real_keys[None, :], other=0.0).to(tl.float32)
            else:
                bias = tl.load(pointers).to(tl.float32)
        penalty = None
        if mask is not None or EDGE:
            penalty = _key_penalty(
                mask, row * mask_row, mask_position, position, real_keys, exponent_scale, EDGE
            )[None, :]  # fmt: skip
        weight = _weights(query, key.T, bias, penalty, highest[:, None], exponent_scale, WIDTH, PRECISION)
        logit_gradient = weight * (tl.dot(upstream, value.T, input_precision=PRECISION) - offset[:, None])
        if pair_bias is not None:
            total_gradient += logit_gradient
        out = projected_gradient + start * (4 * inner) + head * WIDTH + channel[None, :]
        narrow = logit_gradient.to(query.dtype)
        if ALL_KEYS:
            query_gradient = tl.dot(narrow, key, input_precision=PRECISION) * WIDTH**-0.5
            tl.store(
                out + queries[:, None] * (4 * inner),
                query_gradient.to(projected_gradient.dtype.element_ty),
                mask=real[:, None] & (channel < WIDTH)[None, :],
            )
        if ALL_QUERIES:
            stored = real_keys[:, None] & (channel < WIDTH)[None, :]
            out += position[:, None] * (4 * inner) + inner
            key_gradient = tl.dot(narrow.T, query, input_precision=PRECISION)
            if query.dtype == tl.float32:
                key_gradient *= WIDTH**-0.5
            tl.store(out, key_gradient.to(projected_gradient.dtype.element_ty), mask=stored)
            value_gradient = tl.dot(weight.to(query.dtype).T, upstream, input_precision=PRECISION)
            tl.store(out + inner, value_gradient.to(projected_gradient.dtype.element_ty), mask=stored)
    if pair_bias is not None:
        bias_gradient += part.to(tl.int64) * part_size + tl.program_id(1).to(tl.int64) * length * length
        bias_gradient += queries[:, None] * length + position[None, :]
        tl.store(bias_gradient, total_gradient, mask=real[:, None] & real_keys[None, :])
