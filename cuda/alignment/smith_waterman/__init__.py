"""Smith–Waterman alignment of profiles with affine gaps (Gotoh 1982) on a GPU: scores, ends and paths.

All results equal msa.cpu.smith_waterman bit for bit. Scores are computed in pairs of 16-bit numbers if the
GPU has this arithmetic (compute capability 9.0), and again in 32 bits where 16 bits may overflow. Paths are
computed in 32 bits.
"""

from cuda.alignment.smith_waterman.align import end_positions, trace_paths
from cuda.alignment.smith_waterman.generator import Shape
from cuda.alignment.smith_waterman.plan import HOPPER, PLAIN, Pairs, Shapes
from cuda.alignment.smith_waterman.row_launcher import Allocate

__all__ = ["HOPPER", "PLAIN", "Allocate", "Pairs", "Shape", "Shapes", "end_positions", "trace_paths"]
