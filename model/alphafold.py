"""The network: one pass from features and the previous pass to representations, structure and heads."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from model.config import ModelConfig
from model.embedders import ExtraMsaEmbedding, Features, InputEmbedding, Recycled, RecyclingEmbedding
from model.evoformer import EvoformerBlock
from model.graphs import Recorded
from model.heads import aligned_error_edges, distogram_edges, make_heads
from model.kernels import Kernels, select_kernels
from model.layers import Linear
from model.naming import assign
from model.structure_module import StructureModule
from model.templates import TemplateEmbedding, TemplateRows, templates_of


@dataclass(frozen=True)
class Representations:
    """What the trunk computes.

    Args:
        msa: [S, N, C], without template rows.
        pair: [N, N, Z].
        single: [N, C'].
    """

    msa: torch.Tensor
    pair: torch.Tensor
    single: torch.Tensor


@dataclass(frozen=True)
class Pass:
    """What one pass through the network gives, before the heads.

    Args:
        representations: of the trunk.
        structure_activations: [N, C'], the structure module's single representation.
        positions: [N, 37, 3], Å.
        atom_mask: [N, 37].
    """

    representations: Representations
    structure_activations: torch.Tensor
    positions: torch.Tensor
    atom_mask: torch.Tensor

    def recycled(self) -> Recycled:
        """What the next pass takes from this one."""
        # a copy, so that the whole MSA representation is not kept for its first row
        first_row = self.representations.msa[0].clone()
        return Recycled(first_row, self.representations.pair, self.positions)


class Trunk(nn.Module):
    """Algorithm 2 up to the structure module: embeddings, extra MSA stack, Evoformer."""

    def __init__(self, config: ModelConfig, kernels: Kernels) -> None:
        super().__init__()
        channels = config.evoformer.pair.channels
        self.input_embedding = InputEmbedding(config)
        self.recycling_embedding = RecyclingEmbedding(config, kernels)
        self.template_embedding: TemplateEmbedding | None = None
        self.template_rows: TemplateRows | None = None
        if config.template is not None:
            self.template_embedding = TemplateEmbedding(config.template, channels, kernels)
            self.template_rows = TemplateRows(config)
        self.extra_msa_embedding = ExtraMsaEmbedding(config)
        self.extra_msa_stack = nn.ModuleList(
            EvoformerBlock(config.extra_msa, kernels) for _ in range(config.extra_msa.blocks)
        )
        self.evoformer_iteration = nn.ModuleList(
            EvoformerBlock(config.evoformer, kernels) for _ in range(config.evoformer.blocks)
        )
        self.extra_msa_blocks = Recorded(self.extra_msa_stack)
        self.evoformer_blocks = Recorded(self.evoformer_iteration)
        self.single_activations = Linear(config.evoformer.msa.channels, config.structure.channels)

    def forward(self, features: Features, previous: Recycled) -> Representations:
        """One pass; see `AlphaFold.forward` for the features."""
        seq_mask, mask = features.get("seq_mask"), features.get("msa_mask")
        pair_mask = None if seq_mask is None else seq_mask[:, None] * seq_mask[None]
        msa, pair = self.input_embedding(features)  # [S, N, C], [N, N, Z]
        sequences = msa.shape[0]
        msa, pair = self.recycling_embedding(msa, pair, features["aatype"], previous)
        templates = templates_of(features)
        if self.template_embedding is not None and self.template_rows is not None and templates is not None:
            pair += self.template_embedding(pair, templates, pair_mask)
            rows, rows_mask = self.template_rows(templates)  # [T, N, C], [T, N]
            mask = rows_mask.new_ones(msa.shape[:2]) if mask is None else mask
            msa, mask = torch.cat([msa, rows]), torch.cat([mask, rows_mask])
        extra = self.extra_msa_embedding(features)  # [E, N, C'']
        extra_mask = features.get("extra_msa_mask")
        length = pair.shape[0]
        extra, pair = self.extra_msa_blocks(length, extra, pair, extra_mask, pair_mask)
        del extra
        msa, pair = self.evoformer_blocks(length, msa, pair, mask, pair_mask)
        return Representations(msa[:sequences], pair, self.single_activations(msa[0]))


class AlphaFold(nn.Module):
    """AlphaFold2's monomer network (Jumper et al., Nature 596, 583, 2021).

    Its parameters are uninitialised; `from_parameters` makes one that is ready.

    Args:
        config: the network's shape.
        kernels: implementation of the heavy operations, or its name; see `model.kernels.select_kernels`.
        device: where the network will run.
    """

    def __init__(
        self,
        config: ModelConfig,
        kernels: str | Kernels = "reference",
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        chosen = kernels if isinstance(kernels, Kernels) else select_kernels(kernels, device)
        self.config, self.kernels = config, chosen
        self.evoformer = Trunk(config, chosen)
        self.structure_module = StructureModule(config.structure, config.evoformer.pair.channels, chosen)
        self.folding = Recorded([self.structure_module])
        self.heads = make_heads(config, chosen)

    @classmethod
    def from_parameters(
        cls,
        config: ModelConfig,
        arrays: Mapping[str, np.ndarray],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        kernels: str | Kernels = "reference",
    ) -> "AlphaFold":
        """A network with these parameters.

        On the CPU in float32 the network shares the arrays' memory.

        Args:
            config: the network's shape.
            arrays: parameters by DeepMind's names, checked, as `model.parameters.load_npz` returns them.
            device: where the network runs.
            dtype: of the trunk's parameters and activations; the structure module and the heads are float32.
            kernels: implementation of the heavy operations.
        """
        with torch.device("meta"):
            network = cls(config, kernels, device)
        assign(network, arrays, torch.device(device), dtype)
        return network.eval()

    def run_pass(self, features: Features, previous: Recycled) -> Pass:
        """Trunk and structure module; arguments as `forward`."""
        representations = self.evoformer(features, previous)
        activations, positions, atom_mask = self.folding(
            features["aatype"].shape[0],
            representations.single.float(),
            representations.pair,
            features["aatype"],
            features.get("seq_mask"),
        )
        return Pass(representations, activations, positions, atom_mask)

    def forward(self, features: Features, previous: Recycled | None = None) -> dict[str, torch.Tensor]:
        """One pass with all heads.

        Args:
            features: those of one recycling iteration, as `model.recycling.feature_tensors` makes them:
                target_feat [N, 22], msa_feat [S, N, 49], aatype and residue_index [N], extra_msa,
                extra_has_deletion and extra_deletion_value [E, N]; masks, each absent where all is real,
                msa_mask [S, N], seq_mask [N] and extra_msa_mask [E, N]; and for networks with templates,
                optionally, template_aatype [T, N], template_all_atom_positions [T, N, 37, 3] in Å,
                template_all_atom_masks [T, N, 37] and, on the CPU, template_mask [T].
            previous: the pass before, or None for zeros.

        Returns:
            Tensors by the names of DeepMind's results, joined by slashes.
        """
        if previous is None:
            previous = self.first_recycled(features)
        done = self.run_pass(features, previous)
        representations = done.representations
        results = {
            "representations/msa": representations.msa,
            "representations/msa_first_row": representations.msa[0],
            "representations/pair": representations.pair,
            "representations/single": representations.single,
            "representations/structure_module": done.structure_activations,
            "structure_module/final_atom_positions": done.positions,
            "structure_module/final_atom_mask": done.atom_mask,
            "predicted_lddt/logits": self.heads["predicted_lddt_head"](done.structure_activations),
            "distogram/logits": self.heads["distogram_head"](representations.pair.float()),
            "distogram/bin_edges": distogram_edges(representations.pair.device),
            "masked_msa/logits": self.heads["masked_msa_head"](representations.msa.float()),
            "experimentally_resolved/logits": self.heads["experimentally_resolved_head"](
                representations.single.float()
            ),
        }
        if self.config.predicted_aligned_error:
            head = self.heads["predicted_aligned_error_head"]
            results["predicted_aligned_error/logits"] = head(representations.pair.float())
            results["predicted_aligned_error/breaks"] = aligned_error_edges(representations.pair.device)
        return results

    def first_recycled(self, features: Features) -> Recycled:
        """What the first pass starts from."""
        length = features["aatype"].shape[0]
        return Recycled.zeros(length, self.config, self.evoformer.single_activations.bias)
