"""Tools of the benchmark of training: passes with gradients, their time and memory, errors, profiles."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

Step = Callable[[], Sequence[torch.Tensor]]
# replays of a profile
PROFILED = 3


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


def recorded(step: Step) -> Callable[[], None]:
    """Return a replay of the step's CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    replay: Callable[[], None] = graph.replay
    return replay


def graph_milliseconds(step: Step, repeats: int = 20) -> float:
    """Return the median time of a replay of the step's CUDA graph."""
    replay = recorded(step)
    times = []
    for _ in range(repeats + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        replay()
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


def print_profile(step: Step, path: Path | None = None) -> None:
    """Print the kernels that take most of the time of a replay of the pass's CUDA graph.

    Args:
        step: a forward and backward pass.
        path: file for all kernels of one replay, in order, with their grids.
    """
    replay = recorded(step)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILED):
            replay()
        torch.cuda.synchronize()
    kernels = [event for event in profiler.key_averages() if event.device_type == DeviceType.CUDA]
    count = sum(event.count for event in kernels) // PROFILED
    total = sum(event.self_device_time_total for event in kernels) / (1000 * PROFILED)
    print(f"  {total:.3f} ms in {count} kernels of a graph")
    for event in sorted(kernels, key=lambda e: -e.self_device_time_total)[:60]:
        milliseconds = event.self_device_time_total / (1000 * PROFILED)
        print(f"  {milliseconds:.3f} ms {event.count // PROFILED:3d} x {event.key[:90]}")
    if path is not None:
        path.write_text("\n".join(kernel_sequence(profiler, count)) + "\n")


def kernel_sequence(profiler: profile, count: int) -> list[str]:
    """Return the last kernels of a profile in order: start and duration in µs, grid, threads, registers."""
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    kernels = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    kernels = sorted(kernels, key=lambda e: e["ts"])[-count:]
    lines = []
    for event in kernels:
        launch = event["args"]
        values = (launch.get(key, "") for key in ("grid", "block", "registers per thread", "shared memory"))
        start = event["ts"] - kernels[0]["ts"]
        lines.append(f"{start:9.1f} {event['dur']:7.1f} {' '.join(map(str, values))} {event['name'][:150]}")
    return lines
