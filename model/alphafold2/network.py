"""AlphaFold2's networks, monomer and multimer: the trunk, the structure module and the output heads."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import nn

from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.modules.embedders import (
    ExtraMsaEmbedding,
    Features,
    InputEmbedding,
    RecycledState,
    RecyclingEmbedding,
)
from model.alphafold2.modules.evoformer import EvoformerBlock
from model.alphafold2.modules.heads import (
    AlignedError,
    DistogramHead,
    ExpectedErrors,
    aligned_error_edges,
    distogram_edges,
    expected_errors,
    expected_plddt,
    make_heads,
    shift_log_odds,
)
from model.alphafold2.modules.structure_module import StructureModule
from model.alphafold2.modules.templates import TemplateEmbedding, TemplateTorsionEmbedding, active_templates
from model.alphafold2.multimer.embedders import MultimerInputEmbedding
from model.alphafold2.multimer.templates import MultimerTemplateEmbedding, MultimerTorsionEmbedding
from model.confidence.complex_scores import complex_scores
from model.layers.cached_memory import release_cached_memory
from model.layers.common import Linear
from model.layers.graphs import GraphedModules
from model.layers.kernels import Kernels, select_kernels
from model.prediction import ComplexScores


@dataclass(frozen=True)
class Representations:
    """The trunk's output, in the dtype of the trunk.

    Args:
        msa: [S, N, C], without the template rows.
        pair: [N, N, Z].
        single: [N, C'].
    """

    msa: torch.Tensor
    pair: torch.Tensor
    single: torch.Tensor

    @property
    def first_row(self) -> torch.Tensor:
        """The MSA representation of the query: [N, C]."""
        return self.msa[0]


@dataclass(frozen=True)
class PassOutput:
    """The result of one pass through trunk and structure module, before the heads.

    Args:
        representations: the trunk's output.
        structure_activations: [N, C'] float32, the structure module's single representation.
        positions: [N, 37, 3] float32, atom positions in Å.
        atom_mask: [N, 37] float32, 1 for the atoms of the residue type.
    """

    representations: Representations
    structure_activations: torch.Tensor
    positions: torch.Tensor
    atom_mask: torch.Tensor

    def recycled_state(self) -> RecycledState:
        """Return the part of this output that the next pass takes as input."""
        # copied, because a view of the first row would keep the whole MSA representation alive
        first_row = self.representations.first_row.clone()
        return RecycledState(first_row, self.representations.pair, self.positions)


class Trunk(nn.Module):
    """The part of Algorithm 2 before the structure module: embeddings, extra MSA and Evoformer stacks."""

    def __init__(self, config: ModelConfig, kernels: Kernels) -> None:
        super().__init__()
        channels = config.evoformer.pair.channels
        multimer = config.multimer is not None
        self.input_embedding = (MultimerInputEmbedding if multimer else InputEmbedding)(config)
        self.recycling_embedding = RecyclingEmbedding(config, kernels)
        self.template_embedding: TemplateEmbedding | MultimerTemplateEmbedding | None = None
        self.template_torsion_embedding: TemplateTorsionEmbedding | MultimerTorsionEmbedding | None = None
        if config.template is not None:
            embedding = MultimerTemplateEmbedding if multimer else TemplateEmbedding
            torsion_embedding = MultimerTorsionEmbedding if multimer else TemplateTorsionEmbedding
            self.template_embedding = embedding(config.template, channels, kernels)
            self.template_torsion_embedding = torsion_embedding(config)
        self.extra_msa_embedding = ExtraMsaEmbedding(config)
        self.extra_msa_stack = nn.ModuleList(
            EvoformerBlock(config.extra_msa, kernels) for _ in range(config.extra_msa.blocks)
        )
        self.evoformer_iteration = nn.ModuleList(
            EvoformerBlock(config.evoformer, kernels) for _ in range(config.evoformer.blocks)
        )
        self.extra_msa_blocks = GraphedModules(self.extra_msa_stack)
        self.evoformer_blocks = GraphedModules(self.evoformer_iteration)
        self.single_activations = Linear(config.evoformer.msa.channels, config.structure.channels)

    def forward(self, features: Features, previous: RecycledState) -> Representations:
        """Compute the representations; see `AlphaFold.run_pass` for the arguments."""
        seq_mask, mask = features.get("seq_mask"), features.get("msa_mask")
        pair_mask = None if seq_mask is None else seq_mask[:, None] * seq_mask[None]  # [N, N]
        msa, pair = self.input_embedding(features)  # [S, N, C], [N, N, Z]
        num_sequences = msa.shape[0]
        msa, pair = self.recycling_embedding(msa, pair, features["aatype"], previous)
        templates = active_templates(features)
        if (
            self.template_embedding is not None
            and self.template_torsion_embedding is not None
            and templates is not None
        ):
            pair += self.template_embedding(pair, templates, pair_mask)
            if bool(templates["template_mask"].any()):
                template_rows, template_mask = self.template_torsion_embedding(templates)  # [T, N, C], [T, N]
                mask = template_mask.new_ones(msa.shape[:2]) if mask is None else mask
                msa = torch.cat([msa, template_rows])  # [S + T, N, C]
                mask = torch.cat([mask, template_mask])  # [S + T, N]
        release_cached_memory(pair)
        extra = self.extra_msa_embedding(features)  # [E, N, C'']
        extra_mask = features.get("extra_msa_mask")
        length = pair.shape[0]
        extra, pair = self.extra_msa_blocks(length, extra, pair, extra_mask, pair_mask)
        del extra
        msa, pair = self.evoformer_blocks(length, msa, pair, mask, pair_mask)
        release_cached_memory(pair)
        return Representations(msa[:num_sequences], pair, self.single_activations(msa[0]))


class AlphaFold(nn.Module):
    """A network of AlphaFold2 (Jumper et al., Nature 596, 583, 2021) or of AlphaFold-Multimer.

    The constructor leaves parameters uninitialised; `model.checkpoints.alphafold2.build_network` sets them.

    Args:
        config: the network's architecture.
        kernels: implementation of the heavy operations, or its name; see `kernels.select_kernels`.
        device: the device that the network will run on.
    """

    def __init__(
        self, config: ModelConfig, kernels: str | Kernels = "reference", device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        if isinstance(kernels, str):
            kernels = select_kernels(kernels, device)
        self.config, self.kernels = config, kernels
        self.evoformer = Trunk(config, kernels)
        self.structure_module = StructureModule(config.structure, config.evoformer.pair.channels, kernels)
        self.heads = make_heads(config, kernels)
        self.plddt_shift = 0.0  # number that is added to the log odds of pLDDT / 100

    def run_pass(self, features: Features, previous: RecycledState) -> PassOutput:
        """Run trunk and structure module once; see `forward`.

        The pair representation of the previous state is taken, so that it can be freed.
        """
        representations = self.evoformer(features, previous)
        activations, positions, atom_mask = self.structure_module(
            representations.single.float(), representations.pair, features["aatype"], features.get("seq_mask")
        )
        return PassOutput(representations, activations, positions, atom_mask)

    def forward(self, features: Features, previous: RecycledState | None = None) -> dict[str, torch.Tensor]:
        """Run one pass and all heads.

        Args:
            features: tensors of one recycling iteration, as `recycling.feature_tensors` returns them:
                target_feat [N, 22], msa_feat [S, N, 49], aatype and residue_index [N], extra_msa,
                extra_has_deletion and extra_deletion_value [E, N]; the masks msa_mask [S, N], seq_mask [N]
                and extra_msa_mask [E, N], each absent if it is all ones; and optionally, for networks with
                templates, template_aatype [T, N], template_all_atom_positions [T, N, 37, 3] in Å,
                template_all_atom_masks [T, N, 37] and, on the CPU, template_mask [T]. Multimer networks take
                the features that `inputs.MultimerInputs` draws: target_feat then has 21
                channels, and there are also asym_id, entity_id, sym_id [N], template_chains [T, N] and, on
                the CPU, template_weights [T].
            previous: state recycled from the previous pass, or None for zeros.

        Returns:
            Tensors keyed by DeepMind's result names; the parts of nested names are joined by slashes.
        """
        if previous is None:
            previous = self.initial_state(features)
        return dict(self.results(self.run_pass(features, previous)))

    def results(self, output: PassOutput) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the names and results of a pass one by one, including those of all heads; see `forward`.

        Each result is computed on request, so that the large ones need not be in memory at the same time.
        """
        representations = output.representations
        yield "representations/msa", representations.msa
        yield "representations/msa_first_row", representations.msa[0]
        yield "representations/pair", representations.pair
        yield "representations/single", representations.single
        yield "representations/structure_module", output.structure_activations
        yield "structure_module/final_atom_positions", output.positions
        yield "structure_module/final_atom_mask", output.atom_mask
        yield "predicted_lddt/logits", self.heads["predicted_lddt_head"](output.structure_activations)
        yield "distogram/logits", self.heads["distogram_head"](representations.pair.float())
        yield "distogram/bin_edges", distogram_edges(representations.pair.device)
        yield "masked_msa/logits", self.heads["masked_msa_head"](representations.msa.float())
        head = self.heads["experimentally_resolved_head"]
        yield "experimentally_resolved/logits", head(representations.single.float())
        if self.config.predicted_aligned_error:
            head = self.heads["predicted_aligned_error_head"]
            yield "predicted_aligned_error/logits", head(representations.pair.float())
            yield "predicted_aligned_error/breaks", aligned_error_edges(representations.pair.device)

    def plddt(self, output: PassOutput) -> torch.Tensor:
        """Compute pLDDT, [N] float64 from 0 to 100, after a pass."""
        plddt = expected_plddt(self.heads["predicted_lddt_head"](output.structure_activations))
        if self.plddt_shift == 0:
            return plddt
        return 100 * shift_log_odds(plddt / 100, self.plddt_shift)

    def expected_errors(self, output: PassOutput) -> ExpectedErrors:
        """Compute PAE and TM-scores after a pass; only for networks with a PAE head."""
        return expected_errors(output.representations.pair, self.heads["predicted_aligned_error_head"])

    def complex_scores(
        self, output: PassOutput, asym_id: np.ndarray, plddt: np.ndarray
    ) -> tuple[ComplexScores, AlignedError]:
        """Compute the scores, PAE and pTM of a complex after a pass; only for networks with a PAE head.

        `asym_id` [N] are the numbers of the chains; pLDDT is [N], 0 to 100.
        """
        pair = output.representations.pair
        error_head = self.heads["predicted_aligned_error_head"]
        distogram_head = cast(DistogramHead, self.heads["distogram_head"])
        scores, pae = complex_scores(
            lambda rows: error_head(pair[rows].float()),
            aligned_error_edges(pair.device),
            lambda rows: distogram_head.rows(pair, rows),
            distogram_edges(pair.device),
            asym_id,
            output.positions,
            output.atom_mask,
            plddt,
        )
        return scores, AlignedError.from_tensor(pae, scores.ptm)

    def release_cached_memory(self, output: PassOutput) -> None:
        """Release cached GPU memory after a pass; see `model.layers.cached_memory`."""
        release_cached_memory(output.representations.pair)

    def initial_state(self, features: Features) -> RecycledState:
        """Return the all-zero state that the first pass starts from."""
        length = features["aatype"].shape[0]
        return RecycledState.zeros(length, self.config, self.evoformer.single_activations.bias)
