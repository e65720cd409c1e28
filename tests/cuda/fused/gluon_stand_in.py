"""Runs a kernel in Gluon on CPU tensors: every partition is a thread, and what it calls is a stand-in here.

Triton's interpreter does not know Gluon. Layouts say where numbers are, not which, and are not looked at; all
else is as on the GPU: tiles that are copied complete barriers by their bytes, barriers have phases, and an
asynchronous product reads shared memory when it is waited for, the latest it may, so that what is given back
too early shows in the result, and what is never given back as a wait without end.
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

# seconds that a partition waits for a barrier before it is held to be stuck
PATIENCE = 60


class Barrier:
    """An mbarrier: a phase ends when all have arrived and all announced bytes have come."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.ended, self.count, self.missing, self.bytes = 0, 0, 0, 0

    def init(self, count: int) -> None:
        self.count = self.missing = count

    def change(self, arrivals: int = 0, announced: int = 0) -> None:
        with self.changed:
            self.missing -= arrivals
            self.bytes += announced
            if self.missing == 0 and self.bytes == 0:
                self.ended, self.missing = self.ended + 1, self.count
                self.changed.notify_all()

    def wait(self, phase: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.ended & 1 != phase, PATIENCE), "stuck at a barrier"


class Barriers:
    """Several, as they are allocated."""

    def __init__(self, count: int) -> None:
        self.all = [Barrier() for _ in range(count)]

    def index(self, k: Any) -> Barrier:
        return self.all[int(k)]


class Numbers(torch.Tensor):
    """A tensor with what Gluon's have and PyTorch's have not, or as another method."""

    type = SimpleNamespace(layout=None)

    def split(self) -> "tuple[Numbers, Numbers]":  # type: ignore[override]
        first, second = self.unbind(-1)
        return first, second  # type: ignore[return-value]


def numbers(x: torch.Tensor) -> Numbers:
    return x.as_subclass(Numbers)


class Shared:
    """A view of shared memory."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data, self.dtype, self.shape, self.numel = data, data.dtype, data.shape, data.numel()

    def index(self, k: Any) -> "Shared":
        return Shared(self.data[int(k)])

    def _reinterpret(self, dtype: torch.dtype, shape: Sequence[int], layout: Any) -> "Shared":
        assert dtype == self.dtype
        if math.prod(shape) == self.numel:
            return self.reshape(shape)
        # tiles of 128 bytes a row that lie behind each other are one with wider rows
        rows, columns = shape
        tiles = columns * dtype.itemsize // 128
        return Shared(
            self.data.as_strided(
                (rows, tiles, columns // tiles), (columns // tiles, columns // tiles * rows, 1)
            )
        )

    def slice(self, start: int, length: int, dim: int = 0) -> "Shared":
        return Shared(self.data.narrow(dim, start, length))

    def reshape(self, shape: Sequence[int]) -> "Shared":
        return Shared(self.data.view(*shape))

    def permute(self, order: Sequence[int]) -> "Shared":
        return Shared(self.data.permute(tuple(order)))

    def load(self, layout: Any) -> Numbers:
        return numbers(self.data.clone())

    def store(self, value: torch.Tensor) -> None:
        self.data.copy_(value.reshape(self.data.shape))


class Pointer:
    """Places in a tensor's memory."""

    def __init__(self, memory: torch.Tensor, offsets: Any = 0) -> None:
        self.memory, self.offsets = memory, offsets
        self.dtype = SimpleNamespace(element_ty=memory.dtype)

    def __add__(self, other: Any) -> "Pointer":
        return Pointer(self.memory, self.offsets + other)


class Tiles:
    """A descriptor of tiles."""

    def __init__(self, descriptor: TensorDescriptor) -> None:
        self.tensor, self.layout, self.dtype = descriptor.base, descriptor.layout, descriptor.base.dtype
        shape = list(descriptor.block_shape)
        self.block_type = SimpleNamespace(
            shape=shape, nbytes=math.prod(shape) * descriptor.base.element_size()
        )

    def _places(self, start: Sequence[Any]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Of what there is of a tile, the places in the tensor and in the tile."""
        begins = [int(begin) for begin in start]
        assert begins[-1] * self.tensor.element_size() % 16 == 0
        ends = [
            max(begin, min(begin + size, most))
            for begin, size, most in zip(begins, self.block_type.shape, self.tensor.shape, strict=True)
        ]
        there = [slice(begin, end) for begin, end in zip(begins, ends, strict=True)]
        return tuple(there), tuple(slice(0, part.stop - part.start) for part in there)

    def copy_to(self, start: Sequence[Any], buffer: Shared) -> int:
        """Copy a tile, 0 where there is nothing; how many bytes that is."""
        there, here = self._places(start)
        buffer.data.zero_()
        buffer.data[here] = self.tensor[there]
        return int(self.block_type.nbytes)

    def copy_from(self, start: Sequence[Any], buffer: Shared) -> None:
        there, here = self._places(start)
        self.tensor[there] = buffer.data[here]


class Later:
    """What a partition has begun and not waited for, oldest first."""

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


class Product:
    """An asynchronous product: its value is there once it has been waited for."""

    value: Numbers | None = None


class TensorCores:
    """Products of matrices."""

    def __init__(self) -> None:
        self.later = Later()

    def multiply(self, a: Any, b: Shared, acc: Any, use_acc: Any = True, is_async: bool = False) -> Any:
        def computed() -> Numbers:
            left = a.data if isinstance(a, Shared) else a
            onto = acc.value if isinstance(acc, Product) else acc
            return numbers(left.float() @ b.data.float() + (onto if use_acc else 0))

        if not is_async:
            self.later.wait(0)
            return computed()
        product = Product()
        self.later.begin(lambda: setattr(product, "value", computed()))
        return product

    def wait(self, outstanding: int, deps: Sequence[Any]) -> Any:
        self.later.wait(outstanding)
        known = [x.value if isinstance(x, Product) and x.value is not None else x for x in deps]
        return known[0] if len(known) == 1 else tuple(known)


def _load(place: Pointer, mask: Any = True, other: float = 0.0) -> torch.Tensor:
    offsets, mask = torch.broadcast_tensors(torch.as_tensor(place.offsets), torch.as_tensor(mask))
    values = place.memory[torch.where(mask, offsets, 0)]
    return torch.where(mask, values, torch.tensor(other, dtype=values.dtype))


def _store(place: Pointer, value: torch.Tensor, mask: Any = True) -> None:
    offsets, mask, value = torch.broadcast_tensors(
        torch.as_tensor(place.offsets), torch.as_tensor(mask), torch.as_tensor(value)
    )
    place.memory[offsets[mask]] = value[mask].to(place.memory.dtype)


def _allocated(dtype: Any, shape: Sequence[int], layout: Any) -> Any:
    if dtype is torch.int64:
        return Barriers(shape[0])
    # what nobody wrote is not a number
    return Shared(torch.full(tuple(shape), math.nan, dtype=dtype))


def _side_by_side(partitions: Sequence[tuple[Callable[..., None], tuple[Any, ...]]], *options: Any) -> None:
    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def run(partition: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        try:
            partition(*arguments)
            ended.put(None)
        except BaseException as failure:
            ended.put(failure)

    for partition in partitions:
        Thread(target=run, args=partition, daemon=True).start()
    for _ in partitions:
        # the others would wait for it
        if failure := ended.get():
            raise failure


def _language(program: int, programs: int) -> SimpleNamespace:
    """What `gl` is to one program."""
    return SimpleNamespace(
        program_id=lambda axis: torch.tensor(program),
        num_programs=lambda axis: torch.tensor(programs),
        allocate_shared_memory=_allocated,
        warp_specialize=_side_by_side,
        static_range=range,
        cdiv=lambda a, b: (a + b - 1) // b,
        arange=lambda start, end, layout: torch.arange(start, end),
        zeros=lambda shape, dtype, layout: numbers(torch.zeros(shape, dtype=dtype)),
        full=lambda shape, value, dtype, layout: numbers(torch.full(shape, value, dtype=dtype)),
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


class InPython:
    """Takes a kernel's place in its module: its programs run one after another when it is launched.

    Args:
        module: the kernel's.
        name: the kernel's in it.
        replaced: functions of the module that are instructions of the GPU, by name, and what does the same.
    """

    def __init__(self, module: ModuleType, name: str, **replaced: Any) -> None:
        self.module, self.kernel, self.replaced = module, getattr(module, name), replaced

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *given, **named: self._run(grid[0], *given, **named)

    def _run(self, programs: int, *given: Any, **named: Any) -> None:
        """With a launch's arguments, of which the launcher's options are left out."""
        arguments = {**dict(zip(self.kernel.arg_names, given, strict=False)), **named}
        for name, value in arguments.items():
            if isinstance(value, TensorDescriptor):
                arguments[name] = Tiles(value)
            elif isinstance(value, torch.Tensor):
                memory = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
                arguments[name] = Pointer(memory, torch.tensor(value.storage_offset()))
            elif type(value) is int and not name.isupper():
                arguments[name] = torch.tensor(value)
        for program in range(programs):
            names = _in_python(self.module, _language(program, programs), self.replaced)
            run = FunctionType(self.kernel.fn.__code__, names)
            run(**{name: value for name, value in arguments.items() if name in self.kernel.arg_names})


def _in_python(module: ModuleType, language: SimpleNamespace, replaced: dict[str, Any]) -> dict[str, Any]:
    """The module's names, its kernels as functions of Python."""
    cores, stores = TensorCores(), Later()
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
