"""A benchmark of the kernels of training: milliseconds and GiB of a forward and backward pass in bfloat16.

    python benchmarks/training_kernels.py [--parts block,transition,multiplication,attention] [--blocks 3]

attention: the core of triangle attention, without its projections, 4 heads × 32.
multiplication: triangle multiplication of 128 channels with its LayerNorm.
transition: the transition of 384² rows of 128 channels with its LayerNorm.
block: one Evoformer block with 256 MSA and 128 pair channels, compiled by torch.compile, with the fused
operations and with plain PyTorch.

Times are those of CUDA graphs, so that the launching CPU does not count. Memory is the peak of a pass without
a graph, beyond its inputs. cuEquivariance is timed if it is installed.

--blocks: number of block sizes.
"""

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch
from fused_timing import cuequivariance_arguments
from options import parse_options

from cuda.fused.attention import differentiable as attention
from cuda.fused.transition import TransitionWeights
from cuda.fused.transition import differentiable as transition
from cuda.fused.triangle_multiplication import TriangleMultiplicationWeights
from cuda.fused.triangle_multiplication import differentiable as multiplication
from model.alphafold2.modules.config import MsaConfig, PairConfig, StackConfig
from model.alphafold2.modules.evoformer import EvoformerBlock
from model.layers.kernels import select_kernels
from model.training.alphafold2.network import evoformer_block
from model.training.runtime.execution import configure_compiler

HEADS, WIDTH, CHANNELS = 4, 32, 128
Step = Callable[[], Sequence[torch.Tensor]]
BLOCKS = ((128, 256), (256, 384), (128, 512))
LENGTHS = (128, 256, 512)


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


def attention_inputs(length: int) -> tuple[torch.Tensor, ...]:
    projected = random(1, length, length, 4 * HEADS * WIDTH).requires_grad_()
    mask = (torch.rand(1, 1, length, device="cuda") > 0.1).float()
    mask[..., length // 2] = 1
    bias = random(1, HEADS, length, length).requires_grad_()
    return projected, random(HEADS, WIDTH).requires_grad_(), mask, bias


def time_attention() -> None:
    for length in LENGTHS:
        inputs = attention_inputs(length)
        fused = differentiated(attention.attend_fused, *inputs)
        compiled = differentiated(torch.compile(attention.attend_reference, dynamic=False), *inputs)
        with torch.no_grad():
            forward = graph_milliseconds(lambda: [attention.attend_fused(*inputs)])  # noqa: B023
        cells = [f"ours {graph_milliseconds(fused):.3f} (forward {forward:.3f})"]
        cells.append(f"torch.compile {graph_milliseconds(compiled):.3f}")
        if find_spec("cuequivariance_torch") is not None:
            cells.append(f"cuEquivariance {graph_milliseconds(cuequivariance_attention(length)):.3f}")
        cells.append(f"memory {peak_gib(fused):.3f}, torch.compile {peak_gib(compiled):.3f} GiB")
        print(f"triangle attention N {length}:", " | ".join(cells), flush=True)


def cuequivariance_attention(length: int) -> Step:
    from cuequivariance_torch import triangle_attention

    q, k, v = (random(1, length, HEADS, length, WIDTH).requires_grad_() for _ in range(3))
    bias = random(1, 1, HEADS, length, length).requires_grad_()
    mask = torch.ones(1, length, 1, 1, length, dtype=torch.bool, device="cuda")
    return differentiated(lambda *x: triangle_attention(*x, mask), q, k, v, bias)


def multiplication_steps(length: int) -> dict[str, Step]:
    """Return forward and backward passes of triangle multiplication by several implementations."""
    c = CHANNELS
    shapes: list[tuple[int, ...]] = [(c,), (c,), *[(c, c), (c,)] * 4, (c,), (c,), (c, c), (c,), (c, c), (c,)]
    weights = [(random(*s) * (s[0] ** -0.5 if len(s) > 1 else 1.0)).requires_grad_() for s in shapes]
    pair = random(1, length, length, c).requires_grad_()
    mask = torch.ones(1, length, length, device="cuda")

    def normalised(update: Callable[..., torch.Tensor], x: torch.Tensor, *w: torch.Tensor) -> torch.Tensor:
        normed = torch.nn.functional.layer_norm(x, x.shape[-1:], w[0], w[1])
        return update(normed, TriangleMultiplicationWeights(*w), mask, True)

    steps = {
        name: differentiated(torch.compile(partial(normalised, update), dynamic=False), pair, *weights)
        for name, update in (
            ("ours", multiplication.update_fused),
            ("torch.compile", multiplication.update_reference),
        )
    }
    if find_spec("cuequivariance_torch") is not None:
        steps["cuEquivariance"] = differentiated(cuequivariance_multiplication, pair, *weights)
    return steps


def cuequivariance_multiplication(pair: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    from cuequivariance_torch import triangle_multiplicative_update

    named = cuequivariance_arguments(TriangleMultiplicationWeights(*weights))
    result: torch.Tensor = triangle_multiplicative_update(pair, "outgoing", **named)
    return result


def time_multiplication() -> None:
    for length in LENGTHS:
        steps = multiplication_steps(length)
        cells = [f"{name} {graph_milliseconds(step):.3f}" for name, step in steps.items()]
        cells += [f"{name} {peak_gib(step):.3f} GiB" for name, step in steps.items()]
        print(f"triangle multiplication N {length}:", " | ".join(cells), flush=True)


def transition_inputs() -> list[torch.Tensor]:
    c, w = CHANNELS, 4 * CHANNELS
    shapes: list[tuple[int, ...]] = [(384**2, c), (c,), (c,), (c, w), (w,), (w, c), (c,)]
    scales = (1.0, 1.0, 1.0, c**-0.5, 1.0, w**-0.5, 1.0)
    return [random(*s) * scale for s, scale in zip(shapes, scales, strict=True)]


def time_transition() -> None:
    inputs = [x.requires_grad_() for x in transition_inputs()]
    steps = {
        name: differentiated(
            torch.compile(lambda x, *w, f=function: f(x, TransitionWeights(*w)), dynamic=False), *inputs
        )
        for name, function in (
            ("ours", transition.transition_fused),
            ("torch.compile", transition.transition_reference),
        )
    }
    cells = [f"{name} {graph_milliseconds(step):.3f}" for name, step in steps.items()]
    cells += [f"{name} {peak_gib(step):.3f} GiB" for name, step in steps.items()]
    print("transition N 384:", " | ".join(cells), flush=True)


def block_step(rows: int, length: int, kernels: str) -> Step:
    """Return a forward and backward pass of one compiled Evoformer block."""
    configure_compiler()
    torch.manual_seed(0)
    block = EvoformerBlock(
        StackConfig(1, MsaConfig(), PairConfig()), select_kernels(kernels, "cuda")
    ).requires_grad_(True)
    for weight in block.parameters():
        torch.nn.init.normal_(weight, std=weight.shape[0] ** -0.5 if weight.dim() > 1 else 0.1)
    block.to("cuda")
    msa, pair = random(1, rows, length, 256), random(1, length, length, 128)
    msa_mask = torch.ones(1, rows, length, device="cuda")
    seq_mask = torch.ones(1, length, device="cuda")
    masks = msa_mask, seq_mask[:, None], msa_mask[:, :, :1], seq_mask
    dropout = torch.ones((), device="cuda")
    runner = torch.compile(evoformer_block, dynamic=False)

    def run(msa: torch.Tensor, pair: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        result: tuple[torch.Tensor, torch.Tensor] = runner(block, msa, pair, *masks, dropout)
        return result

    return differentiated(run, msa.requires_grad_(), pair.requires_grad_(), *block.parameters())


def warm_block(job: tuple[int, int, str]) -> None:
    """Fill torch.compile's cache on disk."""
    block_step(*job)()
    torch.cuda.synchronize()


def time_blocks(shapes: Sequence[tuple[int, int]]) -> None:
    jobs = [(*shape, kernels) for shape in shapes for kernels in ("fused", "reference")]
    with ProcessPoolExecutor(len(jobs), multiprocessing.get_context("spawn")) as pool:
        list(pool.map(warm_block, jobs))
    for rows, length in shapes:
        # the compiled code of one shape is used for all blocks of that shape only
        torch._dynamo.reset()
        fused, plain = (block_step(rows, length, kernels) for kernels in ("fused", "reference"))
        ours, others = graph_milliseconds(fused), graph_milliseconds(plain)
        memory, other_memory = peak_gib(fused), peak_gib(plain)
        print(
            f"Evoformer block {rows, length}: {ours:.2f} ms, torch.compile "
            f"{others:.2f} ({others / ours:.2f} x) | {memory:.2f} GiB, torch.compile {other_memory:.2f} "
            f"({memory / other_memory:.2f} x)",
            flush=True,
        )


def main() -> None:
    options = parse_options(__doc__, parts="block,transition,multiplication,attention", blocks=len(BLOCKS))
    parts: dict[str, Callable[[], None]] = {
        "block": partial(time_blocks, BLOCKS[: options.blocks]),
        "transition": time_transition,
        "multiplication": time_multiplication,
        "attention": time_attention,
    }
    for name in options.parts.split(","):
        try:
            parts[name]()
        except Exception:  # the other parts are worth their time on a GPU
            traceback.print_exc()


if __name__ == "__main__":
    main()
