"""A simulator that runs Gluon kernels on CPU tensors, each partition of warps as a Python thread.

Triton's interpreter does not support Gluon. The simulator ignores layouts, which say where values are stored,
not what they are. Everything else works as on the GPU: copied tiles complete barriers by their bytes,
barriers have phases, and an asynchronous product reads shared memory when it is waited for, which is the
latest possible time. So a buffer that is released too early changes the result, and one that is never
released blocks a thread.
"""

import math
import sys
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Condition, Thread, local
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonJITFunction
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# seconds after which a partition that waits for a barrier fails
BARRIER_TIMEOUT = 60


class Barrier:
    """An mbarrier: a phase ends when all threads and all announced bytes have arrived."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.phases_ended, self.count, self.missing, self.bytes = 0, 0, 0, 0

    def init(self, count: int) -> None:
        self.count = self.missing = count

    def change(self, arrivals: int = 0, announced: int = 0) -> None:
        with self.changed:
            self.missing -= arrivals
            self.bytes += announced
            if self.missing == 0 and self.bytes == 0:
                self.phases_ended, self.missing = self.phases_ended + 1, self.count
                self.changed.notify_all()

    def wait(self, phase: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.phases_ended & 1 != phase, BARRIER_TIMEOUT), (
                "stuck at a barrier"
            )


class Barriers:
    """An array of barriers, as kernels allocate them."""

    def __init__(self, count: int) -> None:
        self.all = [Barrier() for _ in range(count)]

    def index(self, k: Any) -> Barrier:
        return self.all[int(k)]


class SimulatedTensor(torch.Tensor):
    """A tensor with the methods of Gluon's tensors that PyTorch lacks or defines differently."""

    type = SimpleNamespace(layout=None)

    def split(self) -> "tuple[SimulatedTensor, SimulatedTensor]":  # type: ignore[override]
        first, second = self.unbind(-1)
        return first, second  # type: ignore[return-value]


def simulated(x: torch.Tensor) -> SimulatedTensor:
    return x.as_subclass(SimulatedTensor)


class SharedMemory:
    """A view of shared memory."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data, self.dtype, self.shape, self.numel = data, data.dtype, data.shape, data.numel()

    def index(self, k: Any) -> "SharedMemory":
        return SharedMemory(self.data[int(k)])

    def _reinterpret(self, dtype: torch.dtype, shape: Sequence[int], layout: Any) -> "SharedMemory":
        assert dtype == self.dtype
        if math.prod(shape) == self.numel:
            return self.reshape(shape)
        # consecutive tiles with rows as wide as the swizzle have the same layout as one tile with wider rows
        rows, columns = shape
        tiles = columns * dtype.itemsize // getattr(layout, "swizzle_byte_width", 128)
        return WideTile(
            self.data.as_strided(
                (rows, tiles, columns // tiles), (columns // tiles, columns // tiles * rows, 1)
            )
        )

    def slice(self, start: int, length: int, dim: int = 0) -> "SharedMemory":
        return SharedMemory(self.data.narrow(dim, start, length))

    def reshape(self, shape: Sequence[int]) -> "SharedMemory":
        return SharedMemory(self.data.view(*shape))

    def permute(self, order: Sequence[int]) -> "SharedMemory":
        return SharedMemory(self.data.permute(tuple(order)))

    def load(self, layout: Any) -> SimulatedTensor:
        return simulated(self.data.clone())

    def store(self, value: torch.Tensor) -> None:
        self.data.copy_(value.reshape(self.data.shape))


class WideTile(SharedMemory):
    """A tile whose rows are in several smaller tiles, with data [rows, tiles, columns of a tile]."""

    def permute(self, order: Sequence[int]) -> "TransposedTile":  # type: ignore[override]
        assert tuple(order) == (1, 0)
        return TransposedTile(self)


class TransposedTile:
    """The operand of a product, read when the product is computed."""

    def __init__(self, tile: WideTile) -> None:
        self.tile = tile

    @property
    def data(self) -> torch.Tensor:
        return self.tile.data.flatten(1).T


class Pointer:
    """A tensor of pointers: offsets in memory."""

    def __init__(self, memory: torch.Tensor, offsets: Any = 0) -> None:
        self.memory, self.offsets = memory, offsets
        self.dtype = SimpleNamespace(element_ty=memory.dtype)

    def __add__(self, other: Any) -> "Pointer":
        return Pointer(self.memory, self.offsets + other)


class SimulatedDescriptor:
    """A tensor descriptor, whose tiles can be copied."""

    def __init__(self, descriptor: TensorDescriptor) -> None:
        self.tensor, self.layout, self.dtype = descriptor.base, descriptor.layout, descriptor.base.dtype
        shape = list(descriptor.block_shape)
        self.block_type = SimpleNamespace(
            shape=shape, nbytes=math.prod(shape) * descriptor.base.element_size()
        )

    def _slices(self, start: Sequence[Any]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return the slices of the tensor and of the tile in which the two overlap."""
        begins = [int(begin) for begin in start]
        assert begins[-1] * self.tensor.element_size() % 16 == 0
        ends = [
            max(begin, min(begin + size, end))
            for begin, size, end in zip(begins, self.block_type.shape, self.tensor.shape, strict=True)
        ]
        in_tensor = [slice(begin, end) for begin, end in zip(begins, ends, strict=True)]
        return tuple(in_tensor), tuple(slice(0, part.stop - part.start) for part in in_tensor)

    def copy_to(self, start: Sequence[Any], buffer: SharedMemory) -> int:
        """Copy a tile to a buffer, with 0 outside the tensor; return the number of bytes."""
        in_tensor, in_tile = self._slices(start)
        buffer.data.zero_()
        buffer.data[in_tile] = self.tensor[in_tensor]
        return int(self.block_type.nbytes)

    def copy_from(self, start: Sequence[Any], buffer: SharedMemory) -> None:
        in_tensor, in_tile = self._slices(start)
        self.tensor[in_tensor] = buffer.data[in_tile]


class PendingCalls:
    """Asynchronous operations that each thread has started and not waited for, oldest first."""

    def __init__(self) -> None:
        self.own = local()

    def begin(self, call: Callable[[], None]) -> None:
        self.own.calls = [*getattr(self.own, "calls", []), call]

    def wait(self, outstanding: int) -> None:
        calls = getattr(self.own, "calls", [])
        done = max(0, len(calls) - outstanding)
        self.own.calls = calls[done:]
        for call in calls[:done]:
            call()


class PendingProduct:
    """An asynchronous product; its value is set when it has been waited for."""

    value: SimulatedTensor | None = None


class TensorCores:
    """Synchronous and asynchronous matrix products."""

    def __init__(self) -> None:
        self.pending = PendingCalls()

    def multiply(self, a: Any, b: SharedMemory, acc: Any, use_acc: Any = True, is_async: bool = False) -> Any:
        def compute() -> SimulatedTensor:
            left = a.data if isinstance(a, SharedMemory | TransposedTile) else a
            accumulator = acc.value if isinstance(acc, PendingProduct) else acc
            return simulated(left.float() @ b.data.float() + (accumulator if use_acc else 0))

        if not is_async:
            self.pending.wait(0)
            return compute()
        product = PendingProduct()
        self.pending.begin(lambda: setattr(product, "value", compute()))
        return product

    def wait(self, outstanding: int, deps: Sequence[Any]) -> Any:
        self.pending.wait(outstanding)
        values = [x.value if isinstance(x, PendingProduct) and x.value is not None else x for x in deps]
        return values[0] if len(values) == 1 else tuple(values)


def _load(pointer: Pointer, mask: Any = True, other: float = 0.0) -> torch.Tensor:
    offsets, mask = torch.broadcast_tensors(torch.as_tensor(pointer.offsets), torch.as_tensor(mask))
    values = pointer.memory[torch.where(mask, offsets, 0)]
    return torch.where(mask, values, torch.tensor(other, dtype=values.dtype))


def _store(pointer: Pointer, value: torch.Tensor, mask: Any = True) -> None:
    offsets, mask, value = torch.broadcast_tensors(
        torch.as_tensor(pointer.offsets), torch.as_tensor(mask), torch.as_tensor(value)
    )
    pointer.memory[offsets[mask]] = value[mask].to(pointer.memory.dtype)


def _atomic_add(pointer: Pointer, value: torch.Tensor, mask: Any = True, sem: str = "acq_rel") -> None:
    offsets, mask, value = torch.broadcast_tensors(
        torch.as_tensor(pointer.offsets), torch.as_tensor(mask), torch.as_tensor(value)
    )
    pointer.memory.index_add_(0, offsets[mask], value[mask].to(pointer.memory.dtype))


def _allocate(dtype: Any, shape: Sequence[int], layout: Any) -> Any:
    if dtype is torch.int64:
        return Barriers(shape[0])
    # NaN until written
    return SharedMemory(torch.full(tuple(shape), math.nan, dtype=dtype))


def _run_partitions(partitions: Sequence[tuple[Callable[..., None], tuple[Any, ...]]], *options: Any) -> None:
    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def run(partition: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        try:
            # the mode of the thread that launches the kernel; new threads record gradients
            with torch.no_grad():
                partition(*arguments)
            ended.put(None)
        except BaseException as failure:
            ended.put(failure)

    for partition in partitions:
        Thread(target=run, args=partition, daemon=True).start()
    for _ in partitions:
        # raised at once, as the other partitions would wait for the failed one
        if failure := ended.get():
            raise failure


def _language(program: int, programs: int) -> SimpleNamespace:
    """Return the replacement of the module `gl` for one program."""
    return SimpleNamespace(
        program_id=lambda axis: torch.tensor(program),
        num_programs=lambda axis: torch.tensor(programs),
        allocate_shared_memory=_allocate,
        warp_specialize=_run_partitions,
        static_range=range,
        cdiv=lambda a, b: (a + b - 1) // b,
        arange=lambda start, end, layout: torch.arange(start, end),
        zeros=lambda shape, dtype, layout: simulated(torch.zeros(shape, dtype=dtype)),
        zeros_like=torch.zeros_like,
        full=lambda shape, value, dtype, layout: simulated(torch.full(shape, value, dtype=dtype)),
        max=lambda x, axis: x.amax(axis),
        sum=lambda x, axis: x.sum(axis),
        exp2=torch.exp2,
        rsqrt=torch.rsqrt,
        where=lambda condition, a, b: torch.where(torch.as_tensor(condition), a, b),
        minimum=lambda a, b: torch.minimum(torch.as_tensor(a), torch.as_tensor(b)),
        maximum=lambda a, b: torch.maximum(torch.as_tensor(a), torch.as_tensor(b)),
        fma=lambda a, b, c: a * b + c,
        expand_dims=torch.unsqueeze,
        # a partition is one thread
        thread_barrier=lambda: None,
        convert_layout=lambda x, layout, assert_trivial=False: x,
        load=_load,
        store=_store,
        atomic_add=_atomic_add,
        SliceLayout=lambda *_: None,
        BlockedLayout=lambda *_: None,
        NVMMASharedLayout=lambda *_: None,
        NVMMADistributedLayout=lambda *_: None,
        DotOperandLayout=lambda *_: None,
        DistributedLinearLayout=lambda *_: None,
        int64=torch.int64,
        int32=torch.int32,
        float32=torch.float32,
        constexpr=gl.constexpr,
    )


class SimulatedKernel:
    """A replacement for a kernel that runs its programs one after another when it is launched.

    Args:
        module: the kernel's module.
        name: the kernel's name in it.
        replaced: Python functions that replace functions of the module which consist of GPU instructions, by
            name.
    """

    def __init__(self, module: ModuleType, name: str, **replaced: Any) -> None:
        self.module, self.kernel, self.replaced = module, getattr(module, name), replaced

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *arguments, **constants: self._run(grid[0], *arguments, **constants)

    def _run(self, programs: int, *positional: Any, **named: Any) -> None:
        """Run all programs with the arguments of a launch; options of the launcher are ignored."""
        arguments = {**dict(zip(self.kernel.arg_names, positional, strict=False)), **named}
        for name, value in arguments.items():
            if isinstance(value, TensorDescriptor):
                arguments[name] = SimulatedDescriptor(value)
            elif isinstance(value, torch.Tensor):
                memory = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
                arguments[name] = Pointer(memory, torch.tensor(value.storage_offset()))
            elif type(value) is int and not name.isupper():
                arguments[name] = torch.tensor(value)
        for program in range(programs):
            names = _simulated_names(self.module, _language(program, programs), self.replaced)
            run = FunctionType(self.kernel.fn.__code__, names)
            run(**{name: value for name, value in arguments.items() if name in self.kernel.arg_names})


def _simulated_names(
    module: ModuleType, language: SimpleNamespace, replaced: dict[str, Any]
) -> dict[str, Any]:
    """Return the global names of a module, with its device functions as Python functions."""
    cores, stores = TensorCores(), PendingCalls()
    names: dict[str, Any] = {
        "gl": language,
        "tma": SimpleNamespace(
            async_copy_global_to_shared=lambda tiles, start, barrier, buffer: barrier.change(
                announced=-tiles.copy_to(start, buffer)
            ),
            async_copy_shared_to_global=lambda tiles, start, buffer: stores.begin(
                lambda: tiles.copy_from(start, buffer)
            ),
            store_wait=stores.wait,
        ),
        "mbarrier": SimpleNamespace(
            MBarrierLayout=lambda: None,
            init=lambda barrier, count: barrier.init(count),
            expect=lambda barrier, size: barrier.change(arrivals=1, announced=size),
            arrive=lambda barrier, count=1, pred=True: pred and barrier.change(arrivals=count),
            wait=lambda barrier, phase, pred=True: pred and barrier.wait(int(phase)),
        ),
        "fence_async_shared": lambda: None,
        "warpgroup_mma": cores.multiply,
        "warpgroup_mma_wait": cores.wait,
    }
    modules = [module]
    for each in modules:
        for name, value in vars(each).items():
            if isinstance(value, gl.constexpr):
                names.setdefault(name, value.value)
            elif isinstance(value, GluonJITFunction):
                names.setdefault(name, FunctionType(value.fn.__code__, names, argdefs=value.fn.__defaults__))
                if (home := sys.modules[value.fn.__module__]) not in modules:
                    modules.append(home)
    names |= replaced
    return names
