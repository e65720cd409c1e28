"""Milliseconds of the transition of an N × N pair representation.

    python benchmarks/transition.py [--lengths 512,1024] [--channels 64,128,256] [--dtype float32]
    python benchmarks/transition.py --tune

Peers: the reference, which works on some rows at a time, and torch.compile of the whole. "in place" adds the
update to the input; the peers' lines leave the residual out; "any GPU's" is what runs in place where there is
no Hopper GPU. The arithmetic floor is both products at the speed of a large bf16 product.
`--tune` times launches of that in bfloat16 instead, and prints the best as the launch table has them.
"""

import argparse
from itertools import product
from typing import Any

import torch
from fused_timing import Call, Floors, Tuner, on_any_gpu, print_times, using

from cuda.fused.transition import SwigluTransitionWeights, TransitionWeights, kernel, reference

Size = tuple[int, int, int]


def arguments(size: Size, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, TransitionWeights]:
    """Input and weights for N, C and W / C."""
    length, channels, factor = size
    width = factor * channels
    shapes = [(channels,), (channels,), (channels, width), (width,), (width, channels), (channels,)]
    weights = [torch.randn(shape, device="cuda", dtype=dtype) / shape[0] ** 0.5 for shape in shapes]
    x = torch.randn(length, length, channels, device="cuda", dtype=dtype)
    return x, TransitionWeights(*weights)


def run_once(job: tuple[Size, dict[str, Any]]) -> None:
    """Compile and run one launch."""
    (_, channels, factor), options = job
    given = arguments((16, channels, factor))
    on_any_gpu(kernel, using(kernel, options, lambda: kernel.transition(*given)))()
    torch.cuda.synchronize()


def tune(tuner: Tuner, size: Size) -> None:
    """Print the best launches."""
    given = arguments(size)

    def timed(options: dict[str, Any]) -> Call:
        return on_any_gpu(kernel, using(kernel, options, lambda: kernel.transition(*given)))

    candidates = [
        {"ROWS": rows, "HIDDEN": hidden, "PRECISION": "ieee", "num_warps": warps, "num_stages": stages}
        for (rows, warps), hidden, stages in product(
            [(64, 4), (128, 4), (128, 8), (256, 8)], (32, 64, 128), (1, 2, 3)
        )
    ]
    tuner.print_best(f"N {size[0]} C {size[1]} W {size[1] * size[2]}", size, timed, candidates)


def main() -> None:
    """Print one line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", default="512,1024")
    parser.add_argument("--channels", default="64,128,256")
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    lengths, channels = ([int(n) for n in given.split(",")] for given in (options.lengths, options.channels))
    dtype = getattr(torch, options.dtype)
    floors = Floors.measured()
    tuner = Tuner(run_once) if options.tune else None
    for length, width in product(lengths, channels):
        size = (length, width, options.factor)
        if tuner is not None:
            tune(tuner, size)
            continue
        x, weights = arguments(size, dtype)
        swiglu = SwigluTransitionWeights(*weights[:2], weights.widen, weights.widen, weights.narrow)
        whole = torch.compile(lambda x, weights: reference.transition(x, weights, 2**62), dynamic=False)
        calls: dict[str, Call] = {
            "reference": lambda x=x, w=weights: reference.transition(x, w),
            "torch.compile": lambda x=x, w=weights, whole=whole: whole(x, w),
            "ours": lambda x=x, w=weights: kernel.transition(x, w),
            "ours in place": lambda x=x, w=weights: kernel.add_transition(x, w),
            "any GPU's": on_any_gpu(kernel, lambda x=x, w=weights: kernel.add_transition(x, w)),
            "ours SwiGLU": lambda x=x, w=swiglu: kernel.swiglu_transition(x, w),
        }
        moved = 2 * x.numel() * x.element_size()
        operations = 4 * x.numel() * options.factor * width
        print_times(f"transition N {length} C {width}", calls, floors.of(moved, operations))


if __name__ == "__main__":
    main()
