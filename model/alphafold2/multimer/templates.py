"""Template embeddings of AlphaFold-Multimer: the update of the pair representation, and MSA rows."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import nn

from cuda.fused.chunking import residue_slices
from model import residue_constants
from model.alphafold2.modules.config import ModelConfig, TemplateConfig
from model.alphafold2.modules.embedders import ALL, Features, distance_bins, pseudo_beta
from model.alphafold2.modules.evoformer import Mask
from model.alphafold2.modules.templates import TEMPLATE_BINS, TemplatePairBlock, one_template, torsion_angles
from model.layers.common import LayerNorm, Linear, OneHotLinear, parameter
from model.layers.kernels import Kernels
from model.layers.rigid import rotate
from msa.base.residues import NUM_CODES

CHI = 3  # index of chi1 among the torsion angles
# residue type, sines and cosines of the four chi angles, and their mask
CHI_FEATURES = NUM_CODES + 3 * 4
# CB distance bins, CB mask, backbone direction, backbone mask
GEOMETRY_FEATURES = TEMPLATE_BINS[2] + 1 + 3 + 1


class ScalarLinear(nn.Module):
    """The parameters of a linear layer with one input."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.weights = parameter(outputs)
        self.bias = parameter(outputs)


class MultimerSingleTemplateEmbedding(nn.Module):
    """The pair embedding of one template, computed from its features and the pair representation."""

    def __init__(self, config: TemplateConfig, channels: int, kernels: Kernels) -> None:
        super().__init__()
        inner = config.pair.channels
        self.query_embedding_norm = LayerNorm(channels, kernels)
        self.distances = Linear(TEMPLATE_BINS[2], inner)
        self.beta_mask = ScalarLinear(inner)
        self.column_types = OneHotLinear(NUM_CODES, inner)
        self.row_types = OneHotLinear(NUM_CODES, inner)
        self.direction_x = ScalarLinear(inner)
        self.direction_y = ScalarLinear(inner)
        self.direction_z = ScalarLinear(inner)
        self.backbone_mask = ScalarLinear(inner)
        self.query_pair = Linear(channels, inner)
        self.template_embedding_iteration = nn.ModuleList(
            TemplatePairBlock(config.pair, kernels, multiplication_first=config.multiplication_first)
            for _ in range(config.blocks)
        )
        self.output_layer_norm = LayerNorm(inner, kernels)

    def forward(self, pair: torch.Tensor, template: Features, pair_mask: Mask) -> torch.Tensor:
        """Embed one template's features, without template axis, as [N, N, C], given pair [N, N, Z]."""
        result = self.embed_features(pair, template)
        for block in self.template_embedding_iteration:
            result = block(result, pair_mask)
        return self.output_layer_norm(result)

    def embed_features(self, pair: torch.Tensor, template: Features, rows: slice = ALL) -> torch.Tensor:
        """Return rows [n, N, C] of the stack's input, given those of pair [n, N, Z]."""
        aatype = template["template_aatype"]
        geometry_weights, bias = self._geometry_layer()
        types_of_columns = self.column_types(aatype) + bias  # [N, C]
        types_of_rows = self.row_types(aatype)
        length, channels = types_of_columns.shape
        result = types_of_columns.new_empty(pair.shape[0], length, channels)
        elements = 3 * channels + 2 * pair.shape[-1] + 6 * GEOMETRY_FEATURES
        for chunk, residues in residue_slices(pair, length * elements, rows):
            geometry = template_geometry(template, residues).to(types_of_columns.dtype)  # [n, N, 44]
            act = self.query_pair(self.query_embedding_norm(pair[chunk]))
            act += geometry @ geometry_weights
            act += types_of_rows[residues, None]
            result[chunk] = act.add_(types_of_columns)
        return result

    def _geometry_layer(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weights [44, C] and bias [C] of the layers for geometric features, as one."""
        directions = self.direction_x, self.direction_y, self.direction_z
        scalars = self.beta_mask, *directions, self.backbone_mask
        weights = torch.cat([self.distances.weights, torch.stack([layer.weights for layer in scalars])])
        return weights, torch.stack([self.distances.bias, *(layer.bias for layer in scalars)]).sum(dim=0)


def template_geometry(template: Features, rows: slice = slice(None)) -> torch.Tensor:
    """Return geometric features of n rows of residue pairs, zero for pairs in different chains: [n, N, 44].

    Channels: distance bins of CB (39), CB mask, direction to the other residue in the backbone frame (3),
    backbone mask.
    """
    aatype, atoms = template["template_aatype"], template["template_all_atom_masks"]
    positions, chains = template["template_all_atom_positions"], template["template_chains"]
    same_chain = (chains[rows, None] == chains[None]).to(atoms.dtype)[..., None]  # [n, N, 1]
    beta_mask = pseudo_beta(aatype, atoms[..., None])  # [N, 1]
    beta_pairs = same_chain * (beta_mask[rows, None] * beta_mask[None])
    bins = distance_bins(pseudo_beta(aatype, positions), *TEMPLATE_BINS, rows)
    n, ca, c = residue_constants.N, residue_constants.CA, residue_constants.C
    backbone = (atoms[:, n] * atoms[:, ca] * atoms[:, c])[:, None]  # [N, 1]
    backbone_pairs = same_chain * (backbone[rows, None] * backbone[None])
    frames = _backbone_rotations(positions)[rows].transpose(-1, -2)[:, None]  # [n, 1, 3, 3]
    alpha = positions[:, ca]  # [N, 3]
    directions = _normalise(rotate(frames, alpha[None] - alpha[rows, None]))  # [n, N, 3]
    return torch.cat([bins * beta_pairs, beta_pairs, directions * backbone_pairs, backbone_pairs], dim=-1)


def _backbone_rotations(positions: torch.Tensor) -> torch.Tensor:
    """Return the rotations [N, 3, 3] of the residues' backbone frames, with C on the x axis."""
    alpha = positions[:, residue_constants.CA]
    x = _normalise(positions[:, residue_constants.C] - alpha)
    to_nitrogen = positions[:, residue_constants.N] - alpha
    y = _normalise(to_nitrogen - (to_nitrogen * x).sum(dim=-1, keepdim=True) * x)
    return torch.stack([x, y, torch.linalg.cross(x, y)], dim=-1)


def _normalise(vector: torch.Tensor) -> torch.Tensor:
    """Scale vectors [..., 3] to unit length; vectors shorter than 1e-6 stay shorter than 1."""
    return vector / torch.sqrt(vector.square().sum(dim=-1, keepdim=True).clip(min=1e-12))


class MultimerTemplateEmbedding(nn.Module):
    """The update of the pair representation from all template slots, empty ones included."""

    def __init__(self, config: TemplateConfig, channels: int, kernels: Kernels) -> None:
        super().__init__()
        self.single_template_embedding = MultimerSingleTemplateEmbedding(config, channels, kernels)
        self.output_linear = Linear(config.pair.channels, channels)

    def forward(self, pair: torch.Tensor, templates: Features, pair_mask: Mask) -> torch.Tensor:
        """Compute the update [N, N, Z] of the pair representation.

        Template features have a leading template axis; template_weights is on the CPU. `pair_mask` is [N, N].
        """
        embedded = (
            self.single_template_embedding(pair, one_template(templates, index), pair_mask)
            for index in range(len(templates["template_weights"]))
        )
        return self.combine(embedded, templates["template_weights"])

    def combine(self, embedded: Iterable[torch.Tensor], weights: torch.Tensor) -> torch.Tensor:
        """Compute the update [n, N, Z] from rows [n, N, C] of each embedded template and their weights."""
        mean: torch.Tensor | None = None
        for weight, template in zip(weights.tolist(), embedded, strict=True):
            mean = weight * template if mean is None else mean.add_(weight * template)
        assert mean is not None
        update: torch.Tensor = self.output_linear(mean.relu_())
        return update


class MultimerTorsionEmbedding(nn.Module):
    """The embedding of each template's side-chain torsion angles as an MSA row."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        channels = config.evoformer.msa.channels
        self.template_single_embedding = Linear(CHI_FEATURES, channels)
        self.template_projection = Linear(channels, channels)

    def forward(self, templates: Features) -> tuple[torch.Tensor, torch.Tensor]:
        """Return MSA rows [T, N, C] and their mask [T, N] for the T slots that are not empty.

        Features have a leading axis of slots, empty ones last; template_mask is on the CPU.
        """
        filled = int(templates["template_mask"].sum())
        aatype = templates["template_aatype"][:filled]
        positions = templates["template_all_atom_positions"][:filled]
        torsions = torsion_angles(aatype, positions, templates["template_all_atom_masks"][:filled])
        mask = torsions.mask[..., CHI:]  # [T, N, 4]
        sine, cosine = (torsions.sin_cos[..., CHI:, :] * mask[..., None]).unbind(dim=-1)
        features = torch.cat([F.one_hot(aatype, NUM_CODES).to(mask.dtype), sine, cosine, mask], dim=-1)
        rows = self.template_single_embedding(features.to(self.template_projection.bias.dtype))
        return self.template_projection(torch.relu(rows)), mask[..., 0]
