"""Template embeddings: pair update (Algorithms 16 and 17) and MSA rows of torsion angles (Algorithm 2)."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from cuda.fused.chunking import residue_slices, row_slices
from model import residue_constants
from model.alphafold2.modules.config import ModelConfig, PairConfig, TemplateConfig
from model.alphafold2.modules.embedders import ALL, Features, distance_bins, pseudo_beta
from model.alphafold2.modules.evoformer import Mask, TriangleAttention, TriangleMultiplication
from model.layers.common import LayerNorm, Linear, Transition, parameter
from model.layers.kernels import Kernels
from model.layers.rigid import frame_from_points
from model.residue_tables import residue_rows
from msa.base.residues import NUM_CODES

# bins of the CB distances in a template: first and last lower edge in Å, and their number
TEMPLATE_BINS = (3.25, 50.75, 39)
# distance bins, CB mask, residue types of both residues, backbone direction, backbone mask
PAIR_FEATURES = TEMPLATE_BINS[2] + 1 + 2 * NUM_CODES + 3 + 1
# residue type, sine and cosine of 7 torsion angles, the same for the alternative angles, and their mask
TORSION_FEATURES = NUM_CODES + 14 + 14 + 7
PSI = 2  # index of psi among the torsion angles


def active_templates(features: Features) -> Features | None:
    """Return the features of all templates, or None if there is no template to embed."""
    if "template_mask" not in features:
        return None
    # AlphaFold-Multimer also embeds empty template slots
    if "template_weights" not in features and not bool(features["template_mask"].any()):
        return None
    return {name: x for name, x in features.items() if name.startswith("template_")}


def one_template(templates: Features, index: int) -> Features:
    """Return the features of one template, without template axis."""
    return {name: x[index] for name, x in templates.items()}


class TemplatePairBlock(nn.Module):
    """One block of the template pair stack (Algorithm 16).

    Attentions come before multiplications, unlike in the paper, or after them in AlphaFold-Multimer.
    """

    def __init__(self, config: PairConfig, kernels: Kernels, *, multiplication_first: bool = False) -> None:
        super().__init__()
        self.multiplication_first = multiplication_first
        self.triangle_attention_starting_node = TriangleAttention(config, kernels, starting=True)
        self.triangle_attention_ending_node = TriangleAttention(config, kernels, starting=False)
        self.triangle_multiplication_outgoing = TriangleMultiplication(config, kernels, outgoing=True)
        self.triangle_multiplication_incoming = TriangleMultiplication(config, kernels, outgoing=False)
        self.pair_transition = Transition(config.channels, config.transition_factor, kernels)

    def forward(self, pair: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Update pair [N, N, C] in place and return it; mask is [N, N]."""
        attentions = (self.triangle_attention_starting_node, self.triangle_attention_ending_node)
        multiplications = (self.triangle_multiplication_outgoing, self.triangle_multiplication_incoming)
        ordered = (
            (multiplications, attentions) if self.multiplication_first else (attentions, multiplications)
        )
        for layer in (*ordered[0], *ordered[1]):
            layer(pair, mask)
        self.pair_transition(pair)
        return pair


class SingleTemplateEmbedding(nn.Module):
    """The pair embedding of one template (Algorithm 2, lines 9 to 11)."""

    def __init__(self, config: TemplateConfig, kernels: Kernels) -> None:
        super().__init__()
        self.pair_embedding = Linear(PAIR_FEATURES, config.pair.channels)
        self.template_pair_stack = nn.ModuleList(
            TemplatePairBlock(config.pair, kernels) for _ in range(config.blocks)
        )
        self.output_layer_norm = LayerNorm(config.pair.channels, kernels)

    def forward(self, template: Features, pair_mask: Mask, out: torch.Tensor) -> None:
        """Embed one template's features, without template axis, and write the result to out [N, N, C]."""
        self.embed_features(template, out)
        for block in self.template_pair_stack:
            block(out, pair_mask)
        out.copy_(self.output_layer_norm(out))

    def embed_features(self, template: Features, out: torch.Tensor, rows: slice = ALL) -> None:
        """Write rows of the stack's input to out [n, N, C], given one template's features."""
        _, length, channels = out.shape
        for chunk, residues in residue_slices(out, length * embedding_elements(channels), rows):
            features = _template_pair_features(template, residues)
            out[chunk] = self.pair_embedding(features.to(out.dtype))


def embedding_elements(channels: int) -> int:
    """Return the elements of intermediates per residue pair of the embedding of one template's features."""
    # float32 features, their parts and a copy, while elements are counted in the trunk's dtype
    return 5 * PAIR_FEATURES + channels


def _template_pair_features(template: Features, rows: slice = ALL) -> torch.Tensor:
    """Return rows of the pair features [n, N, 88], zero where either residue lacks a backbone atom."""
    aatype, atoms = template["template_aatype"].long(), template["template_all_atom_masks"]
    length = aatype.shape[0]
    beta = pseudo_beta(aatype, template["template_all_atom_positions"])  # [N, 3]
    beta_mask = pseudo_beta(aatype, atoms[..., None])  # [N, 1]
    backbone = atoms[:, residue_constants.N] * atoms[:, residue_constants.CA] * atoms[:, residue_constants.C]
    backbone_mask = (backbone[rows, None] * backbone[None])[..., None]  # [n, N, 1]
    types = F.one_hot(aatype, NUM_CODES).to(beta.dtype)  # [N, 22]
    count = len(backbone_mask)
    features = torch.cat(
        [
            distance_bins(beta, *TEMPLATE_BINS, rows=rows),
            (beta_mask[rows] * beta_mask.T)[..., None],
            types[None].expand(count, -1, -1),
            types[rows, None].expand(-1, length, -1),
            # backbone direction, which the published networks were trained without
            beta.new_zeros(count, length, 3),
            backbone_mask,
        ],
        dim=-1,
    )
    return features.mul_(backbone_mask)


class TemplatePointwiseAttention(nn.Module):
    """Attention of each residue pair over the templates (Algorithm 17)."""

    def __init__(self, config: TemplateConfig, channels: int) -> None:
        super().__init__()
        heads, width, inputs = config.attention_heads, config.attention_channels, config.pair.channels
        self.query = parameter(channels, heads, width)
        self.key = parameter(inputs, heads, width)
        self.value = parameter(inputs, heads, width)
        self.output = parameter(heads, width, channels)
        self.output_bias = parameter(channels)

    def forward(self, pair: torch.Tensor, templates: torch.Tensor) -> torch.Tensor:
        """Compute the update of pair, or of its rows, [n, N, Z] from embedded templates [T, n, N, C]."""
        _, length, channels = pair.shape
        heads, width = self.query.shape[1:]
        result = torch.empty_like(pair)
        per_row = length * attention_elements(templates.shape[0], templates.shape[-1], heads * width)
        for rows in row_slices(pair, per_row):
            query = pair[rows].reshape(-1, channels) @ self.query.flatten(1)  # [P, H*D]
            query = query.unflatten(-1, (heads, 1, width)) * width**-0.5  # [P, H, 1, D]
            # contiguous, because matrix products do not support strides of 2³¹ and more
            inputs = templates[:, rows].flatten(1, 2).transpose(0, 1).contiguous()  # [P, T, C]
            key = (inputs @ self.key.flatten(1)).unflatten(-1, (heads, width)).transpose(1, 2)  # [P, H, T, D]
            value = (inputs @ self.value.flatten(1)).unflatten(-1, (heads, width)).transpose(1, 2)
            weights = torch.softmax((query * key).sum(dim=-1), dim=-1)  # [P, H, T]
            attended = (weights[..., None] * value).sum(dim=-2).flatten(1)  # [P, H*D]
            update = torch.addmm(self.output_bias, attended, self.output.flatten(0, 1))  # [P, Z]
            result[rows] = update.view(-1, length, channels)
        return result


def attention_elements(templates: int, channels: int, attention_channels: int) -> int:
    """Return the elements of intermediates per residue pair of the attention over templates."""
    # queries and their update; inputs, keys, values and a product of each template
    return 2 * attention_channels + templates * (channels + 3 * attention_channels)


class TemplateEmbedding(nn.Module):
    """The update of the pair representation from all templates (Algorithm 2, lines 9 to 13)."""

    def __init__(self, config: TemplateConfig, channels: int, kernels: Kernels) -> None:
        super().__init__()
        self.single_template_embedding = SingleTemplateEmbedding(config, kernels)
        self.attention = TemplatePointwiseAttention(config, channels)

    def forward(self, pair: torch.Tensor, templates: Features, pair_mask: Mask) -> torch.Tensor:
        """Compute the update [N, N, Z] of the pair representation.

        Template features have a leading template axis; at least one template is not masked. `pair_mask` is
        [N, N].
        """
        embed = self.single_template_embedding
        return self.combine(pair, templates, lambda template, out: embed(template, pair_mask, out))

    def combine(
        self, pair: torch.Tensor, templates: Features, embed: Callable[[Features, torch.Tensor], None]
    ) -> torch.Tensor:
        """Compute the update of rows of pair [n, N, Z], given how to embed one template.

        `embed` gets the features of one template, without template axis, and writes rows [n, N, C].
        """
        # masked templates get no attention weight, so they are not embedded
        unmasked = torch.nonzero(templates["template_mask"]).flatten().tolist()
        channels = self.single_template_embedding.pair_embedding.bias.shape[0]
        embedded = pair.new_empty(len(unmasked), *pair.shape[:2], channels)
        for index, out in zip(unmasked, embedded, strict=True):
            embed(one_template(templates, index), out)
        result: torch.Tensor = self.attention(pair, embedded)
        return result


class TemplateTorsionEmbedding(nn.Module):
    """The embedding of each template's torsion angles as an MSA row (Algorithm 2, lines 7 and 8)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        channels = config.evoformer.msa.channels
        self.template_single_embedding = Linear(TORSION_FEATURES, channels)
        self.template_projection = Linear(channels, channels)

    def forward(self, templates: Features) -> tuple[torch.Tensor, torch.Tensor]:
        """Return MSA rows [T, N, C] and their mask [T, N], given features with a leading template axis."""
        aatype = templates["template_aatype"].long()
        torsions = torsion_angles(
            aatype, templates["template_all_atom_positions"], templates["template_all_atom_masks"]
        )
        features = torch.cat(
            [
                F.one_hot(aatype, NUM_CODES).to(torsions.mask.dtype),
                torsions.sin_cos.flatten(-2),
                torsions.alternative_sin_cos.flatten(-2),
                torsions.mask,
            ],
            dim=-1,
        )  # [T, N, 57]
        rows = self.template_single_embedding(features.to(self.template_projection.bias.dtype))
        return self.template_projection(torch.relu(rows)), torsions.mask[..., PSI]


class TorsionAngles(NamedTuple):
    """Torsion angles pre-omega, phi, psi and chi1 to chi4 of each template residue.

    Args:
        sin_cos: [T, N, 7, 2], sine and cosine; rounding noise where the mask is 0.
        alternative_sin_cos: [T, N, 7, 2], the same with π-periodic chi angles rotated by π.
        mask: [T, N, 7], 1 where all four atoms are present.
    """

    sin_cos: torch.Tensor
    alternative_sin_cos: torch.Tensor
    mask: torch.Tensor


@cache
def _backbone_torsion_atoms(device: torch.device) -> torch.Tensor:
    """Return the atom indices [3, 4] of pre-omega, phi and psi; the previous residue's atoms start at 37."""
    n, ca, c, o = residue_constants.N, residue_constants.CA, residue_constants.C, residue_constants.OXYGEN
    return torch.tensor([[37 + ca, 37 + c, n, ca], [37 + c, n, ca, c], [n, ca, c, o]], device=device)


def torsion_angles(aatype: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> TorsionAngles:
    """Compute the torsion angles of each residue from its atoms.

    Residue codes are [T, N], where gaps are treated as unknown residues, positions [T, N, 37, 3], Å, and the
    mask [T, N, 37] is 1 for atoms that are present.
    """
    aatype = aatype.clip(max=residue_constants.UNKNOWN)
    # the atoms of each residue, then those of the previous residue
    two_residues = torch.cat(
        [positions, F.pad(positions, (0, 0, 0, 0, 1, 0))[:, :-1]], dim=2
    )  # [T, N, 74, 3]
    two_residues_mask = torch.cat([mask, F.pad(mask, (0, 0, 1, 0))[:, :-1]], dim=2)  # [T, N, 74]
    backbone = _backbone_torsion_atoms(aatype.device)
    chi = residue_rows(residue_constants.chi_atoms, aatype)  # [T, N, 4, 4]
    atoms = torch.cat([backbone.expand(*chi.shape[:2], -1, -1), chi], dim=2).flatten(2)  # [T, N, 28]
    points = torch.gather(two_residues, 2, atoms[..., None].expand(-1, -1, -1, 3)).unflatten(2, (7, 4))
    torsion_mask = torch.gather(two_residues_mask, 2, atoms).unflatten(2, (7, 4)).prod(dim=-1)  # [T, N, 7]
    torsion_mask = torsion_mask * F.pad(residue_rows(residue_constants.chi_mask, aatype), (3, 0), value=1.0)

    first, second, third, fourth = points.unbind(dim=-2)  # each [T, N, 7, 3]
    _, cosine, sine = frame_from_points(second, third, first).invert_apply(fourth).unbind(dim=-1)
    sin_cos = torch.stack([sine, cosine], dim=-1)  # [T, N, 7, 2]
    sin_cos = sin_cos / torch.sqrt(sin_cos.square().sum(dim=-1, keepdim=True) + 1e-8)
    # psi is defined by the next nitrogen but computed from the oxygen, which is opposite to it
    sin_cos[..., PSI, :].neg_()
    periodic = residue_rows(residue_constants.chi_pi_periodic, aatype)
    signs = F.pad(1.0 - 2.0 * periodic, (3, 0), value=1.0)  # [T, N, 7]
    return TorsionAngles(sin_cos, sin_cos * signs[..., None], torsion_mask)
