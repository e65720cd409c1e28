"""A vector type for compiled kernels: `Lanes`, 64 float32 numbers that LLVM keeps in registers.

numba has no vector type, and the loops that it compiles for small arrays keep the numbers in memory and check
for overlapping arrays first. In a function compiled by `msa.base.jit.kernel`,

    v = load(array, start)          64 numbers from a float32 array, at any offset
    w = v * u + splat(x)            lane by lane
    x = total(v)                    sum of the lanes
    transpose(...)                  8 × 8 numbers from rows to columns

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

_FLOAT = ir.FloatType()
_INDEX = ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANE_COUNT)

Emitted = tuple[Signature, Any]
# numba types the result with the parameters of the emitting function, which would mislead mypy
_intrinsic: Any = intrinsic


class LanesType(types.Type):
    """The numba type of 64 float32 numbers."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


LANES = LanesType()


@register_model(LanesType)
class _LanesModel(PrimitiveModel):
    def __init__(self, manager: Any, numba_type: types.Type) -> None:
        super().__init__(manager, numba_type, _VECTOR)


def _order(indices: range | list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(_INDEX, len(indices)), list(indices))


@_intrinsic
def splat(typing: Any, number: types.Type) -> Emitted:
    """Return a vector whose lanes all equal a float32."""

    def emit(context: BaseContext, builder: ir.IRBuilder, kind: Signature, arguments: Any) -> ir.Value:
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(undefined, arguments[0], ir.Constant(_INDEX, 0))
        return builder.shuffle_vector(first, undefined, _order([0] * LANE_COUNT))

    return signature(LANES, types.float32), emit


@_intrinsic
def load(typing: Any, array: types.Type, start: types.Type) -> Emitted:
    """Return array[start : start + 64] of a contiguous float32 array; bounds are not checked."""

    def emit(context: BaseContext, builder: ir.IRBuilder, kind: Signature, arguments: Any) -> ir.Value:
        data = context.make_array(kind.args[0])(context, builder, arguments[0]).data
        address = builder.gep(data, [arguments[1]])
        return builder.load(builder.bitcast(address, _VECTOR.as_pointer()), align=4)

    return signature(LANES, array, types.intp), emit


@_intrinsic
def total(typing: Any, vector: types.Type) -> Emitted:
    """Return the sum of the lanes, float32, by repeatedly adding the two halves."""

    def emit(context: BaseContext, builder: ir.IRBuilder, kind: Signature, arguments: Any) -> ir.Value:
        value, count = arguments[0], LANE_COUNT
        while count > 1:
            count //= 2
            low = builder.shuffle_vector(value, value, _order(range(count)))
            high = builder.shuffle_vector(value, value, _order(range(count, 2 * count)))
            value = builder.fadd(low, high)
        return builder.extract_element(value, ir.Constant(_INDEX, 0))

    return signature(types.float32, LANES), emit


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


@_intrinsic
def _add(typing: Any, left: types.Type, right: types.Type) -> Emitted:
    def emit(context: BaseContext, builder: ir.IRBuilder, kind: Signature, arguments: Any) -> ir.Value:
        return builder.fadd(*arguments)

    return signature(LANES, LANES, LANES), emit


@_intrinsic
def _multiply(typing: Any, left: types.Type, right: types.Type) -> Emitted:
    def emit(context: BaseContext, builder: ir.IRBuilder, kind: Signature, arguments: Any) -> ir.Value:
        return builder.fmul(*arguments)

    return signature(LANES, LANES, LANES), emit


# numba requires an implementation to have the same annotations as the function that returns it
@overload(operator.add)
def _overloaded_add(left: Any, right: Any) -> Any:
    def add(left: Any, right: Any) -> Any:
        return _add(left, right)

    return add if left is LANES and right is LANES else None


@overload(operator.mul)
def _overloaded_multiply(left: Any, right: Any) -> Any:
    def multiply(left: Any, right: Any) -> Any:
        return _multiply(left, right)

    return multiply if left is LANES and right is LANES else None
