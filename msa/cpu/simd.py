"""SIMD vectors in numba functions, as LLVM operations, and profiles in the order of their lanes.

numba has no vector type, and the compiler cannot vectorise the loops of the alignment kernels automatically.
Their inner loops are therefore written with LLVM vectors inside an `@intrinsic`. LLVM compiles them to the
machine's instructions (AVX-512, AVX2, SSE, NEON) and splits vectors that are wider than a register.

numba's cache checks only the file that contains the kernel: after a change in this file, delete the cached
kernels.
"""

import functools

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.core.base import BaseContext

from msa.alphabet import LETTERS
from msa.profile.matrices import PROFILE_COLUMNS

I64 = ir.IntType(64)


@functools.cache
def _cpu_features() -> frozenset[str]:
    """Return the names of the CPU features that numba compiles for."""
    text: str | None = getattr(config, "CPU_FEATURES", None)
    if text is None:
        return frozenset(name for name, present in binding.get_host_cpu_features().items() if present)
    return frozenset(part[1:] for part in text.split(",") if part.startswith("+"))


@functools.cache
def vector_bytes() -> int:
    """Return the size of a vector register in bytes: 64 with AVX-512BW, 32 with AVX2, otherwise 16."""
    features = _cpu_features()
    return 64 if "avx512bw" in features else 32 if "avx2" in features else 16


def lane_count(bits: int) -> int:
    """Return the number of integers of some bits in a vector register."""
    return vector_bytes() * 8 // bits


@functools.cache
def vector_registers() -> int:
    """Return the number of vector registers."""
    return 32 if vector_bytes() == 64 else 16


@functools.cache
def has_byte_shuffle() -> bool:
    """Return True if the CPU has the byte shuffle that `Vectors.lookup` needs."""
    return "ssse3" in _cpu_features()


def striped_profile(profile: np.ndarray, bits: int, stripes: int, count: int) -> np.ndarray:
    """Return the scores of a profile in the striped order of Farrar (2007), by vectors of query positions.

    With S stripes, lane d of stripe k holds the score of query position d S + k. After the last stripe, the
    first ones follow again, each lane with the positions of the next one.

    Args:
        profile: int16 [length, 32], or of a larger alphabet a column for each letter.
        bits: of a score, 8, 16 or 32.
        stripes: S; with the lanes, at least the length.
        count: number of stripes to return, which may be more than S.

    Returns:
        int8, int16 or int32 [letters, count, lanes]; positions after the query's end have the lowest score.
    """
    lanes, dtype = lane_count(bits), np.dtype(f"int{bits}")
    letters = len(LETTERS) if profile.shape[1] == PROFILE_COLUMNS else profile.shape[1]
    padded = np.full((stripes * lanes, letters), np.iinfo(dtype).min, dtype)
    padded[: len(profile)] = profile[:, :letters]
    positions = np.arange(count)[:, None] + np.arange(lanes) * stripes
    return padded[positions % len(padded)].transpose(2, 0, 1)


def array_address(
    context: BaseContext, builder: ir.IRBuilder, kind: types.Array, array: ir.Value
) -> ir.Value:
    """Return the address of an array argument's data, as an integer."""
    return builder.ptrtoint(context.make_array(kind)(context, builder, array).data, I64)


class Vectors:
    """Operations on vectors of `count` signed integers of `bits` bits.

    Methods append instructions to the function that the builder is building. Addition and subtraction
    saturate at −2^(bits−1) and 2^(bits−1) − 1.
    """

    def __init__(self, builder: ir.IRBuilder, bits: int, count: int) -> None:
        self._builder = builder
        self.bits, self.count = bits, count
        self.element = ir.IntType(bits)
        self.type = ir.VectorType(self.element, count)
        self.bytes = count * bits // 8
        self.lowest = -(1 << (bits - 1))

    def constant(self, value: int) -> ir.Constant:
        """Return a vector whose lanes all hold a compile-time constant."""
        return ir.Constant(self.type, [ir.Constant(self.element, value)] * self.count)

    def splat(self, value: ir.Value) -> ir.Value:
        """Return a vector whose lanes all hold a run-time value."""
        first = self._builder.insert_element(self.constant(0), value, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.count), [0] * self.count)
        return self._builder.shuffle_vector(first, first, zeros)

    def variable(self, initial: ir.Value) -> ir.Value:
        """Create a local variable, which LLVM keeps in a register."""
        slot = cgutils.alloca_once(self._builder, initial.type)
        self._builder.store(initial, slot)
        return slot

    def load(self, address: ir.Value, offset: int = 0) -> ir.Value:
        """Read from an integer address, of any alignment, plus a constant offset in bytes."""
        return self._builder.load(self._pointer(address, offset), align=1)

    def store(self, value: ir.Value, address: ir.Value, offset: int = 0) -> None:
        """Write to an integer address, of any alignment, plus a constant offset in bytes."""
        self._builder.store(value, self._pointer(address, offset), align=1)

    def bitwise_and(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Return the bits that are set in both."""
        return self._builder.and_(x, y)

    def any_positive(self, x: ir.Value) -> ir.Value:
        """Return a single bit: 1 if any element is greater than 0."""
        mask = self._builder.icmp_signed(">", x, self.constant(0))
        word = self._builder.bitcast(mask, ir.IntType(self.count))
        return self._builder.icmp_unsigned("!=", word, ir.Constant(ir.IntType(self.count), 0))

    def mask(self) -> ir.Constant:
        """Return a mask, one bit per lane, whose bits are all set."""
        return ir.Constant(ir.VectorType(ir.IntType(1), self.count), [1] * self.count)

    def is_less(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Return a mask of the lanes in which x is less than y."""
        return self._builder.icmp_signed("<", x, y)

    def is_full(self, mask: ir.Value) -> ir.Value:
        """Return a single bit: 1 if all bits of a mask are set."""
        kind = ir.IntType(self.count)
        return self._builder.icmp_signed("==", self._builder.bitcast(mask, kind), ir.Constant(kind, -1))

    def shift_up(self, x: ir.Value, lanes: int, fill: int) -> ir.Value:
        """Move each lane up by `lanes`; the first `lanes` become `fill`."""
        # indices from `count` on select from the second operand
        order = [self.count if lane < lanes else lane - lanes for lane in range(self.count)]
        indices = ir.Constant(ir.VectorType(ir.IntType(32), self.count), order)
        return self._builder.shuffle_vector(x, self.constant(fill), indices)

    def interleave(self, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return the lanes of both in turn: those of the first halves, then those of the second halves."""
        order = [lane // 2 + lane % 2 * self.count for lane in range(2 * self.count)]
        kind = ir.VectorType(ir.IntType(32), self.count)
        first, second = (
            self._builder.shuffle_vector(x, y, ir.Constant(kind, order[start : start + self.count]))
            for start in (0, self.count)
        )
        return first, second

    def rotate_up(self, x: ir.Value, lanes: int) -> ir.Value:
        """Move each lane up by `lanes`, and the last ones to the start."""
        order = [(lane - lanes) % self.count for lane in range(self.count)]
        indices = ir.Constant(ir.VectorType(ir.IntType(32), self.count), order)
        return self._builder.shuffle_vector(x, x, indices)

    def table(self, address: ir.Value) -> list[ir.Value]:
        """Read a table of 32 bytes at an integer address for `lookup`."""
        size = 32 if self._has_wide_shuffle else 16
        return [self._repeated(address, start, size) for start in range(0, 32, size)]

    def lookup(self, table: list[ir.Value], indices: ir.Value) -> ir.Value:
        """Return the byte of a table at each lane's index, 0 to 31."""
        if self._has_wide_shuffle:
            return self._shuffle("avx512.permvar.qi.512", table[0], indices)
        # this instruction uses the low four bits of an index and looks up within each group of 16 bytes
        name = {16: "ssse3.pshuf.b.128", 32: "avx2.pshuf.b", 64: "avx512.pshuf.b.512"}[self.count]
        upper = self._builder.icmp_signed(">", indices, self.constant(15))
        low, high = (self._shuffle(name, half, indices) for half in table)
        return self._builder.select(upper, high, low)

    @property
    def _has_wide_shuffle(self) -> bool:
        return self.count == 64 and "avx512vbmi" in _cpu_features()

    def _repeated(self, address: ir.Value, start: int, size: int) -> ir.Value:
        """Load `size` bytes and repeat them to fill the vector."""
        loaded = Vectors(self._builder, 8, size).load(address, start)
        order = ir.Constant(ir.VectorType(ir.IntType(32), self.count), [k % size for k in range(self.count)])
        return self._builder.shuffle_vector(loaded, loaded, order)

    def _shuffle(self, name: str, table: ir.Value, indices: ir.Value) -> ir.Value:
        kind = ir.FunctionType(self.type, [self.type, self.type])
        symbol = cgutils.get_or_insert_function(self._builder.module, kind, f"llvm.x86.{name}")
        return self._builder.call(symbol, [table, indices])

    def _pointer(self, address: ir.Value, offset: int) -> ir.Value:
        if offset:
            address = self._builder.add(address, ir.Constant(I64, offset))
        return self._builder.inttoptr(address, self.type.as_pointer())

    def _call(self, name: str, x: ir.Value, y: ir.Value) -> ir.Value:
        """Combine vectors lane by lane."""
        kind = ir.FunctionType(self.type, [self.type, self.type])
        symbol = f"llvm.{name}.v{self.count}i{self.bits}"
        return self._builder.call(cgutils.get_or_insert_function(self._builder.module, kind, symbol), [x, y])

    def _reduce(self, name: str, x: ir.Value) -> ir.Value:
        """Combine the lanes of a vector."""
        kind = ir.FunctionType(self.element, [self.type])
        symbol = f"llvm.vector.reduce.{name}.v{self.count}i{self.bits}"
        return self._builder.call(cgutils.get_or_insert_function(self._builder.module, kind, symbol), [x])

    add = functools.partialmethod(_call, "sadd.sat")
    subtract = functools.partialmethod(_call, "ssub.sat")
    maximum = functools.partialmethod(_call, "smax")
    minimum = functools.partialmethod(_call, "smin")
    largest = functools.partialmethod(_reduce, "smax")
