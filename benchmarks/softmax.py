"""Milliseconds of softmax with scale, mask and bias over logits [B, H, N, N] in bfloat16.

    python benchmarks/softmax.py [--lengths 256,512,1024,2048]

Peers: PyTorch and torch.compile. The floor is one read and one write at the speed of a copy.
"""

import argparse

import torch
from fused_timing import Call, Floors, print_times

from cuda.fused.softmax import kernel, reference

ENTRIES, HEADS = 16, 8


def main() -> None:
    """Print one line for each length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", default="256,512,1024,2048")
    options = parser.parse_args()
    floors = Floors.measured()
    for length in [int(n) for n in options.lengths.split(",")]:
        logits, bias, mask = (
            torch.randn(shape, device="cuda", dtype=torch.bfloat16)
            for shape in ((ENTRIES, HEADS, length, length), (HEADS, length, length), (ENTRIES, length))
        )
        given = (logits, 0.25, (mask > 0).to(mask), bias)
        compiled = torch.compile(reference.softmax, dynamic=False)
        calls: dict[str, Call] = {
            "PyTorch": lambda given=given: reference.softmax(*given),
            "torch.compile": lambda given=given, compiled=compiled: compiled(*given),
            "ours": lambda given=given: kernel.softmax(*given),
        }
        print_times(f"softmax N {length}", calls, floors.of(4 * logits.numel(), 0))


if __name__ == "__main__":
    main()
