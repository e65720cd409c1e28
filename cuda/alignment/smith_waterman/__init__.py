"""Smith–Waterman alignment with affine gaps (Gotoh 1982) on a profile, on a GPU: scores, ends and paths.

Everything equals msa.cpu.smith_waterman bit for bit. Scores come from 16-bit pairs where the GPU has such
arithmetic (compute capability 9.0) and again from 32 bits where they could exceed 16; paths from 32 bits.
"""

from cuda.alignment.smith_waterman.launch import end_positions, trace_paths
from cuda.alignment.smith_waterman.pairs import Alignments, DeviceTargets, Pairs, Query
from cuda.alignment.smith_waterman.rows import Allocate
from cuda.alignment.smith_waterman.shapes import HOPPER, PLAIN, Shapes
from cuda.alignment.smith_waterman.source import Shape

__all__ = [
    "HOPPER",
    "PLAIN",
    "Alignments",
    "Allocate",
    "DeviceTargets",
    "Pairs",
    "Query",
    "Shape",
    "Shapes",
    "end_positions",
    "trace_paths",
]
