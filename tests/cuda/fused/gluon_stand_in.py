"""Runs a kernel in Gluon on CPU tensors: every partition is a thread, and what it calls is a stand-in here.

Triton's interpreter does not know Gluon. Layouts say where numbers are, not which, and are not looked at; all
else is as on the GPU: tiles that are copied complete barriers by their bytes, barriers have phases, and an
asynchronous product reads shared memory when it is waited for, the latest it may, so that what is given back
too early shows in the result, and what is never given back as a wait without end.
"""

import math
from collections.abc import Callable, Sequence
from threading import Condition, Thread
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


class Shared:
    """A view of shared memory."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data, self.dtype = data, data.dtype

    def index(self, k: Any) -> "Shared":
        return Shared(self.data[int(k)])

    def _reinterpret(self, dtype: torch.dtype, shape: Sequence[int], layout: Any) -> "Shared":
        assert dtype == self.dtype
        return Shared(self.data.view(*shape))

    def permute(self, order: tuple[int, ...]) -> "Shared":
        return Shared(self.data.permute(order))

    def load(self, layout: Any) -> torch.Tensor:
        return self.data.clone()

    def store(self, value: torch.Tensor) -> None:
        self.data.copy_(value)


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
        self.tensor, self.block, self.layout = descriptor.base, descriptor.block_shape, descriptor.layout
        self.dtype = self.tensor.dtype

    def copy_to(self, start: Sequence[Any], buffer: Shared) -> int:
        """Copy a tile, 0 where there is nothing; how many bytes that is."""
        buffer.data.zero_()
        ends = [min(int(s) + b, n) for s, b, n in zip(start, self.block, self.tensor.shape, strict=True)]
        if all(int(s) < e for s, e in zip(start, ends, strict=True)):
            there = self.tensor[tuple(slice(int(s), e) for s, e in zip(start, ends, strict=True))]
            buffer.data[tuple(slice(0, n) for n in there.shape)] = there
        return math.prod(self.block) * self.tensor.element_size()


def _product(a: Any, b: Shared, acc: torch.Tensor, use_acc: bool = True, is_async: bool = False) -> Any:
    def computed() -> torch.Tensor:
        left = a.data if isinstance(a, Shared) else a
        return left.float() @ b.data.float() + (acc if use_acc else 0)

    return computed if is_async else computed()


def _waited(outstanding: int, deps: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    assert outstanding == 0
    return tuple(dep() if callable(dep) else dep for dep in deps)


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


def _side_by_side(partitions: Sequence[tuple[Callable[..., None], tuple[Any, ...]]], *_: Any) -> None:
    failures: list[BaseException] = []

    def run(partition: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        try:
            partition(*arguments)
        except BaseException as failure:
            failures.append(failure)

    threads = [Thread(target=run, args=partition, daemon=True) for partition in partitions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


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
        zeros=lambda shape, dtype, layout: torch.zeros(shape, dtype=_dtype(dtype)),
        full=lambda shape, value, dtype, layout: torch.full(shape, value, dtype=_dtype(dtype)),
        max=lambda x, axis: x.amax(axis),
        sum=lambda x, axis: x.sum(axis),
        exp2=torch.exp2,
        where=torch.where,
        convert_layout=lambda x, layout, assert_trivial=False: x,
        load=_load,
        store=_store,
        SliceLayout=gl.SliceLayout,
        BlockedLayout=gl.BlockedLayout,
        int64=torch.int64,
        int32=torch.int32,
        float32=torch.float32,
        constexpr=gl.constexpr,
    )


def _dtype(dtype: Any) -> torch.dtype:
    return dtype if isinstance(dtype, torch.dtype) else getattr(torch, dtype.name)


def launch(
    module: ModuleType,
    kernel: GluonJITFunction,
    programs: int,
    replaced: dict[str, Any],
    *given: Any,
    **named: Any,
) -> None:
    """Run a kernel's programs one after another.

    Args:
        module: the kernel's.
        kernel: before anything took its place.
        programs: how many.
        replaced: functions of the module that are instructions of the GPU, by name, and what does the same.
        given, named: the launch's arguments; launch options are left out.
    """
    arguments = {**dict(zip(kernel.arg_names, given, strict=False)), **named}
    for name, value in arguments.items():
        if isinstance(value, TensorDescriptor):
            arguments[name] = Tiles(value)
        elif isinstance(value, torch.Tensor):
            whole = value.untyped_storage()
            memory = torch.empty(0, dtype=value.dtype).set_(whole)
            arguments[name] = Pointer(memory, torch.tensor(value.storage_offset()))
        elif type(value) is int and not name.isupper():
            arguments[name] = torch.tensor(value)
    for program in range(programs):
        names = _in_python(module, _language(program, programs), replaced)
        run = FunctionType(kernel.fn.__code__, names)
        run(**{name: value for name, value in arguments.items() if name in kernel.arg_names})


def _in_python(module: ModuleType, language: SimpleNamespace, replaced: dict[str, Any]) -> dict[str, Any]:
    """The module's names, its kernels as functions of Python."""
    names: dict[str, Any] = {
        "gl": language,
        "tma": SimpleNamespace(
            async_copy_global_to_shared=lambda tiles, start, barrier, buffer: barrier.change(
                announced=-tiles.copy_to(start, buffer)
            )
        ),
        "mbarrier": SimpleNamespace(
            MBarrierLayout=lambda: None,
            init=lambda barrier, count: barrier.init(count),
            expect=lambda barrier, size: barrier.change(arrivals=1, announced=size),
            arrive=lambda barrier, count=1, pred=True: pred and barrier.change(arrivals=count),
            wait=lambda barrier, phase, pred=True: pred and barrier.wait(int(phase)),
        ),
        "fence_async_shared": lambda: None,
        "warpgroup_mma": _product,
        "warpgroup_mma_wait": _waited,
    }
    for name, value in vars(module).items():
        if isinstance(value, gl.constexpr):
            names[name] = value.value
        elif isinstance(value, GluonJITFunction):
            names[name] = FunctionType(value.fn.__code__, names)
    names |= replaced
    return names
