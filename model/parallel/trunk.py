"""The trunk on several ranks: every rank has some rows of the MSA and of the pair representation."""

import sys
from dataclasses import dataclass

import torch

from model.alphafold2.modules.embedders import Features, RecycledState
from model.alphafold2.modules.evoformer import EvoformerBlock, Mask
from model.alphafold2.modules.templates import active_templates
from model.alphafold2.network import Representations, Trunk
from model.layers.graphs import GraphedModules
from model.parallel.communication import Pending, RankGroup, Shards
from model.parallel.evoformer import MsaShard, ShardedBlock, run_stack
from model.parallel.pair import PairShard
from model.parallel.templates import template_update


@dataclass(frozen=True)
class ShardedRepresentations(Representations):
    """One rank's part of the trunk's output.

    Args:
        msa: [s, N, C], the rank's rows, template rows included.
        pair: [n, N, Z], the rank's rows.
        single: [N, C'], of all residues.
        query_row: [N, C], the whole first row of the MSA representation.
        num_sequences: number of rows of all ranks, without template rows.
        msa_rows: division of all rows.
        residues: division of the rows of the pair representation.
    """

    query_row: torch.Tensor
    num_sequences: int
    msa_rows: Shards
    residues: Shards

    @property
    def first_row(self) -> torch.Tensor:
        """The MSA representation of the query: [N, C]."""
        return self.query_row

    def gather(self, group: RankGroup) -> Representations:
        """Return the representations of all ranks."""
        msa = group.gather(self.msa, self.msa_rows, "results").wait()
        pair = group.gather(self.pair, self.residues, "results").wait()
        return Representations(msa[: self.num_sequences], pair, self.single)


class ParallelTrunk:
    """A trunk whose work is divided among ranks.

    If the group's communication can be captured, blocks are replayed as CUDA graphs, without overlap between
    blocks. All ranks capture at the same time, after a normal call, in which NCCL connects them, and drop the
    graphs if one of them fails. The graphs must be released before memory is planned, and before the group.

    Args:
        trunk: the trunk with its parameters.
        group: the ranks.

    Attributes:
        graphs: the blocks of both stacks.
        graphs_fit: whether memory allows graphs; the same on all ranks.
    """

    def __init__(self, trunk: Trunk, group: RankGroup) -> None:
        self.trunk, self.group, self.graphs_fit = trunk, group, True
        self._extra, self._evoformer = map(
            _evoformer_blocks, (trunk.extra_msa_stack, trunk.evoformer_iteration)
        )
        self.graphs = [
            GraphedModules(
                [ShardedBlock(block, group) for block in blocks],
                max_residues=sys.maxsize,
                share_error=group.first_error,
            )
            for blocks in (self._extra, self._evoformer)
        ]

    def release_graphs(self) -> str:
        """Release the graphs and their memory; return the error of the last failed capture, or nothing."""
        error = next((graphs.error for graphs in self.graphs if graphs.error), "")
        for graphs in self.graphs:
            graphs.release()
        return error

    def __call__(self, features: Features, previous: RecycledState) -> ShardedRepresentations:
        """Compute this rank's part of the representations.

        Args:
            features: features of all rows and residues, the same on all ranks.
            previous: the recycled state, whose pair representation, this rank's rows, is taken.
        """
        seq_mask = features.get("seq_mask")
        pair_mask = None if seq_mask is None else seq_mask[:, None] * seq_mask[None]  # [N, N]
        pair_shard = PairShard(self.group, len(features["aatype"]), pair_mask)
        embedding = self.trunk.template_embedding
        templates = None if embedding is None else active_templates(features)
        num_sequences, mask = features["msa_feat"].shape[0], features.get("msa_mask")
        template_rows, mask = self._template_rows(templates, num_sequences, mask)
        msa_rows = self.group.shards(num_sequences + len(template_rows))

        msa, pair = self._embed_inputs(features, previous, pair_shard, msa_rows)
        if len(template_rows):
            own_rows = msa_rows.of(self.group.rank)
            first, last = (max(0, row - num_sequences) for row in (own_rows.start, own_rows.stop))
            msa = torch.cat([msa, template_rows[first:last]])
        if embedding is not None and templates is not None:
            pair += template_update(embedding, pair, templates, pair_shard)
        self.group.release_cached_memory()
        pair = self._run_extra_stack(features, pair, pair_shard)
        self.group.release_cached_memory()
        shard = MsaShard(pair_shard, msa_rows.total, mask)
        rows = Pending.done(msa)
        del msa
        final_msa, pair = self._run_stack(self._evoformer, self.graphs[1], shard, rows, pair)
        assert final_msa is not None
        self.group.release_cached_memory()
        first_row = self.group.broadcast(_first_row(final_msa), 0, "first row")
        return ShardedRepresentations(
            final_msa,
            pair,
            self.trunk.single_activations(first_row),
            first_row,
            num_sequences,
            msa_rows,
            pair_shard.residues,
        )

    def _embed_inputs(
        self, features: Features, previous: RecycledState, pair_shard: PairShard, msa_rows: Shards
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this rank's rows of both initial representations, without rows of templates."""
        trunk = self.trunk
        rows = msa_rows.of(self.group.rank)
        msa, pair = trunk.input_embedding(features, pair_shard.rows, rows)
        trunk.recycling_embedding.embed_pair(pair, features["aatype"], previous, pair_shard.rows)
        if self.group.rank == 0:
            msa[0] += trunk.recycling_embedding.prev_msa_first_row_norm(previous.msa_first_row)
        return msa, pair

    def _template_rows(
        self, templates: Features | None, num_sequences: int, mask: Mask
    ) -> tuple[torch.Tensor, Mask]:
        """Return the MSA rows [T, N, C] of templates, on every rank, and the mask [S + T, N] of all rows."""
        embedding = self.trunk.template_torsion_embedding
        if embedding is None or templates is None or not bool(templates["template_mask"].any()):
            return self.trunk.single_activations.weights.new_empty(0), mask
        rows, rows_mask = embedding(templates)  # [T, N, C], [T, N]
        mask = rows_mask.new_ones(num_sequences, rows_mask.shape[1]) if mask is None else mask
        return rows, torch.cat([mask, rows_mask])

    def _run_extra_stack(self, features: Features, pair: torch.Tensor, pair_shard: PairShard) -> torch.Tensor:
        """Run the extra MSA stack; return this rank's new rows of the pair representation."""
        shard = MsaShard(pair_shard, features["extra_msa"].shape[0], features.get("extra_msa_mask"))
        extra = Pending.done(self.trunk.extra_msa_embedding(features, shard.rows))  # [e, N, C'']
        self.group.release_cached_memory()
        return self._run_stack(self._extra, self.graphs[0], shard, extra, pair, keep_msa=False)[1]

    def _run_stack(
        self,
        blocks: list[EvoformerBlock],
        graphs: GraphedModules,
        shard: MsaShard,
        msa: Pending[torch.Tensor],
        pair: torch.Tensor,
        *,
        keep_msa: bool = True,
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Run a stack, as graphs if possible; see `run_stack`."""
        if not (self.graphs_fit and self.group.can_be_captured and graphs.enabled):
            return run_stack(blocks, shard, msa, pair, keep_msa=keep_msa)
        sequences = pair.new_empty(shard.sequences.total, 0)
        rows, pair = graphs(pair.shape[1], msa.wait(), pair, shard.mask, shard.pair.whole_mask, sequences)
        return rows, pair


def _first_row(msa: torch.Tensor) -> torch.Tensor:
    """Return a copy of the first row of msa [s, N, C]; uninitialised if this rank has no rows."""
    return msa[0].clone() if len(msa) else msa.new_empty(msa.shape[1:])


def _evoformer_blocks(stack: torch.nn.ModuleList) -> list[EvoformerBlock]:
    return [block for block in stack if isinstance(block, EvoformerBlock)]
