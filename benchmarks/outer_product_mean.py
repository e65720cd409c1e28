"""A benchmark of the outer product mean with E = 32 and Z = 128, in milliseconds.

    python benchmarks/outer_product_mean.py [--sizes 512x512x256,5120x512x64] [--dtype float32]
    python benchmarks/outer_product_mean.py --tune

A size is S x N x C. Compared with the reference, which works in chunks of residues, and torch.compile. "ours"
is the best kernel for the GPU, "Triton" the kernels for any GPU. The arithmetic floor is the outer products
and their contraction at the speed of a large bfloat16 product. `--tune` times launch options of the Triton
kernels in bfloat16 instead, and prints the best ones for the launch table.
"""

import argparse
from itertools import product
from typing import Any

import torch
from fused_timing import Call, Floors, Tuner, print_times, with_options

from cuda.fused.dispatch import implementation_module
from cuda.fused.outer_product_mean import OuterProductMeanWeights, reference, triton

Size = tuple[int, int, int]
INNER, PAIR = 32, 128
FACTORS = {"ROWS": 64, "COLUMNS": 32, "PRECISION": "ieee", "num_warps": 4, "num_stages": 1}


def arguments(
    size: Size, dtype: torch.dtype = torch.bfloat16
) -> tuple[torch.Tensor, OuterProductMeanWeights, torch.Tensor]:
    """Return MSA, weights and mask for S, N and C."""
    sequences, length, channels = size
    shapes = [(channels,), (channels,), (channels, INNER), (INNER,), (channels, INNER), (INNER,)]
    shapes += [(INNER, INNER, PAIR), (PAIR,)]
    weights = [torch.randn(shape, device="cuda", dtype=dtype) / shape[0] ** 0.5 for shape in shapes]
    msa = torch.randn(size, device="cuda", dtype=dtype)
    return msa, OuterProductMeanWeights(*weights), torch.ones(sequences, length, device="cuda")


def run_once(job: tuple[Size, dict[str, Any]]) -> None:
    """Compile and run one launch."""
    (_, _, channels), options = job
    tensors = arguments((16, 16, channels))
    with_options(triton, options, lambda: triton.outer_product_mean(*tensors))()
    torch.cuda.synchronize()


def tune(tuner: Tuner, size: Size) -> None:
    """Print the best launch options of the outer products."""
    tensors = arguments(size)

    def timed(options: dict[str, Any]) -> Call:
        return with_options(triton, options, lambda: triton.outer_product_mean(*tensors))

    # residues of each factor, tiles of a strip, programs per multiprocessor, registers
    tiles = [(4, 4, 8, 2, 128), (4, 4, 4, 2, 128), (4, 8, 4, 1, None), (8, 4, 4, 1, None), (4, 8, 2, 1, None)]
    candidates = [
        {
            "factors": FACTORS,
            "outer": {"LEFT": left, "RIGHT": right, "TILES": count, "SEQUENCES": 64, "DEPTH": depth}
            | {"resident": resident, "PRECISION": "ieee"}
            | {"num_warps": 8, "num_stages": stages, "maxnreg": registers},
        }
        for (left, right, count, resident, registers), depth, stages in product(tiles, (64, 128), (2, 3))
    ]
    tuner.print_best("S {} N {} C {}".format(*size), size, timed, candidates)


def main() -> None:
    """Print one line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="512x512x256,5120x512x64,512x1024x256,5120x1024x64")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    kernel = implementation_module("outer_product_mean", device="cuda")
    floors = Floors.measure()
    tuner = Tuner(run_once) if options.tune else None
    for text in options.sizes.split(","):
        sequences, length, channels = size = tuple(int(n) for n in text.split("x"))
        if tuner is not None:
            tune(tuner, size)
            continue
        case = arguments(size, dtype)
        compiled = torch.compile(reference.outer_product_mean, dynamic=False)
        calls: dict[str, Call] = {
            "reference": lambda case=case: reference.outer_product_mean(*case),
            "torch.compile": lambda case=case, compiled=compiled: compiled(*case),
            "ours": lambda case=case: kernel.outer_product_mean(*case),
            "Triton": lambda case=case: triton.outer_product_mean(*case),
        }
        # the MSA read, the factors written and read, the result written
        moved = dtype.itemsize * (sequences * length * (channels + 4 * INNER) + length**2 * PAIR)
        operations = 2 * length**2 * INNER**2 * (sequences + PAIR)
        print_times(
            f"outer product mean S {sequences} N {length} C {channels}", calls, floors.of(moved, operations)
        )


if __name__ == "__main__":
    main()
