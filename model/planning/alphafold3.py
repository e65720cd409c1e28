"""An estimate of the memory of a prediction, from the sizes of the layers.

It counts the largest tensors that the reference implementation holds at once in each phase. The pair
representation dominates: its copies, the factors of a triangle multiplication, and the token transformer's
biases are all proportional to the square of the number of tokens.
"""

import functools
import math
from dataclasses import dataclass

import torch

from cuda.fused.chunking import CPU_BUDGET, DEVICE_BUDGET
from model.alphafold3.config import AlphaFold3Config
from model.alphafold3.network import AlphaFold3
from msa.base.network_inputs import ALL_ATOM


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of a prediction.

    Attributes:
        weights: parameters of the network.
        inputs: its inputs.
        trunk: largest intermediates of the cycles.
        diffusion: largest intermediates of the denoising steps, with what is kept of the trunk.
        heads: largest intermediates of the confidence heads, with what is kept of the trunk.
        chunk: buffer of the operations that work by chunks.
    """

    weights: int
    inputs: int
    trunk: int
    diffusion: int
    heads: int
    chunk: int

    @property
    def peak(self) -> int:
        """The most that is held at once."""
        return self.weights + self.inputs + max(self.trunk, self.diffusion, self.heads) + self.chunk


def estimate_memory(
    config: AlphaFold3Config,
    tokens: int,
    atoms: int,
    rows: int,
    samples: int = 5,
    templates: int = 4,
    dtype_bytes: int = 4,
    on_gpu: bool = True,
) -> MemoryEstimate:
    """Return the memory that a prediction needs.

    Args:
        config: the network.
        tokens: number of tokens.
        atoms: number of atoms.
        rows: rows of the whole alignment; a cycle sees a part of them.
        samples: structures that are denoised together.
        templates: number of template slots.
        dtype_bytes: bytes of a number: 4 for float32, 2 for bfloat16.
        on_gpu: whether the network runs on a GPU, where chunks are larger.
    """
    channels, diffusion, heads = config.pair.channels, config.diffusion, config.confidence
    square, seen = tokens**2, min(rows, config.msa.rows)
    msa = seen * tokens * config.msa.channels
    # initial pair, pair, two factors and their product; the MSA and its update
    trunk = square * (2 * channels + 3 * config.pair.multiplication_channels) + 2 * msa
    biases = diffusion.blocks * diffusion.heads
    attention = 2 * samples * diffusion.heads
    steps = square * (channels + biases + attention) + _atom_numbers(config, atoms, samples)
    # the trunk's pair and the conditioned one, while the biases are made
    conditioning = square * (2 * channels + biases)
    scores = square * (2 * channels + max(3 * config.pair.multiplication_channels, 4 * heads.error_bins))
    return MemoryEstimate(
        weights=_parameters(config) * dtype_bytes,
        inputs=_input_bytes(tokens, atoms, rows, templates, dtype_bytes),
        trunk=trunk * dtype_bytes,
        diffusion=max(steps, conditioning) * dtype_bytes,
        heads=scores * dtype_bytes,
        chunk=(DEVICE_BUDGET if on_gpu else CPU_BUDGET) * dtype_bytes,
    )


def _atom_numbers(config: AlphaFold3Config, atoms: int, samples: int) -> int:
    """Return the numbers that the atom encoder and decoder hold: pairs and biases of windows, activations."""
    sizes = config.diffusion.atoms
    windows = sizes.keys * (sizes.pair_channels + 2 * sizes.blocks * sizes.heads)
    activations = samples * sizes.channels * (4 + 2 * sizes.transition_factor)
    # keys and values are gathered for each window of queries
    gathered = 2 * samples * sizes.channels * sizes.keys // sizes.queries
    scores = 2 * samples * sizes.heads * sizes.keys
    return atoms * (windows + activations + gathered + scores)


def _input_bytes(tokens: int, atoms: int, rows: int, templates: int, dtype_bytes: int) -> int:
    """Return the bytes of the inputs in the types in which the network reads them."""
    sizes = {"N": tokens, "A": atoms, "S": rows, "T": templates}
    item_bytes = {"index": 8, "number": dtype_bytes}  # flags and one-hot classes are bytes
    return sum(math.prod(x.shape(sizes)) * item_bytes.get(x.kind or "", 1) for x in ALL_ATOM.values())


@functools.lru_cache(maxsize=8)
def _parameters(config: AlphaFold3Config) -> int:
    """Return the number of parameters of a network."""
    with torch.device("meta"):
        network = AlphaFold3(config, "reference")
    return sum(parameter.numel() for parameter in network.parameters())
