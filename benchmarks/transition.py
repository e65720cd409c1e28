"""A benchmark of the transition of an N × N pair representation, in milliseconds.

    python benchmarks/transition.py [--lengths 512,1024] [--channels 64,128,256] [--dtype float32]
    python benchmarks/transition.py --tune

Compared with the reference, which works in chunks of rows, and torch.compile of the whole. "ours" is the best
kernel for the GPU, "in place" adds the update to the input, and "Triton" is the kernel for any GPU, in place;
the others leave the residual out. The arithmetic floor is both products at the speed of a large bfloat16
product. `--tune` times launch options of the Triton kernel in bfloat16 instead, and prints the best ones for
the launch table.
"""

import argparse
from itertools import product
from typing import Any

import torch
from fused_timing import Call, Floors, Tuner, print_times, with_options

from cuda.fused.dispatch import implementation_module
from cuda.fused.transition import TransitionWeights, reference, triton

Size = tuple[int, int, int]


def arguments(size: Size, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, TransitionWeights]:
    """Return input and weights for N, C and W / C."""
    length, channels, factor = size
    width = factor * channels
    shapes = [(channels,), (channels,), (channels, width), (width,), (width, channels), (channels,)]
    weights = [torch.randn(shape, device="cuda", dtype=dtype) / shape[0] ** 0.5 for shape in shapes]
    x = torch.randn(length, length, channels, device="cuda", dtype=dtype)
    return x, TransitionWeights(*weights)


def run_once(job: tuple[Size, dict[str, Any]]) -> None:
    """Compile and run one launch."""
    (_, channels, factor), options = job
    tensors = arguments((16, channels, factor))
    with_options(triton, options, lambda: triton.transition(*tensors))()
    torch.cuda.synchronize()


def tune(tuner: Tuner, size: Size) -> None:
    """Print the best launch options of the Triton kernel."""
    tensors = arguments(size)

    def timed(options: dict[str, Any]) -> Call:
        return with_options(triton, options, lambda: triton.transition(*tensors))

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
    lengths, channels = ([int(n) for n in text.split(",")] for text in (options.lengths, options.channels))
    dtype = getattr(torch, options.dtype)
    kernel = implementation_module("transition", device="cuda")
    floors = Floors.measure()
    tuner = Tuner(run_once) if options.tune else None
    for length, width in product(lengths, channels):
        size = (length, width, options.factor)
        if tuner is not None:
            tune(tuner, size)
            continue
        x, weights = arguments(size, dtype)
        whole = torch.compile(lambda x, weights: reference.transition(x, weights, 2**62), dynamic=False)
        calls: dict[str, Call] = {
            "reference": lambda x=x, w=weights: reference.transition(x, w),
            "torch.compile": lambda x=x, w=weights, whole=whole: whole(x, w),
            "ours": lambda x=x, w=weights: kernel.transition(x, w),
            "ours in place": lambda x=x, w=weights: kernel.add_transition(x, w),
            "Triton": lambda x=x, w=weights: triton.add_transition(x, w),
        }
        moved = 2 * x.numel() * x.element_size()
        operations = 4 * x.numel() * options.factor * width
        print_times(f"transition N {length} C {width}", calls, floors.of(moved, operations))


if __name__ == "__main__":
    main()
