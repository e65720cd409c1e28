"""Milliseconds of attention's pair bias: LayerNorm of N × N positions and their projection to heads.

    python benchmarks/pair_bias.py [--lengths 512,1024,2048] [--channels 128] [--heads 4]
    python benchmarks/pair_bias.py --tune

Peers: the reference, and torch.compile of it. "any GPU's" is what runs where there is no Hopper GPU, "ending"
ours with axes that are swapped in memory. The floor is one read at the speed of a copy. `--tune` times
launches of the kernel for any GPU instead, and prints the best as the launch table has them.
"""

import argparse
from itertools import product
from typing import Any

import torch
from fused_timing import Call, Floors, Tuner, on_any_gpu, print_times, using

from cuda.fused.pair_bias import kernel, reference

Size = tuple[int, int, int]


def arguments(size: Size) -> tuple[torch.Tensor, ...]:
    """Pair representation, LayerNorm's scale and offset, and weights for N, C and H."""
    length, channels, heads = size
    shapes = [(length, length, channels), (channels,), (channels,), (channels, heads)]
    return tuple(torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes)


def run_once(job: tuple[Size, dict[str, Any]]) -> None:
    """Compile and run one launch."""
    (_, channels, heads), options = job
    given = arguments((32, channels, heads))
    on_any_gpu(kernel, using(kernel, options, lambda: kernel.pair_bias(*given)))()
    torch.cuda.synchronize()


def tune(tuner: Tuner, size: Size) -> None:
    """Print the best launches."""
    given = arguments(size)

    def timed(options: dict[str, Any]) -> Call:
        return on_any_gpu(kernel, using(kernel, options, lambda: kernel.pair_bias(*given)))

    shapes = [(1, 32), (4, 8), (1, 64), (4, 16), (8, 8), (2, 64), (4, 32), (8, 16)]
    candidates = [
        {"QUERIES": queries, "KEYS": keys, "PRECISION": "ieee", "num_warps": warps}
        for (queries, keys), warps in product(shapes, (2, 4, 8))
        # a warp has a product's 16 rows or more
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
    floors = Floors.measured()
    tuner = Tuner(run_once) if options.tune else None
    for length in [int(n) for n in options.lengths.split(",")]:
        size = (length, options.channels, options.heads)
        if tuner is not None:
            tune(tuner, size)
            continue
        pair, *layer = arguments(size)
        swapped = pair.transpose(0, 1)
        compiled = torch.compile(reference.pair_bias, dynamic=False)
        ours: dict[str, Call] = {
            "ours": lambda pair=pair, layer=layer: kernel.pair_bias(pair, *layer),
            "ending": lambda swapped=swapped, layer=layer: kernel.pair_bias(swapped, *layer),
        }
        calls: dict[str, Call] = {
            "PyTorch": lambda pair=pair, layer=layer: reference.pair_bias(pair, *layer),
            "torch.compile": lambda pair=pair, layer=layer, call=compiled: call(pair, *layer),
            **ours,
            "any GPU's": on_any_gpu(kernel, ours["ours"]),
        }
        moved = 2 * length**2 * (options.channels + options.heads)
        print_times("pair bias N {} C {} H {}".format(*size), calls, floors.of(moved, 0))


if __name__ == "__main__":
    main()
