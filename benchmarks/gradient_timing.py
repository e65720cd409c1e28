"""Tools of the benchmark of training: passes with gradients, their time and memory, errors, profiles."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

Step = Callable[[], Sequence[torch.Tensor]]


def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=dtype)


def differentiated(function: Callable[..., Any], *inputs: torch.Tensor | None) -> Step:
    """Return a call of a function that returns its results and the gradients of the inputs that need one."""
    wanted = [x for x in inputs if x is not None and x.requires_grad]
    upstream: list[torch.Tensor] = []

    def step() -> Sequence[torch.Tensor]:
        result = function(*inputs)
        results = result if isinstance(result, tuple) else (result,)
        if not upstream:
            upstream.extend(torch.randn_like(x) for x in results)
        return (*results, *torch.autograd.grad(results, wanted, upstream))

    return step


def graph_milliseconds(step: Step, repeats: int = 20) -> float:
    """Return the median time of a replay of the step's CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    times = []
    for _ in range(repeats + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return median(times[3:])


def peak_gib(step: Step) -> float:
    """Return the peak memory of a call, beyond what is allocated before it."""
    step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def ratios(
    fused: Sequence[torch.Tensor], plain: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]
) -> list[str]:
    """Return the largest and the root mean square error of each tensor, relative to plain PyTorch."""
    cells = []
    for x, y, e in zip(fused, plain, exact, strict=True):
        ours, others = x.double() - e, y.double() - e
        cells.append(f"{ours.abs().max() / others.abs().max():.2f}/{ours.norm() / others.norm():.2f}")
    return cells


def print_profile(step: Step) -> None:
    """Print the kernels that take most of the time, and the operators of PyTorch that launch any."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as profiler:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    kernels = [event for event in profiler.key_averages() if event.device_type == DeviceType.CUDA]
    print(f"  {sum(event.self_device_time_total for event in kernels) / 3000:.3f} ms in kernels")
    for event in sorted(kernels, key=lambda e: -e.self_device_time_total)[:45]:
        print(f"  {event.self_device_time_total / 3000:.3f} ms {event.count // 3:3d} x {event.key[:90]}")
    operators = profiler.key_averages(group_by_input_shape=True)
    operators = [event for event in operators if event.device_type == DeviceType.CPU and "aten" in event.key]
    for event in sorted(operators, key=lambda e: -e.self_device_time_total)[:45]:
        shapes = str(event.input_shapes)[:70]
        print(f"  {event.self_device_time_total / 3000:.3f} ms {event.count // 3:3d} x {event.key} {shapes}")
