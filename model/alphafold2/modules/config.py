"""Network architectures as frozen dataclasses, and the published networks by name.

Sizes follow Jumper et al., Nature 596, 583 (2021), supplement section 1; for AlphaFold-Multimer Evans et al.,
bioRxiv 2021.10.04.463034; and the published parameters.
"""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class PairConfig:
    """Sizes of the pair half of a stack.

    Args:
        channels: channels of the pair representation.
        multiplication_channels: channels of the product in triangle multiplication.
        attention_heads: heads of triangle attention.
        attention_channels: channels per head of triangle attention.
        transition_factor: width of the transition's hidden layer relative to `channels`.
    """

    channels: int = 128
    multiplication_channels: int = 128
    attention_heads: int = 4
    attention_channels: int = 32
    transition_factor: int = 4


@dataclass(frozen=True)
class MsaConfig:
    """Sizes of the MSA half of a stack.

    Args:
        channels: channels of the MSA representation.
        attention_heads: heads of row and column attention.
        attention_channels: channels per head of row and column attention.
        outer_channels: channels of each factor of the outer product mean.
        transition_factor: width of the transition's hidden layer relative to `channels`.
        global_column_attention: whether column attention is global: one averaged query per column, and one
            key and value head.
    """

    channels: int = 256
    attention_heads: int = 8
    attention_channels: int = 32
    outer_channels: int = 32
    transition_factor: int = 4
    global_column_attention: bool = False


@dataclass(frozen=True)
class StackConfig:
    """Sizes of the Evoformer stack or the extra MSA stack.

    Args:
        blocks: number of blocks.
        msa: sizes of the MSA half of each block.
        pair: sizes of the pair half of each block.
        outer_product_first: whether a block starts with the outer product mean, as in AlphaFold-Multimer,
            instead of computing it from the updated MSA representation.
    """

    blocks: int
    msa: MsaConfig = field(default_factory=MsaConfig)
    pair: PairConfig = field(default_factory=PairConfig)
    outer_product_first: bool = False


@dataclass(frozen=True)
class TemplateConfig:
    """Sizes of the template embedding.

    Args:
        blocks: blocks of the template pair stack.
        pair: sizes of one block of the template pair stack.
        attention_heads: heads of the pointwise attention over templates, which AlphaFold-Multimer lacks.
        attention_channels: channels per head of the pointwise attention.
        multiplication_first: whether a block starts with the triangle multiplications, as in
            AlphaFold-Multimer, instead of the attentions.
    """

    blocks: int = 2
    pair: PairConfig = PairConfig(
        channels=64, multiplication_channels=64, attention_channels=16, transition_factor=2
    )
    attention_heads: int = 4
    attention_channels: int = 16
    multiplication_first: bool = False


@dataclass(frozen=True)
class StructureConfig:
    """Sizes of the structure module.

    Args:
        channels: channels of the single representation.
        iterations: number of iterations, which share their weights.
        heads: heads of invariant point attention.
        scalar_channels: channels of scalar queries, keys and values per head.
        query_points: query and key points per head.
        value_points: value points per head.
        sidechain_channels: hidden channels of the torsion angle network.
        position_scale: Å per unit of the backbone translations.
        separate_projections: whether queries, keys and values have layers of their own, as in
            AlphaFold-Multimer.
    """

    channels: int = 384
    iterations: int = 8
    heads: int = 12
    scalar_channels: int = 16
    query_points: int = 4
    value_points: int = 8
    sidechain_channels: int = 128
    position_scale: float = 10.0
    separate_projections: bool = False


# DeepMind's settings of recycling for multimer networks; see `model.alphafold2.recycling.RecyclingSettings`
MULTIMER_RECYCLES = 20
MULTIMER_TOLERANCE = 0.5


@dataclass(frozen=True)
class MultimerConfig:
    """Sizes of the samples that an AlphaFold-Multimer network draws from the alignment in each pass.

    Args:
        msa_rows: maximum rows of the MSA representation, without those of templates.
        extra_rows: maximum rows of the extra MSA.
        masked_fraction: fraction of the sampled rows' positions that are masked.
        joined_projections: whether parameter files store the left and right layers of a triangle
            multiplication in one array, as those of version 3 do.
    """

    msa_rows: int = 508
    extra_rows: int = 2048
    masked_fraction: float = 0.15
    joined_projections: bool = True


@dataclass(frozen=True)
class ModelConfig:
    """The architecture of one network.

    Args:
        name: for example "model_1_ptm".
        evoformer: sizes of the Evoformer stack.
        extra_msa: sizes of the extra MSA stack.
        template: sizes of the template embedding, or None for networks without templates.
        structure: sizes of the structure module.
        multimer: sizes of the samples of an AlphaFold-Multimer network, or None for monomer networks.
        predicted_aligned_error: whether the network has a PAE head, and therefore predicts pTM.
        trained: False if the parameters are random; outputs then carry a warning.
    """

    name: str
    evoformer: StackConfig = StackConfig(blocks=48)
    extra_msa: StackConfig = StackConfig(
        blocks=4, msa=MsaConfig(channels=64, attention_channels=8, global_column_attention=True)
    )
    template: TemplateConfig | None = None
    structure: StructureConfig = StructureConfig()
    multimer: MultimerConfig | None = None
    predicted_aligned_error: bool = True
    trained: bool = True

    def with_blocks(self, evoformer: int, extra_msa: int) -> "ModelConfig":
        """Return a copy of this configuration with different numbers of blocks in the two stacks."""
        return replace(
            self,
            evoformer=replace(self.evoformer, blocks=evoformer),
            extra_msa=replace(self.extra_msa, blocks=extra_msa),
        )


MODEL_NAMES = tuple(f"model_{number}{suffix}" for suffix in ("_ptm", "") for number in range(1, 6))
# versions 3, 2 and 1
MULTIMER_NAMES = tuple(
    f"model_{number}_multimer{suffix}" for suffix in ("_v3", "_v2", "") for number in range(1, 6)
)
# rows of the extra MSA in the multimer networks 4 and 5 of version 3, and in all of the older versions
_FEWER_EXTRA_ROWS = 1152
_OLD_MULTIMER = MultimerConfig(msa_rows=252, extra_rows=_FEWER_EXTRA_ROWS, joined_projections=False)


def model_config(name: str) -> ModelConfig:
    """Return the architecture of the network with a name.

    Args:
        name: model_1 to model_5, model_1_ptm to model_5_ptm, model_1_multimer_v3 to model_5_multimer_v3, the
            same with _multimer_v2 or _multimer (version 1).

    Raises:
        ValueError: no network has this name.
    """
    if name in MULTIMER_NAMES:
        return _multimer_config(name)
    if name not in MODEL_NAMES:
        names = ", ".join((*MODEL_NAMES, *MULTIMER_NAMES))
        raise ValueError(f"unknown network {name!r}; available: {names}")
    with_templates = name.split("_")[1] in "12"
    return ModelConfig(
        name,
        template=TemplateConfig() if with_templates else None,
        predicted_aligned_error=name.endswith("_ptm"),
    )


def _multimer_config(name: str) -> ModelConfig:
    monomer = ModelConfig(name)
    multimer = MultimerConfig()
    if not name.endswith("_v3"):
        multimer = _OLD_MULTIMER
    elif name.split("_")[1] in "45":
        multimer = MultimerConfig(extra_rows=_FEWER_EXTRA_ROWS)
    return replace(
        monomer,
        evoformer=replace(monomer.evoformer, outer_product_first=True),
        extra_msa=replace(monomer.extra_msa, outer_product_first=True),
        template=TemplateConfig(multiplication_first=True),
        structure=StructureConfig(position_scale=20.0, separate_projections=True),
        multimer=multimer,
    )
