"""The plan of a prediction's memory: what each phase holds at once, and the samples and chunks that fit.

Only tensors that grow with the square of the tokens, with the atoms or with the alignment are counted. The
pair representation dominates: two copies of it in the trunk and in the confidence heads, with the factors and
the product of a triangle multiplication; in the denoising steps, one copy and the biases of all blocks.
"""

import functools
import math
from dataclasses import dataclass
from itertools import product

import torch

from cuda.fused.attention.reference import padded_keys
from cuda.fused.chunking import CPU_BUDGET
from model.alphafold2.modules.config import PairConfig
from model.alphafold3.config import AlphaFold3Config
from model.alphafold3.inputs import HOST_TOKENS, TEMPLATE_PAIRS
from model.alphafold3.layers import HEAD_CHANNELS
from model.alphafold3.network import MAX_GRAPHED_TOKENS, TRUNK_SCOPES, AlphaFold3
from model.layers.graphs import MAX_GRAPH_RESIDUES
from model.parallel.communication import Shards
from model.parallel.triangle import exchanged_elements
from msa.base.network_inputs import ALL_ATOM

GIB = 2**30
# elements of intermediates held at once on a GPU, from the fastest to the least
CHUNKS = (2**28, 2**26, 2**24)
# chunk elements and samples at once of the smallest plan
SMALLEST = (CHUNKS[-1], 1)


@dataclass(frozen=True)
class PredictionSize:
    """The sizes that determine the memory of a prediction.

    Args:
        tokens: number of tokens.
        atoms: number of atoms.
        rows: rows of the whole alignment; a cycle sees a part of them.
        samples: number of structures.
        templates: number of template slots.
        half: whether the trunk is bfloat16 and runs fused kernels; otherwise all is float32.
        on_gpu: whether the network runs on a GPU.
        ranks: number of devices that predict together (`model.parallel`).
    """

    tokens: int
    atoms: int
    rows: int
    samples: int = 5
    templates: int = 4
    half: bool = False
    on_gpu: bool = True
    ranks: int = 1

    @property
    def item(self) -> int:
        """Bytes of a number in the trunk."""
        return 2 if self.half else 4

    @property
    def positions(self) -> int:
        """Pairs of tokens that a rank has in the trunk."""
        return Shards(self.tokens, self.ranks).max_count * self.tokens

    @property
    def own_samples(self) -> int:
        """Structures that a rank draws."""
        return Shards(self.samples, self.ranks).max_count

    @property
    def divides_tokens(self) -> bool:
        """True if a rank has the biases of its tokens only; see `model.parallel.all_atom`."""
        return self.ranks > 1 and self.tokens > MAX_GRAPHED_TOKENS


@dataclass(frozen=True)
class AllAtomMemoryPlan:
    """Samples at once and chunk size of a prediction, and the memory it needs at most.

    Args:
        samples_at_once: see `AlphaFold3.predict`.
        chunk_elements: see `AlphaFold3.predict`.
        phases: bytes of each phase, with all that lives during the whole prediction but the parameters.
        loaded: bytes of the parameters.
        copies: bytes of the copies of parameters that kernels read.
        available: bytes that are free when the parameters are loaded.
        tokens: number of tokens.
    """

    samples_at_once: int
    chunk_elements: int
    phases: dict[str, int]
    loaded: int
    copies: int
    available: int
    tokens: int

    @property
    def needed(self) -> int:
        """Bytes at the peak besides the parameters."""
        return max(self.phases.values()) + self.copies

    @property
    def fits(self) -> bool:
        """True if the available memory suffices."""
        return self.needed <= self.available

    def __str__(self) -> str:
        free = f"{self.available / GIB:.1f} GiB are free"
        return f"{self.tokens:,} tokens need {self.needed / GIB:.1f} GiB, and {free}"


def plan_prediction(config: AlphaFold3Config, size: PredictionSize, available: int) -> AllAtomMemoryPlan:
    """Return the fastest plan whose peak and copies of parameters fit, or the smallest one.

    `available` are the bytes that are free when the parameters are loaded.
    """
    loaded, copies = _parameter_bytes(config, size.half)
    samples = size.own_samples
    most_parts = 1 if size.divides_tokens else samples
    groups = dict.fromkeys(math.ceil(samples / parts) for parts in range(1, most_parts + 1))
    chunks = CHUNKS if size.on_gpu else (CPU_BUDGET,)
    for elements, group in product(chunks, groups):
        phases = phase_bytes(config, size, group, elements)
        plan = AllAtomMemoryPlan(group, elements, phases, loaded, copies, available, size.tokens)
        if plan.fits:
            break
    return plan


def phase_bytes(config: AlphaFold3Config, size: PredictionSize, group: int, elements: int) -> dict[str, int]:
    """Return the bytes that each phase holds at once, with those that live during the whole prediction.

    The diffusion module sees a group of samples together; at most `elements` of intermediates are held at
    once.
    """
    square, positions, item, template = size.tokens**2, size.positions, size.item, config.template_pair
    channels, sampler = config.pair.channels, config.diffusion
    pair, own_pair = square * channels * item, positions * channels * item
    template_pair = positions * template.channels * item
    # distances and directions of one template, as they are stored and as they are read
    template_inputs = positions * (config.template_distance_bins * (1 + item) + 3 * (4 + item))
    # columns of a rank's pairs, and parts of them that are sent or received
    columns = 0 if size.ranks == 1 else 2 * own_pair
    msa = min(size.rows, config.msa.rows) * size.tokens * config.msa.channels * item
    # without fused kernels, some operations hold a few results of a chunk
    chunk = min(elements * 4 * (1 if size.half else 2), 8 * square * 4 * channels)
    # inputs, classes of relative positions, copies that graphs work on
    resident = _input_bytes(size) + 4 * square
    if size.on_gpu and size.tokens <= MAX_GRAPH_RESIDUES:
        resident += 3 * pair + 2 * msa + template_pair
    padded = padded_keys(size.tokens) if size.half else size.tokens
    # the pairs that the sampler has
    sampled = positions if size.divides_tokens else square
    sampled_pair = own_pair if size.divides_tokens or size.ranks == 1 else pair + own_pair
    biases = sampler.blocks * sampler.heads * sampled // size.tokens * padded * (2 if size.half else 4)
    # logits by pairs of the conditions of atoms
    token_pairs = sampled * sampler.atoms.pair_channels * 4
    # intermediates of the embedding of atom pairs
    embedded = 4 * 4 * size.atoms * sampler.atoms.keys * sampler.atoms.pair_channels
    windows, step = _atom_window_bytes(config, size), _step_bytes(config, size, group)
    # contacts and errors of all samples, those of the last one only with its logits
    scores = (2 * size.samples - 1) * square * 4
    last_errors = (2 if size.ranks == 1 else 4) * square * 4
    phases = {
        "embedding": positions * channels * 4 + (own_pair if size.half else 0) + chunk,
        "templates": 2 * own_pair
        + 2 * template_pair
        + max(
            3 * template_pair + template_inputs,
            _pair_block_bytes(template, size, chunk),
            own_pair + template_pair,
        ),
        "alignment": 2 * own_pair
        + 2 * msa
        + max(
            msa + chunk,
            2 * square * config.msa.heads * item,
            _pair_block_bytes(config.pair, size, chunk),
        ),
        "pairformer": 2 * own_pair
        + max(
            _pair_block_bytes(config.pair, size, chunk),
            3 * square * config.single_heads * item + columns,
        ),
        "conditions": sampled_pair + biases + token_pairs + max(windows + embedded, chunk),
        "steps": sampled_pair + biases + windows + step,
        "heads": 2 * own_pair
        + scores
        + max(
            _pair_block_bytes(config.pair, size, chunk),
            columns + 3 * square * config.single_heads * item * (size.ranks > 1),
            columns + last_errors + chunk,
        ),
    }
    return {name: resident + count for name, count in phases.items()}


def _pair_block_bytes(pair: PairConfig, size: PredictionSize, chunk: int) -> int:
    """Return what a triangle update needs: factors and product, or the bias and chunks of attention."""
    positions, item, inner = size.positions, size.item, pair.multiplication_channels
    # fused kernels add updates without storing them first, and multiply without chunks
    update = 0 if size.half else positions * pair.channels * item + chunk
    multiplication = 3 * positions * inner + exchanged_elements(size.ranks, size.tokens, inner)
    columns = 0 if size.ranks == 1 else 2 * positions * pair.channels
    attention = columns + 2 * size.tokens**2 * pair.attention_heads
    return update + max(multiplication * item, attention * item + chunk)


def _atom_window_bytes(config: AlphaFold3Config, size: PredictionSize) -> int:
    """Return the bytes that the conditions of atom pairs in windows, and of their biases, hold."""
    sizes = config.diffusion.atoms
    pairs = sizes.keys * (sizes.pair_channels + 2 * sizes.blocks * sizes.heads)
    return size.atoms * (pairs + 2 * sizes.blocks * 9 * sizes.channels) * 4


def _step_bytes(config: AlphaFold3Config, size: PredictionSize, group: int) -> int:
    """Return the bytes of a denoising step of a group of samples, of whose parts the larger one counts."""
    sampler, sizes = config.diffusion, config.diffusion.atoms
    hidden = 3 * sampler.transition_factor * sampler.channels
    if size.half:
        token = 4 * 4 * sampler.channels + 2 * (5 * sampler.heads * HEAD_CHANNELS + hidden)
        atom = 4 * 4 * sizes.channels + 2 * (6 + 3 * sizes.transition_factor) * sizes.channels
    else:
        token = 4 * (8 * sampler.channels + hidden + 2 * sampler.heads * size.tokens)
        keys = sizes.keys // sizes.queries
        atom = 4 * (
            (6 + 3 * sizes.transition_factor + 2 * keys) * sizes.channels + 2 * sizes.heads * sizes.keys
        )
    # atoms projected to the channels of tokens
    encoded = 2 * 4 * sampler.channels
    tokens = group * size.tokens * token
    if size.divides_tokens:
        # normalised tokens of all ranks, and their keys and values
        gathered = (
            2 * (sampler.channels + 4 * sampler.heads * HEAD_CHANNELS) if size.half else 12 * sampler.channels
        )
        tokens = size.samples * (size.positions // size.tokens * token + size.tokens * gathered)
    return max(tokens, group * size.atoms * (atom + encoded))


def _input_bytes(size: PredictionSize) -> int:
    """Return the bytes of the inputs in the types in which the network reads them."""
    sizes = {"N": size.tokens, "A": size.atoms, "S": size.rows, "T": size.templates}
    item_bytes = {"index": 8, "number": 4}  # flags and one-hot classes are bytes
    elsewhere = TEMPLATE_PAIRS if size.on_gpu and size.tokens > HOST_TOKENS else ()
    arrays = [x for name, x in ALL_ATOM.items() if name not in elsewhere]
    return sum(math.prod(x.shape(sizes)) * item_bytes.get(x.kind or "", 1) for x in arrays)


@functools.lru_cache(maxsize=8)
def _parameter_bytes(config: AlphaFold3Config, half: bool) -> tuple[int, int]:
    """Return the bytes of a network's parameters, and of the copies that fused kernels read."""
    with torch.device("meta"):
        network = AlphaFold3(config, "reference")
    loaded = copies = 0
    for name, parameter in network.named_parameters():
        item = 2 if half and name.startswith(TRUNK_SCOPES) else 4
        loaded += parameter.numel() * item
        # those of the diffusion module in half precision, joint modulations also in float32
        copies += parameter.numel() * 2 if half else 0
        if half and ".diffusion_transformer." in name and ("layer_norm" in name or "linear_g" in name):
            copies += parameter.numel() * 2
    return loaded, copies
