"""The shape of each network: frozen dataclasses, and the ten published monomer networks by name.

Numbers are those of Jumper et al., Nature 596, 583 (2021), supplement section 1, and of the published
parameters.
"""

from dataclasses import dataclass, field, replace

DEMO = "demo"


@dataclass(frozen=True)
class PairConfig:
    """The pair half of a stack.

    Args:
        channels: of the pair representation.
        multiplication_channels: of a triangle multiplication's product.
        attention_heads, attention_channels: of triangle attention; channels are per head.
        transition_factor: how much wider the transition's hidden layer is.
    """

    channels: int = 128
    multiplication_channels: int = 128
    attention_heads: int = 4
    attention_channels: int = 32
    transition_factor: int = 4


@dataclass(frozen=True)
class MsaConfig:
    """The MSA half of a stack.

    Args:
        channels: of the MSA representation.
        attention_heads, attention_channels: of row and column attention; channels are per head.
        outer_channels: of each factor of the outer product mean.
        transition_factor: how much wider the transition's hidden layer is.
        global_column_attention: one key and value head and an averaged query in column attention.
    """

    channels: int = 256
    attention_heads: int = 8
    attention_channels: int = 32
    outer_channels: int = 32
    transition_factor: int = 4
    global_column_attention: bool = False


@dataclass(frozen=True)
class StackConfig:
    """The Evoformer stack or the extra MSA stack."""

    blocks: int
    msa: MsaConfig = field(default_factory=MsaConfig)
    pair: PairConfig = field(default_factory=PairConfig)


@dataclass(frozen=True)
class TemplateConfig:
    """The template embedding.

    Args:
        blocks: of the template pair stack.
        pair: of the template pair stack.
        attention_heads, attention_channels: of the pointwise attention over templates.
    """

    blocks: int = 2
    pair: PairConfig = PairConfig(
        channels=64, multiplication_channels=64, attention_channels=16, transition_factor=2
    )
    attention_heads: int = 4
    attention_channels: int = 16


@dataclass(frozen=True)
class StructureConfig:
    """The structure module.

    Args:
        channels: of the single representation.
        iterations: with shared weights.
        heads, scalar_channels, query_points, value_points: of invariant point attention; per head.
        sidechain_channels: of the torsion angle network.
        position_scale: Å per unit of the backbone translations.
    """

    channels: int = 384
    iterations: int = 8
    heads: int = 12
    scalar_channels: int = 16
    query_points: int = 4
    value_points: int = 8
    sidechain_channels: int = 128
    position_scale: float = 10.0


@dataclass(frozen=True)
class ModelConfig:
    """One network.

    Args:
        name: such as "model_1_ptm".
        evoformer: the main stack.
        extra_msa: the stack of the sequences left out of the clusters.
        template: the template embedding, or None for networks without.
        structure: the structure module.
        predicted_aligned_error: whether there is a PAE head, and so a pTM.
        trained: False for networks whose parameters are random, so that nobody takes their structures for
            real.
    """

    name: str
    evoformer: StackConfig = StackConfig(blocks=48)
    extra_msa: StackConfig = StackConfig(
        blocks=4, msa=MsaConfig(channels=64, attention_channels=8, global_column_attention=True)
    )
    template: TemplateConfig | None = None
    structure: StructureConfig = StructureConfig()
    predicted_aligned_error: bool = True
    trained: bool = True

    def with_blocks(self, evoformer: int, extra_msa: int) -> "ModelConfig":
        """The same network with shallower or deeper stacks."""
        return replace(
            self,
            evoformer=replace(self.evoformer, blocks=evoformer),
            extra_msa=replace(self.extra_msa, blocks=extra_msa),
        )


MODEL_NAMES = tuple(f"model_{number}{suffix}" for suffix in ("_ptm", "") for number in range(1, 6))


def model_config(name: str) -> ModelConfig:
    """The network of this name.

    Args:
        name: model_1 to model_5, model_1_ptm to model_5_ptm, or "demo": a small untrained network with the
            features of model_3_ptm, two Evoformer blocks and one extra MSA block.

    Raises:
        ValueError: there is no such network.
    """
    if name == DEMO:
        return ModelConfig(name, trained=False).with_blocks(evoformer=2, extra_msa=1)
    if name not in MODEL_NAMES:
        raise ValueError(f"no network is called {name!r}; there are {', '.join((*MODEL_NAMES, DEMO))}")
    with_templates = name.split("_")[1] in "12"
    return ModelConfig(
        name,
        template=TemplateConfig() if with_templates else None,
        predicted_aligned_error=name.endswith("_ptm"),
    )
