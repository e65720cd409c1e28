"""The training form of the network: the order of a pass, from the inputs of a crop to what losses read.

It has no parameters of its own: a pass reads those of a `model.alphafold3.network.AlphaFold3`, so a trained
network needs no conversion. The backward pass computes the inside of each block again. Algorithm numbers are
those of the supplement of Abramson et al., Nature 630, 493 (2024).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import nn

from cuda.fused.weights import separate_cache
from model.alphafold3.atoms import TOKEN_PLACES
from model.alphafold3.blocks import MsaBlock
from model.alphafold3.embedding import RelativePositions, alignment_mask
from model.alphafold3.heads import ConfidenceLogits, representative_atoms
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.layers import Mask, run_block
from model.alphafold3.network import AlphaFold3, TrunkOutput, alignment_rows
from model.checkpoints.openfold3 import source_of
from model.layers.graphs import KeptGraphs
from model.training.alphafold3.blocks import msa_block, pairformer, template_update
from model.training.alphafold3.losses import TrainingOutput
from model.training.alphafold3.noise import SeededTrainingDraws, noised_copies
from model.training.alphafold3.targets import AtomTargets

# atoms of a rollout with kept graphs are padded to a multiple of it
_ATOM_STEP = 1024


@dataclass(frozen=True)
class PassSettings:
    """Settings of a training pass.

    Args:
        copies: noised copies of the experimental structure, which share one pass of the trunk.
        rollout_steps: denoising steps of the structure that the confidence heads see.
        most_cycles: largest number of passes of the trunk; the last one has gradients.
        dropout: whether dropout is applied.
    """

    copies: int = 48
    rollout_steps: int = 20
    most_cycles: int = 4
    dropout: bool = True


def trained_parameters(network: AlphaFold3) -> dict[str, nn.Parameter]:
    """Return the parameters that training changes, by name.

    Biases that OpenFold3's layers do not have remain 0, so that its parameter files describe the network.
    """
    return {
        name: parameter
        for name, parameter in network.named_parameters()
        if source_of(name, tuple(parameter.shape)).name is not None
    }


def run_pass(
    network: AlphaFold3,
    inputs: AlphaFold3Inputs,
    targets: Callable[[torch.Tensor], AtomTargets],
    draws: SeededTrainingDraws,
    settings: PassSettings,
    dtype: torch.dtype | None = None,
    graphs: KeptGraphs | None = None,
) -> tuple[TrainingOutput, AtomTargets]:
    """Run one pass; return the outputs that losses read, and the structure that they compare with.

    The network's trained parameters require gradients. `targets` returns the experimental structure in the
    order that fits a predicted one [A, 3], Å, best, on the CPU, as many small operations; see
    `model.training.alphafold3.permutation.best_targets`. `draws` are all random numbers but those of dropout,
    which are PyTorch's. The dtype is that of trunk, noised copies and confidence blocks, by default that of
    the inputs; `graphs` are those of the rollout, kept from pass to pass.
    """
    dropout = float(settings.dropout)
    trunk = run_trunk(network, inputs, draws, draws.cycles(settings.most_cycles), dropout, dtype)
    positions = rollout(network, inputs, trunk, draws, settings.rollout_steps, graphs)
    known, copied = _copied_to_cpu(positions)
    logits = confidence(network, inputs, trunk, positions, dropout)
    copies = draws.copies(settings.copies, len(inputs.atom_mask))
    copied()  # the GPU computes the heads meanwhile
    found = targets(known)
    truth = AtomTargets(found.positions.to(positions.device), found.resolved.to(positions.device))
    noisy, sigmas = noised_copies(truth, copies, network.config.diffusion.sigma_data)
    output = TrainingOutput(
        denoised=denoise(network, inputs, trunk, noisy, sigmas) * truth.resolved[:, None],
        sigmas=sigmas,
        distogram=run_block(network.aux_heads.distogram, trunk.pair),
        positions=positions,
        confidence=logits,
    )
    return output, truth


def _copied_to_cpu(x: torch.Tensor) -> tuple[torch.Tensor, Callable[[], None]]:
    """Return a copy of a tensor on the CPU, and a function that waits for it but not for later work."""
    if not x.is_cuda:
        return x, lambda: None
    copy = torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return copy, event.synchronize


def run_trunk(
    network: AlphaFold3,
    inputs: AlphaFold3Inputs,
    draws: SeededTrainingDraws,
    cycles: int,
    dropout: float,
    dtype: torch.dtype | None = None,
) -> TrunkOutput:
    """Compute the representations (Algorithm 1, lines 1 to 14); only the last cycle has gradients.

    `dropout` is 1 to apply it and 0 for none; `dtype`, by default that of the inputs, is that of the
    representations.
    """
    dtype = dtype or inputs.ref_pos.dtype
    relative = RelativePositions.of(inputs, network.config)
    features, initial_single, initial_pair = network.input_embedder(inputs, relative)
    initial_single, initial_pair = initial_single.to(dtype), initial_pair.to(dtype)
    single, pair = torch.zeros_like(initial_single), torch.zeros_like(initial_pair)
    recorded, mask = torch.is_grad_enabled(), _token_mask(inputs)
    for cycle in range(cycles):
        with torch.set_grad_enabled(recorded and cycle == cycles - 1):
            rows = alignment_rows(inputs, draws, cycle, network.config.msa.rows)
            pair = initial_pair + network.linear_z(network.layer_norm_z(pair))
            pair = pair + template_update(network.template_embedder, inputs, pair, mask, dropout)
            msa = network.msa_module_embedder(inputs, features, rows, pair.dtype)
            msa_mask = alignment_mask(inputs, rows, pair.dtype)
            for block in cast(Iterable[MsaBlock], network.msa_module.blocks):
                msa, pair = msa_block(block, msa, pair, msa_mask, mask, dropout)
            single = initial_single + network.linear_s(network.layer_norm_s(single))
            blocks = network.pairformer_stack.blocks
            single, pair = pairformer(blocks, single, pair, mask, dropout)
    return TrunkOutput(features, single, pair, relative)


def _token_mask(inputs: AlphaFold3Inputs) -> Mask:
    """Return the mask of the tokens, or None without padding."""
    return None if bool(inputs.token_mask.all()) else inputs.token_mask


def _detached(trunk: TrunkOutput) -> TrunkOutput:
    """Return a trunk's representations without their gradients."""
    parts = {name: getattr(trunk, name).detach() for name in ("features", "single", "pair")}
    return replace(trunk, **parts)


def _wide(trunk: TrunkOutput) -> TrunkOutput:
    """Return a trunk with the single representation as inference has it, in the dtype of the inputs."""
    return replace(trunk, single=trunk.single.to(trunk.features))


def rollout(
    network: AlphaFold3,
    inputs: AlphaFold3Inputs,
    trunk: TrunkOutput,
    draws: SeededTrainingDraws,
    steps: int,
    graphs: KeptGraphs | None = None,
) -> torch.Tensor:
    """Predict one structure [A, 3], Å, in few steps and without gradients (section 4.1)."""
    atoms = len(inputs.atom_mask)
    if graphs is not None:  # so that more crops have the same size
        most = TOKEN_PLACES * len(inputs.token_mask)
        inputs = inputs.padded(max(atoms, min(-(-atoms // _ATOM_STEP) * _ATOM_STEP, most)))
    with separate_cache():  # weights prepared for these steps are out of date after them
        trunk = _wide(_detached(trunk))
        return network.sample(inputs, trunk, draws, steps=steps, samples=1, graphs=graphs)[0, :atoms]


def denoise(
    network: AlphaFold3,
    inputs: AlphaFold3Inputs,
    trunk: TrunkOutput,
    noisy: torch.Tensor,
    sigmas: torch.Tensor,
) -> torch.Tensor:
    """Denoise copies [S, A, 3], Å, with noise levels [S], Å; the copies share all that noise leaves alone."""
    module = network.diffusion_module
    if not torch.is_grad_enabled():
        trunk = _wide(trunk)
    conditions = module.conditions(inputs, trunk.features, trunk.single, trunk.pair, trunk.relative)
    return module(inputs, conditions, noisy, sigmas)


def confidence(
    network: AlphaFold3, inputs: AlphaFold3Inputs, trunk: TrunkOutput, positions: torch.Tensor, dropout: float
) -> ConfidenceLogits:
    """Compute the confidence logits of a structure [A, 3], Å (Algorithm 31); the trunk gets no gradient."""
    trunk, heads = _detached(trunk), network.aux_heads
    embedding = heads.pairformer_embedding
    places = positions[representative_atoms(inputs)]
    pair = embedding.embed(trunk.features, trunk.pair, places, trunk.pair.dtype)
    single, pair = pairformer(
        embedding.pairformer_stack.blocks, trunk.single, pair, _token_mask(inputs), dropout
    )
    logits: ConfidenceLogits = run_block(heads.logits, inputs, single.to(trunk.features), pair)
    return logits
