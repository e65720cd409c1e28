"""A benchmark of LayerNorm over the channels of an N × N pair representation, in milliseconds.

    python benchmarks/layer_norm.py [--lengths 512,1024,2048] [--channels 64,128,256,384] [--dtype float32]
    python benchmarks/layer_norm.py --tune

Compared with PyTorch's own kernel and torch.compile. The floor is one read and one write at the speed of a
copy. `--tune` times launch options in bfloat16 instead, and prints the best ones for the launch table.
"""

import argparse
from itertools import product
from typing import Any

import torch
from fused_timing import Call, Floors, Tuner, print_times, with_options

from cuda.fused.layer_norm import reference, triton

Size = tuple[int, int]


def arguments(size: Size, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, ...]:
    """Return input, scale and offset for N and C."""
    length, channels = size
    shapes = [(length, length, channels), (channels,), (channels,)]
    return tuple(torch.randn(shape, device="cuda", dtype=dtype) for shape in shapes)


def run_once(job: tuple[Size, dict[str, Any]]) -> None:
    """Compile and run one launch."""
    size, options = job
    tensors = arguments((16, size[1]))
    with_options(triton, options, lambda: triton.layer_norm(*tensors))()
    torch.cuda.synchronize()


def tune(tuner: Tuner, size: Size) -> None:
    """Print the best launch options."""
    tensors = arguments(size)

    def timed(options: dict[str, Any]) -> Call:
        return with_options(triton, options, lambda: triton.layer_norm(*tensors))

    candidates = [
        {"ROWS": rows, "num_warps": warps} for rows, warps in product((1, 2, 4, 8, 16, 32), (1, 2, 4, 8))
    ]
    tuner.print_best(f"N {size[0]} C {size[1]}", size, timed, candidates)


def main() -> None:
    """Print one line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", default="512,1024,2048")
    parser.add_argument("--channels", default="64,128,256,384")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    lengths, channels = ([int(n) for n in text.split(",")] for text in (options.lengths, options.channels))
    dtype = getattr(torch, options.dtype)
    floors = Floors.measure()
    tuner = Tuner(run_once) if options.tune else None
    for length, width in product(lengths, channels):
        if tuner is not None:
            tune(tuner, (length, width))
            continue
        tensors = arguments((length, width), dtype)
        compiled = torch.compile(reference.layer_norm, dynamic=False)
        calls: dict[str, Call] = {
            "PyTorch": lambda tensors=tensors: reference.layer_norm(*tensors),
            "torch.compile": lambda tensors=tensors, compiled=compiled: compiled(*tensors),
            "ours": lambda tensors=tensors: triton.layer_norm(*tensors),
        }
        moved = 2 * tensors[0].numel() * tensors[0].element_size()
        print_times(f"LayerNorm N {length} C {width}", calls, floors.of(moved, 0))


if __name__ == "__main__":
    main()
