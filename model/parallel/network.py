"""A network whose passes are divided among ranks, with the same interface as on one device.

The trunk is divided (`model.parallel.trunk`), and so is point attention in the structure module, which reads
the pair representation. Everything else is small, and every rank computes it.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from model.alphafold2.modules.embedders import Features, RecycledState
from model.alphafold2.modules.evoformer import Mask
from model.alphafold2.modules.heads import AlignedError, ExpectedErrors, expected_errors
from model.alphafold2.modules.point_attention import PointAttention
from model.alphafold2.network import AlphaFold, PassOutput, Representations
from model.layers.cached_memory import memory_is_scarce
from model.layers.rigid import Rigid
from model.parallel.communication import RankGroup
from model.parallel.trunk import ParallelTrunk, ShardedRepresentations
from model.prediction import ComplexScores


class ParallelAlphaFold(AlphaFold):
    """A network that all ranks of a group run together, each calling the same methods at the same time.

    Representations are a rank's rows; positions and scores are the same on all ranks.

    Args:
        network: the network with its parameters, which this one takes over and changes.
        group: the ranks.

    Attributes:
        parallel_trunk: the trunk, which decides about CUDA graphs.
    """

    def __init__(self, network: AlphaFold, group: RankGroup) -> None:
        # the modules already exist, so the constructor of AlphaFold is not called
        nn.Module.__init__(self)
        self.config, self.kernels, self.group = network.config, network.kernels, group
        self.evoformer = network.evoformer
        self.structure_module = network.structure_module
        # contains communication
        self.structure_module.iterations.enabled = False
        self.heads, self.plddt_shift = network.heads, network.plddt_shift
        self.parallel_trunk = ParallelTrunk(network.evoformer, group)
        iteration = self.structure_module.fold_iteration
        setattr(  # noqa: B010  (the attribute is declared as a module of another class)
            iteration,
            "invariant_point_attention",
            ShardedPointAttention(iteration.invariant_point_attention, group),
        )
        self.eval()

    def run_pass(self, features: Features, previous: RecycledState) -> PassOutput:
        """Run trunk and structure module once; see `AlphaFold.run_pass` for the arguments."""
        representations = self.parallel_trunk(features, previous)
        activations, positions, atom_mask = self.structure_module(
            representations.single.float(),
            representations.pair,
            features["aatype"],
            features.get("seq_mask"),
        )
        # ranks on different devices may round differently, but must stop recycling after the same pass
        positions = self.group.broadcast(positions.contiguous(), 0, "positions")
        return PassOutput(representations, activations, positions, atom_mask)

    def results(self, output: PassOutput) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the results of a pass one by one; see `AlphaFold.results`.

        The representations of all ranks are gathered first.
        """
        representations = _sharded(output).gather(self.group)
        return super().results(replace(output, representations=representations))

    def expected_errors(self, output: PassOutput) -> ExpectedErrors:
        """Compute PAE and TM-scores after a pass, on every rank; only for networks with a PAE head."""
        representations = _sharded(output)
        expected = expected_errors(representations.pair, self.heads["predicted_aligned_error_head"])
        gathered = [self.group.gather(x, representations.residues, "aligned error") for x in expected]
        return ExpectedErrors(*(x.wait() for x in gathered))

    def complex_scores(
        self, output: PassOutput, asym_id: np.ndarray, plddt: np.ndarray
    ) -> tuple[ComplexScores, AlignedError]:
        """Compute the scores of a complex after a pass, on every rank; see `AlphaFold.complex_scores`."""
        sharded = _sharded(output)
        pair = self.group.gather(sharded.pair, sharded.residues, "complex scores").wait()
        whole = Representations(sharded.msa, pair, sharded.single)
        return super().complex_scores(replace(output, representations=whole), asym_id, plddt)

    def release_cached_memory(self, output: PassOutput) -> None:
        """Release cached GPU memory after a pass, on every rank."""
        self.group.release_cached_memory()

    def initial_state(self, features: Features) -> RecycledState:
        """Return the all-zero state that the first pass starts from, with this rank's rows."""
        # graphs of an earlier prediction know memory of other ranks, which is closed now
        self.parallel_trunk.release_graphs()
        length, like = features["aatype"].shape[0], self.evoformer.single_activations.bias
        shards, channels = self.group.shards(length), self.config.evoformer.pair.channels
        pair_bytes = shards.max_count * length * channels * like.element_size()
        self.group.begin(length, scarce_memory=like.is_cuda and memory_is_scarce(pair_bytes))
        return RecycledState.zeros(length, self.config, like, shards.counts[self.group.rank])


def _sharded(output: PassOutput) -> ShardedRepresentations:
    assert isinstance(output.representations, ShardedRepresentations)
    return output.representations


class ShardedPointAttention(nn.Module):
    """Invariant point attention of which each rank computes the rows of its residues.

    Args:
        attention: the attention with its parameters.
        group: the ranks.
    """

    def __init__(self, attention: PointAttention, group: RankGroup) -> None:
        super().__init__()
        self.attention, self.group, self.pair_logits = attention, group, attention.pair_logits

    def forward(
        self, single: torch.Tensor, pair: torch.Tensor, pair_logits: torch.Tensor, frames: Rigid, mask: Mask
    ) -> torch.Tensor:
        """Compute the update [N, C]; see `PointAttention.forward`, but pairs have this rank's rows only."""
        shards = self.group.shards(len(single))
        if len(pair):
            residues = shards.of(self.group.rank)
            update = self.attention(single, pair, pair_logits, frames, mask, residues=residues)
        else:
            update = single[:0]
        return self.group.gather(update, shards, "point attention").wait()
