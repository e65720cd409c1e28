"""A benchmark of attention's pair bias, LayerNorm and a projection to heads, in milliseconds.

    python benchmarks/pair_bias.py [--lengths 512,1024,2048] [--channels 128] [--heads 4]
    python benchmarks/pair_bias.py --tune

Compared with the reference and torch.compile. "ours" is the best kernel for the GPU, "ending" the same with
axes swapped in memory, "Triton" the kernel for any GPU. The floor is one read at the speed of a copy.
`--tune` times launch options of the Triton kernel instead, and prints the best ones for the launch table.
"""

import argparse
from itertools import product
from typing import Any

import torch
from fused_timing import Call, Floors, Tuner, print_times, with_options

from cuda.fused.dispatch import implementation_module
from cuda.fused.pair_bias import reference, triton

Size = tuple[int, int, int]


def arguments(size: Size) -> tuple[torch.Tensor, ...]:
    """Return pair representation, LayerNorm's scale and offset, and weights for N, C and H."""
    length, channels, heads = size
    shapes = [(length, length, channels), (channels,), (channels,), (channels, heads)]
    return tuple(torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes)


def run_once(job: tuple[Size, dict[str, Any]]) -> None:
    """Compile and run one launch."""
    (_, channels, heads), options = job
    tensors = arguments((32, channels, heads))
    with_options(triton, options, lambda: triton.pair_bias(*tensors))()
    torch.cuda.synchronize()


def tune(tuner: Tuner, size: Size) -> None:
    """Print the best launch options of the Triton kernel."""
    tensors = arguments(size)

    def timed(options: dict[str, Any]) -> Call:
        return with_options(triton, options, lambda: triton.pair_bias(*tensors))

    shapes = [(1, 32), (4, 8), (1, 64), (4, 16), (8, 8), (2, 64), (4, 32), (8, 16)]
    candidates = [
        {"QUERIES": queries, "KEYS": keys, "PRECISION": "ieee", "num_warps": warps}
        for (queries, keys), warps in product(shapes, (2, 4, 8))
        # each warp needs at least the 16 rows of a product
        if queries * keys >= 16 * warps
    ]
    tuner.print_best("N {} C {} H {}".format(*size), size, timed, candidates)


def main() -> None:
    """Print one line for each length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", default="512,1024,2048")
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    kernel = implementation_module("pair_bias", device="cuda")
    floors = Floors.measure()
    tuner = Tuner(run_once) if options.tune else None
    for length in [int(n) for n in options.lengths.split(",")]:
        size = (length, options.channels, options.heads)
        if tuner is not None:
            tune(tuner, size)
            continue
        pair, *layer = arguments(size)
        swapped = pair.transpose(0, 1)
        compiled = torch.compile(reference.pair_bias, dynamic=False)
        calls: dict[str, Call] = {
            "PyTorch": lambda pair=pair, layer=layer: reference.pair_bias(pair, *layer),
            "torch.compile": lambda pair=pair, layer=layer, call=compiled: call(pair, *layer),
            "ours": lambda pair=pair, layer=layer: kernel.pair_bias(pair, *layer),
            "ending": lambda swapped=swapped, layer=layer: kernel.pair_bias(swapped, *layer),
            "Triton": lambda pair=pair, layer=layer: triton.pair_bias(pair, *layer),
        }
        moved = 2 * length**2 * (options.channels + options.heads)
        print_times("pair bias N {} C {} H {}".format(*size), calls, floors.of(moved, 0))


if __name__ == "__main__":
    main()
