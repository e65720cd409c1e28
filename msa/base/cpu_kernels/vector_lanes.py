"""A vector type for compiled kernels: numbers that LLVM keeps in registers, 64 float32 or 8 float64.

numba has no vector type, and the loops that it compiles for small arrays keep the numbers in memory and check
for overlapping arrays first. In a function compiled by `msa.base.cpu_kernels.jit.kernel`,

    v = load(array, start)          numbers from an array, at any offset; store(v, array, start) writes them
    w = v * u + splat(x)            lane by lane
    x = total(v)                    sum of the lanes; last(v) is the last one
    s = shift_1(u, v)               v moved up by a lane, after the last lanes of u; shift_2, shift_4
    transpose(...)                  8 × 8 float32 numbers from rows to columns

LLVM splits the vector into registers of the machine (AVX-512, AVX2, SSE, NEON). It neither reorders nor
contracts operations, and the order of the sum is fixed, so results have the same bits on every machine.
"""

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.base import BaseContext
from numba.core.datamodel.models import PrimitiveModel
from numba.core.typing.templates import Signature, signature
from numba.extending import intrinsic, overload, register_model

LANE_COUNT = 64
"""Lanes of a vector of float32 numbers."""

_FLOAT, _INDEX = ir.FloatType(), ir.IntType(32)

Emitted = tuple[Signature, Any]
# numba types the result with the parameters of the emitting function, which would mislead mypy
_intrinsic: Any = intrinsic


class LanesType(types.Type):
    """The numba type of a vector."""

    def __init__(self, element: types.Type, vector: ir.VectorType) -> None:
        self.element, self.vector = element, vector
        super().__init__(name=f"Lanes({element})")


_KINDS = {
    types.float32: LanesType(types.float32, ir.VectorType(_FLOAT, LANE_COUNT)),
    types.float64: LanesType(types.float64, ir.VectorType(ir.DoubleType(), 8)),
}


@register_model(LanesType)
class _LanesModel(PrimitiveModel):
    def __init__(self, manager: Any, numba_type: LanesType) -> None:
        super().__init__(manager, numba_type, numba_type.vector)


def _order(indices: range | list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(_INDEX, len(indices)), list(indices))


@_intrinsic
def splat(typing: Any, number: types.Type) -> Emitted:
    """Return a vector whose lanes all equal a number."""
    kind = _KINDS[number]

    def emit(context: BaseContext, builder: ir.IRBuilder, _: Signature, arguments: Any) -> ir.Value:
        undefined = ir.Constant(kind.vector, ir.Undefined)
        first = builder.insert_element(undefined, arguments[0], ir.Constant(_INDEX, 0))
        return builder.shuffle_vector(first, undefined, _order([0] * kind.vector.count))

    return signature(kind, number), emit


def _address(context: BaseContext, builder: ir.IRBuilder, array: Any, value: Any, start: Any) -> ir.Value:
    """Return a pointer to the vector at an index of a contiguous array."""
    address = builder.gep(context.make_array(array)(context, builder, value).data, [start])
    return builder.bitcast(address, _KINDS[array.dtype].vector.as_pointer())


@_intrinsic
def load(typing: Any, array: Any, start: types.Type) -> Emitted:
    """Return the numbers of a contiguous array from a flat index on; bounds are not checked."""

    def emit(context: BaseContext, builder: ir.IRBuilder, kind: Signature, arguments: Any) -> ir.Value:
        return builder.load(_address(context, builder, array, *arguments), align=array.dtype.bitwidth // 8)

    return signature(_KINDS[array.dtype], array, types.intp), emit


@_intrinsic
def store(typing: Any, vector: LanesType, array: Any, start: types.Type) -> Emitted:
    """Write a vector to a contiguous array, as `load` reads it."""

    def emit(context: BaseContext, builder: ir.IRBuilder, kind: Signature, arguments: Any) -> ir.Value:
        address = _address(context, builder, array, *arguments[1:])
        builder.store(arguments[0], address, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return signature(types.none, vector, array, types.intp), emit


def _shift(lanes: int) -> Any:
    """Return the intrinsic that moves each lane up; the first become the last ones of another vector."""

    @_intrinsic
    def shift(typing: Any, before: LanesType, vector: LanesType) -> Emitted:
        def emit(context: BaseContext, builder: ir.IRBuilder, kind: Signature, arguments: Any) -> ir.Value:
            count = vector.vector.count
            return builder.shuffle_vector(*arguments, _order(range(count - lanes, 2 * count - lanes)))

        return signature(vector, before, vector), emit

    return shift


shift_1, shift_2, shift_4 = _shift(1), _shift(2), _shift(4)


@_intrinsic
def last(typing: Any, vector: LanesType) -> Emitted:
    """Return the last lane."""

    def emit(context: BaseContext, builder: ir.IRBuilder, kind: Signature, arguments: Any) -> ir.Value:
        return builder.extract_element(arguments[0], ir.Constant(_INDEX, vector.vector.count - 1))

    return signature(vector.element, vector), emit


@_intrinsic
def total(typing: Any, vector: LanesType) -> Emitted:
    """Return the sum of the lanes, by repeatedly adding the two halves."""

    def emit(context: BaseContext, builder: ir.IRBuilder, kind: Signature, arguments: Any) -> ir.Value:
        value, count = arguments[0], vector.vector.count
        while count > 1:
            count //= 2
            low = builder.shuffle_vector(value, value, _order(range(count)))
            high = builder.shuffle_vector(value, value, _order(range(count, 2 * count)))
            value = builder.fadd(low, high)
        return builder.extract_element(value, ir.Constant(_INDEX, 0))

    return signature(vector.element, vector), emit


@_intrinsic
def transpose(
    typing: Any,
    table: types.Type,
    rows: types.Type,
    first: types.Type,
    column: types.Type,
    out: types.Type,
    start: types.Type,
    stride: types.Type,
) -> Emitted:
    """Copy an 8 × 8 block of numbers from rows of a table to columns of an output.

    out[start + a * stride + j] = table[rows[first + j], column + a] for a and j below 8, where table is
    float32 [n, m], rows uint8, out float32, all contiguous; bounds are not checked.
    """
    size = 8
    vector_of_8 = ir.VectorType(_FLOAT, size)

    def emit(context: BaseContext, builder: ir.IRBuilder, kind: Signature, arguments: Any) -> ir.Value:
        def array(number: int) -> Any:
            return context.make_array(kind.args[number])(context, builder, arguments[number])

        source, row_indices, target = array(0), array(1).data, array(4).data
        first, column, start, stride = (arguments[number] for number in (2, 3, 5, 6))
        width = builder.extract_value(source.shape, 1)
        word = first.type

        def row(j: int) -> ir.Value:
            index = builder.load(builder.gep(row_indices, [builder.add(first, ir.Constant(word, j))]))
            offset = builder.add(builder.mul(builder.zext(index, word), width), column)
            address = builder.gep(source.data, [offset])
            return builder.load(builder.bitcast(address, vector_of_8.as_pointer()), align=4)

        # three rounds; each interleaves vector k with vector k + 4
        vectors = [row(j) for j in range(size)]
        low = _order([i // 2 + size * (i % 2) for i in range(size)])
        high = _order([size // 2 + i // 2 + size * (i % 2) for i in range(size)])
        for _ in range(3):
            pairs = list(zip(vectors[: size // 2], vectors[size // 2 :], strict=True))
            vectors = [builder.shuffle_vector(a, b, order) for a, b in pairs for order in (low, high)]
        for a, vector in enumerate(vectors):
            offset = builder.add(start, builder.mul(stride, ir.Constant(word, a)))
            address = builder.gep(target, [offset])
            builder.store(vector, builder.bitcast(address, vector_of_8.as_pointer()), align=4)
        return context.get_dummy_value()

    whole = types.intp
    return signature(types.none, table, rows, whole, whole, out, whole, whole), emit


def _lane_by_lane(operation: Any, instruction: str) -> None:
    """Let numba compile an operation of two vectors of the same type."""

    @_intrinsic
    def combine(typing: Any, left: LanesType, right: LanesType) -> Emitted:
        def emit(context: BaseContext, builder: ir.IRBuilder, kind: Signature, arguments: Any) -> ir.Value:
            return getattr(builder, instruction)(*arguments)

        return signature(left, left, right), emit

    # numba requires an implementation to have the same annotations as the function that returns it
    @overload(operation)
    def overloaded(left: Any, right: Any) -> Any:
        def implementation(left: Any, right: Any) -> Any:
            return combine(left, right)

        return implementation if isinstance(left, LanesType) and left is right else None


_lane_by_lane(operator.add, "fadd")
_lane_by_lane(operator.mul, "fmul")
