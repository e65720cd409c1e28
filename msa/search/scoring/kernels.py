"""The compiled loops of scores: residue counts, and Forward scores of the context profiles of targets.

The recurrence of Forward scores along a row of the matrix needs the previous column. It is computed for eight
columns at once by adding the columns one, two and four before, each with its power of the cost of extending a
gap. Eight is part of the definition of a score, whose last bits would otherwise depend on the width of vector
registers.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from msa.alphabet import LETTER_BITS, LETTERS, X
from msa.base.jit import kernel
from msa.cpu.simd import I64, array_address
from msa.profile.compiled_context import fill_profile

LANES = 8
"""Columns that are computed at once."""

_DOUBLE, _I32 = ir.DoubleType(), ir.IntType(32)
_VECTOR = ir.VectorType(_DOUBLE, LANES)
_VECTOR_BYTES = 8 * LANES
_ROWS_BETWEEN_CHECKS = 16
"""Rows after which sums are scaled if they are large. They grow by less than 2⁸ per row."""
_LARGE = 2.0**200


def _splat(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Return a vector whose lanes all hold a value."""
    first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


def _shift(builder: ir.IRBuilder, before: ir.Value, vector: ir.Value, lanes: int) -> ir.Value:
    """Move each lane up by `lanes`; the first ones become the last ones of the vector before."""
    order = ir.Constant(ir.VectorType(_I32, LANES), [LANES - lanes + k for k in range(LANES)])
    return builder.shuffle_vector(before, vector, order)


def _vectors_at(builder: ir.IRBuilder, address: ir.Value, index: ir.Value, count: int) -> list[ir.Value]:
    """Return pointers to the `count` vectors of one item of an array, given the array's address."""
    first = builder.add(address, builder.mul(index, ir.Constant(I64, count * _VECTOR_BYTES)))
    offsets = [ir.Constant(I64, k * _VECTOR_BYTES) for k in range(count)]
    return [builder.inttoptr(builder.add(first, offset), _VECTOR.as_pointer()) for offset in offsets]


def _next_row_typing(typingctx, weights, cells, sums, start, gap_open, gap_extend):  # type: ignore[no-untyped-def]
    """Define an intrinsic that adds one row to the matrix.

    Args:
        typingctx: numba's typing context.
        weights: float64 [vectors, 8], contiguous: of the row's residue at each column.
        cells: float64 [vectors, 3, 8], contiguous, updated from the previous row to this one: the sums of the
            weights of all alignments that end in each column, with a pair or a gap; those that end with a
            pair; and those that end with a residue of the row opposite a gap.
        sums: float64 [8], updated: the weights of alignments that end with a pair are added.
        start: float64, the weight of an alignment without pairs.
        gap_open: float64, weight of a gap's first residue.
        gap_extend: float64, weight of each further residue.

    Returns:
        The intrinsic's signature and code generator.
    """
    number = types.float64
    signature = types.void(weights, cells, sums, number, number, number)

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
    ) -> ir.Value:
        address_of_weights, address_of_cells, address_of_sums = (
            array_address(context, builder, signature.args[k], arguments[k]) for k in range(3)
        )
        extend = arguments[5]
        starting, opening, extending = (_splat(builder, each) for each in arguments[3:])
        powers = [extend]
        while len(powers) < LANES:
            powers.append(builder.fmul(powers[-1], extend))
        shifts = [(lanes, _splat(builder, powers[lanes - 1])) for lanes in (1, 2, 4)]
        of_carried: ir.Value = ir.Constant(_VECTOR, ir.Undefined)
        for k, power in enumerate(powers):
            of_carried = builder.insert_element(of_carried, power, ir.Constant(_I32, k))
        zero = ir.Constant(_VECTOR, [ir.Constant(_DOUBLE, 0.0)] * LANES)

        def variable(initial: ir.Value) -> ir.Value:
            slot = cgutils.alloca_once(builder, initial.type)
            builder.store(initial, slot)
            return slot

        def multiply_add(sum_: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
            return builder.fadd(sum_, builder.fmul(x, y))

        (sums_at,) = _vectors_at(builder, address_of_sums, ir.Constant(I64, 0), 1)
        total = variable(builder.load(sums_at, align=8))
        last_above, last_pairs, carried = variable(zero), variable(zero), variable(ir.Constant(_DOUBLE, 0.0))
        shape = context.make_array(signature.args[1])(context, builder, arguments[1]).shape
        with cgutils.for_range(builder, cgutils.unpack_tuple(builder, shape)[0]) as loop:
            pointers = _vectors_at(builder, address_of_cells, loop.index, 3)
            above, above_pairs, above_gaps = (builder.load(each, align=8) for each in pointers)
            (weights_at,) = _vectors_at(builder, address_of_weights, loop.index, 1)
            diagonal = _shift(builder, builder.load(last_above), above, 1)
            pairs = builder.fmul(builder.load(weights_at, align=8), builder.fadd(starting, diagonal))
            gaps = multiply_add(builder.fmul(opening, above_pairs), extending, above_gaps)
            # columns opposite gaps
            columns = builder.fmul(opening, _shift(builder, builder.load(last_pairs), pairs, 1))
            for lanes, power in shifts:
                columns = multiply_add(columns, power, _shift(builder, zero, columns, lanes))
            before, last = builder.load(carried), ir.Constant(_I32, LANES - 1)
            builder.store(multiply_add(builder.extract_element(columns, last), powers[-1], before), carried)
            columns = multiply_add(columns, of_carried, _splat(builder, before))
            builder.store(above, last_above)
            builder.store(pairs, last_pairs)
            builder.store(builder.fadd(builder.load(total), pairs), total)
            for value, pointer in zip(
                (builder.fadd(builder.fadd(pairs, gaps), columns), pairs, gaps), pointers, strict=True
            ):
                builder.store(value, pointer, align=8)
        builder.store(builder.load(total), sums_at, align=8)
        return context.get_dummy_value()

    return signature, codegen


_next_row: Any = intrinsic(_next_row_typing)


@kernel
def forward_score(weights, letters, is_reversed, gap_open, gap_extend):  # type: ignore[no-untyped-def]
    """Return the logarithm of the sum of the weights of all local alignments.

    Args:
        weights: float64 [26, vectors, 8], of a pair of each letter and column; 0 after the last column.
        letters: uint8 [length ≥ 1], letter codes of the rows.
        is_reversed: whether to read the letters backwards.
        gap_open: weight of a gap's first residue.
        gap_extend: weight of each further residue.
    """
    cells, sums = np.zeros((weights.shape[1], 3, LANES)), np.zeros(LANES)
    start, scale = 1.0, 0
    for row in range(len(letters)):
        letter = letters[len(letters) - 1 - row] if is_reversed else letters[row]
        _next_row(weights[letter], cells, sums, start, gap_open, gap_extend)
        if row % _ROWS_BETWEEN_CHECKS == 0 and _sum(sums) > _LARGE:
            # powers of two change no digits
            cells /= _LARGE
            sums /= _LARGE
            start /= _LARGE
            scale += 1
    return math.log(_sum(sums)) + scale * math.log(_LARGE)


@kernel
def _sum(numbers):  # type: ignore[no-untyped-def]
    """Return the sum of numbers; numba's own takes longer to compile."""
    total = 0.0
    for number in numbers:
        total += number
    return total


@kernel
def fill_forward_scores(tables, table, gap_open, gap_extend, residues, windows, letters, queries, scores):  # type: ignore[no-untyped-def]
    """Write the Forward scores of the context profiles of targets, against queries and reversed queries.

    Args:
        tables: see `msa.profile.pssm.ContextTables`.
        table: float64 [2 n], weight of each score from −n on; lower scores have the weight of −n.
        gap_open: weight of a gap's first residue.
        gap_extend: weight of each further residue.
        residues: uint8, residue bytes of the database.
        windows: int64 [n, 4], indices of the residues of each target: the first that the context model reads,
            the first and the end of the profile, and the end of those that the model reads.
        letters: uint8, letter codes of the queries, one after another.
        queries: int64 [n, 2], first letter and end of each target's query.
        scores: float64 [n, 2], written: nats, for the query and the reversed query.
    """
    neighbours, lowest = len(tables.embedding) // 2, -(len(table) // 2)
    for k in range(len(windows)):
        first_read, first, end, end_read = windows[k]
        length = end - first
        codes = np.empty(length + 2 * neighbours, np.uint8)
        for position in range(len(codes)):
            codes[position] = X
        for position in range(first_read, end_read):
            letter = residues[position] & LETTER_BITS
            codes[position - first + neighbours] = min(letter, len(LETTERS) - 1)
        profile = np.empty((length, len(tables.stands_for)), np.int16)
        fill_profile(tables, codes, profile)
        weights = np.zeros((profile.shape[1], (length + LANES - 1) // LANES, LANES))
        for position in range(length):
            for letter in range(profile.shape[1]):
                score = max(profile[position, letter], lowest)
                weights[letter, position // LANES, position % LANES] = table[score - lowest]
        query = letters[queries[k, 0] : queries[k, 1]]
        for direction in range(2):
            scores[k, direction] = forward_score(weights, query, direction == 1, gap_open, gap_extend)
