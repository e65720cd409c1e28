"""Find the fastest launch options of the network's Triton kernels on this GPU, in bfloat16.

    python -m recipes.tune_kernels [OPERATION ...] [--sizes 512x128,1024x128]

Prints the best options of each kernel and size, for the launch tables `cuda/fused/*/tuning/*.json`.
Operations and sizes are those of benchmarks/operations.py.
"""

import argparse
import json
import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.fused_timing import Call, milliseconds
from benchmarks.operations import (
    INNER,
    OPERATIONS,
    Size,
    attention_core,
    layer_norm_inputs,
    multiplication_inputs,
    outer_inputs,
    pair_bias_inputs,
    transition_inputs,
)
from cuda.fused.attention import triton as attention_triton
from cuda.fused.layer_norm import triton as layer_norm_triton
from cuda.fused.outer_product_mean import triton as outer_triton
from cuda.fused.pair_bias import triton as pair_bias_triton
from cuda.fused.transition import triton as transition_triton
from cuda.fused.triangle_multiplication import triton as multiplication_triton

PRECISION = {"PRECISION": "ieee"}


def with_options(module: ModuleType, options: dict[str, Any], call: Call) -> Call:
    """Return a call of a module's kernels with these launch options instead of those of the launch table."""

    def called() -> Any:
        with patch.object(module, "choose_launch", lambda *_, **__: dict(options)):
            return call()

    return called


class Tuner:
    """A timer of launch options, with worker processes that compile them in parallel first.

    Args:
        run_once: compiles and runs a launch in a worker, given (size, options); small sizes are enough.
        processes: number of workers.
    """

    def __init__(self, run_once: Callable[[Any], None], processes: int = 12) -> None:
        self.run_once = run_once
        self.pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))

    def print_best(
        self,
        title: str,
        size: Any,
        timed: Callable[[dict[str, Any]], Call],
        candidates: Iterable[dict[str, Any]],
    ) -> None:
        """Time all candidates, and print the best three as options of a launch table.

        Args:
            title: printed above them.
            size: passed to run_once.
            timed: returns the call to time with some options.
            candidates: options.
        """
        options = list(candidates)
        tried = [self.pool.submit(self.run_once, (size, each)) for each in options]
        works = [each for job, each in zip(tried, options, strict=True) if job.exception() is None]
        times = sorted((milliseconds(timed(each)), json.dumps(each)) for each in works)
        print(f"{title}: {len(times)} of {len(options)} launches work")
        for time, launch in times[:3]:
            print(f"  {time:.3f} ms {launch}", flush=True)


@dataclass(frozen=True)
class Tuning:
    """The launch options of a Triton kernel.

    Args:
        module: the module with the kernel.
        call: returns a call of it for a size.
        small: returns a small size with the same kernel, which is enough to compile it.
        candidates: returns the options to time for a size.
        part: key of the kernel in the launch options; "" if there is only one.
    """

    module: ModuleType
    call: Callable[[Size], Call]
    small: Callable[[Size], Size]
    candidates: Callable[[Size], list[dict[str, Any]]]
    part: str = ""

    def with_options(self, options: dict[str, Any], size: Size) -> Call:
        """Return a call with these launch options."""
        return with_options(self.module, {self.part: options} if self.part else options, self.call(size))


def multiplication_steps(size: Size) -> dict[str, Call]:
    """Return calls of each step of the Triton implementation of triangle multiplication."""
    pair, weights = multiplication_inputs(size)
    x, inner, triton = pair[None], weights.left.shape[1], multiplication_triton

    def options(name: str) -> dict[str, Any]:
        return triton.choose_launch("triangle_multiplication", pair, pair.shape[-1])[name]

    factors = triton.project_factors(x, weights, None, options("operands"))
    result = torch.empty_like(x)
    return {
        "operands": lambda: triton.project_factors(x, weights, None, options("operands")),
        "product": lambda: triton.multiply_factors(factors, inner, True),
        "finish": lambda: triton.finish(factors[:inner], 1.0, weights, x, result, False, options("finish")),
    }


def outer_candidates(size: Size) -> list[dict[str, Any]]:
    """Return launch options of the outer products; those of the factors stay."""
    factors = PRECISION | {"ROWS": 64, "COLUMNS": 32, "num_warps": 4, "num_stages": 1}
    # residues of each factor, tiles of a strip, programs per multiprocessor, registers
    tiles = [(4, 4, 8, 2, 128), (4, 4, 4, 2, 128), (4, 8, 4, 1, None), (8, 4, 4, 1, None), (4, 8, 2, 1, None)]
    return [
        {
            "factors": factors,
            "outer": PRECISION
            | {"LEFT": left, "RIGHT": right, "TILES": count, "SEQUENCES": 64, "DEPTH": depth}
            | {"resident": resident, "num_warps": 8, "num_stages": stages, "maxnreg": registers},
        }
        for (left, right, count, resident, registers), depth, stages in product(tiles, (64, 128), (2, 3))
    ]


def multiplication_candidates(size: Size) -> list[dict[str, Any]]:
    """Return launch options of the kernel that makes the operands of triangle multiplication."""
    shapes = product((64, 128, 256), (16, 32, 64, 128), (4, 8), (1, 2, 3))
    return [
        PRECISION
        | {"POSITIONS": positions, "INNER": inner, "CHUNK": min(128, size[1])}
        | {"num_warps": warps, "num_stages": stages}
        for positions, inner, warps, stages in shapes
        if 2 * positions * inner <= 4096 * warps and positions * INNER <= 4096 * warps
    ]


def attention_candidates(size: Size) -> list[dict[str, Any]]:
    """Return launch options of the core of attention."""
    shapes = product((1, 2), (64, 128), (32, 64, 128), (4, 8), (2, 3, 4), (None, 128, 168))
    return [
        PRECISION
        | {"ROWS": rows, "QUERIES": queries, "KEYS": keys, "STAGES": stages}
        | {"num_warps": warps, "maxnreg": registers}
        for rows, queries, keys, warps, stages, registers in shapes
        # with fewer threads they spill, with more these have too little work
        if queries * keys * rows <= 64 * 128 * warps // 4 and queries * 4 >= 64 * warps
    ]


def called_with(function: Callable[..., Any], inputs: Callable[[Size], Any]) -> Callable[[Size], Call]:
    """Return a function that returns a call for a size."""

    def call(size: Size) -> Call:
        tensors = inputs(size)
        return lambda: function(*tensors)

    return call


LAYER_NORM = Tuning(
    layer_norm_triton,
    called_with(layer_norm_triton.layer_norm, layer_norm_inputs),
    lambda size: (16, size[1]),
    lambda _: [
        {"ROWS": rows, "num_warps": warps} for rows, warps in product((1, 2, 4, 8, 16, 32), (1, 2, 4, 8))
    ],
)
PAIR_BIAS = Tuning(
    pair_bias_triton,
    called_with(pair_bias_triton.pair_bias, pair_bias_inputs),
    lambda size: (32, size[1]),
    lambda _: [
        PRECISION | {"QUERIES": queries, "KEYS": keys, "num_warps": warps}
        for (queries, keys), warps in product(
            [(1, 32), (4, 8), (1, 64), (4, 16), (8, 8), (2, 64), (4, 32), (8, 16)], (2, 4, 8)
        )
        # each warp needs at least the 16 rows of a product
        if queries * keys >= 16 * warps
    ],
)
TRANSITION = Tuning(
    transition_triton,
    called_with(transition_triton.transition, transition_inputs),
    lambda size: (16, size[1]),
    lambda _: [
        PRECISION | {"ROWS": rows, "HIDDEN": hidden, "num_warps": warps, "num_stages": stages}
        for (rows, warps), hidden, stages in product(
            [(64, 4), (128, 4), (128, 8), (256, 8)], (32, 64, 128), (1, 2, 3)
        )
    ],
)
OUTER_PRODUCT = Tuning(
    outer_triton,
    called_with(outer_triton.outer_product_mean, outer_inputs),
    lambda size: (16, 16, size[2]),
    outer_candidates,
)
OPERANDS = Tuning(
    multiplication_triton,
    lambda size: multiplication_steps(size)["operands"],
    lambda size: (64, size[1]),
    multiplication_candidates,
    "operands",
)
FINISH = Tuning(
    multiplication_triton,
    lambda size: multiplication_steps(size)["finish"],
    lambda size: (64, size[1]),
    lambda _: [
        PRECISION | {"POSITIONS": positions, "OUTPUTS": outputs, "num_warps": warps, "num_stages": stages}
        for positions, outputs, warps, stages in product((32, 64, 128), (32, 64, 128), (4, 8), (1, 2, 3))
    ],
    "finish",
)
ATTENTION = Tuning(
    attention_triton,
    lambda size: attention_core(size[0], "triton"),
    lambda _: (16,),
    attention_candidates,
    "attend",
)

TUNINGS: dict[str, tuple[Tuning, ...]] = {
    "layer_norm": (LAYER_NORM,),
    "pair_bias": (PAIR_BIAS,),
    "transition": (TRANSITION,),
    "outer_product_mean": (OUTER_PRODUCT,),
    "triangle_multiplication": (OPERANDS, FINISH),
    "triangle_attention": (ATTENTION,),
}


def launch_once(job: tuple[tuple[str, int, Size], dict[str, Any]]) -> None:
    """Compile and run a kernel with some options, in a worker process."""
    (name, number, size), options = job
    tuning = TUNINGS[name][number]
    tuning.with_options(options, tuning.small(size))()
    torch.cuda.synchronize()


def tune(tuner: Tuner, name: str, size: Size) -> None:
    """Print the best launch options of each kernel of an operation."""
    for number, tuning in enumerate(TUNINGS[name]):
        call = tuning.call(size)
        tuner.print_best(
            f"{name} {tuning.part} {'x'.join(map(str, size))}",
            (name, number, size),
            lambda options, tuning=tuning, call=call: with_options(
                tuning.module, {tuning.part: options} if tuning.part else options, call
            ),
            tuning.candidates(size),
        )


def main() -> None:
    """Print the best launch options of each operation and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("operations", nargs="*", metavar="OPERATION", help=f"of {', '.join(TUNINGS)}")
    parser.add_argument("--sizes", help="sizes of one operation, such as 512x128,1024x128")
    options = parser.parse_args()
    names = options.operations or list(TUNINGS)
    if unknown := [name for name in names if name not in TUNINGS]:
        parser.error(f"unknown operation {unknown[0]}; known: {', '.join(TUNINGS)}")
    if options.sizes and len(names) > 1:
        parser.error("--sizes needs one operation")
    tuner = Tuner(launch_once)
    for name in names:
        for text in (options.sizes or OPERATIONS[name].sizes).split(","):
            tune(tuner, name, tuple(int(n) for n in text.split("x")))


if __name__ == "__main__":
    main()
