"""Architectures of all-atom networks as frozen dataclasses: OpenFold3's two published ones, and DeepMind's.

Sizes follow Abramson et al., Nature 630, 493 (2024), supplement sections 2 to 5, and OpenFold3's parameter
files.
"""

from dataclasses import dataclass, field, replace

from model.alphafold2.modules.config import PairConfig, TemplateConfig

# amino acids and UNK, A G C U N, DA DG DC DT DN, gap
RESIDUE_TYPES = 32
ELEMENTS = 119
NAME_CHARACTERS = 256


@dataclass(frozen=True)
class AtomConfig:
    """Sizes of an atom transformer and of the atom embedding around it.

    Args:
        channels: channels of the atom representation.
        pair_channels: channels of the representation of atom pairs in a window.
        heads: attention heads.
        blocks: number of blocks.
        transition_factor: width of the transition's hidden layer relative to `channels`.
        queries: atoms of a window that attend.
        keys: atoms of a window that they attend to.
        shifted_conformers: whether the conformer of key k is that of token k // 24, as in DeepMind's code.
    """

    channels: int = 128
    pair_channels: int = 16
    heads: int = 4
    blocks: int = 3
    transition_factor: int = 2
    queries: int = 32
    keys: int = 128
    shifted_conformers: bool = False


@dataclass(frozen=True)
class MsaModuleConfig:
    """Sizes of the MSA module.

    Args:
        channels: channels of the MSA representation.
        blocks: number of blocks; the last one does not update the MSA representation.
        heads: heads of the pair-weighted averaging.
        head_channels: channels per head.
        outer_channels: channels of each factor of the outer product mean.
        transition_factor: width of the transition's hidden layer relative to `channels`.
        rows: rows of the alignment that a cycle sees at most.
    """

    channels: int = 64
    blocks: int = 4
    heads: int = 8
    head_channels: int = 8
    outer_channels: int = 32
    transition_factor: int = 4
    rows: int = 1024


@dataclass(frozen=True)
class DiffusionConfig:
    """Sizes of the diffusion module, and the constants of its noise levels and sampler.

    Args:
        channels: channels of the token representation.
        heads: heads of the token transformer.
        blocks: blocks of the token transformer.
        transition_factor: width of the transition's hidden layer relative to `channels`.
        noise_channels: channels of the Fourier embedding of the noise level.
        atoms: sizes of the atom encoder and decoder.
        shared_pair_norm: whether all blocks of the token transformer share the LayerNorm of the pair
            representation, instead of one for each block.
        sigma_data: standard deviation of atom positions, Å.
        largest_noise: first noise level of a trajectory, in units of `sigma_data`.
        smallest_noise: last noise level of a trajectory, in units of `sigma_data`.
        noise_exponent: exponent of the interpolation between the two.
        added_noise: share by which the noise level is raised before a step (γ0).
        added_noise_above: lowest noise level, Å, after a step before which noise is added.
        noise_scale: factor of the added noise (λ).
        step_scale: factor of each step (η).
    """

    channels: int = 768
    heads: int = 16
    blocks: int = 24
    transition_factor: int = 2
    noise_channels: int = 256
    atoms: AtomConfig = AtomConfig()
    shared_pair_norm: bool = True
    sigma_data: float = 16.0
    largest_noise: float = 160.0
    smallest_noise: float = 4e-4
    noise_exponent: float = 7.0
    added_noise: float = 0.8
    added_noise_above: float = 1.0
    noise_scale: float = 1.003
    step_scale: float = 1.5


@dataclass(frozen=True)
class ConfidenceConfig:
    """Sizes of the confidence heads.

    Args:
        blocks: blocks of their pairformer.
        error_bins: bins of the aligned and distance errors and of the distogram.
        plddt_bins: bins of pLDDT.
        atoms_per_token: largest number of atoms of a token.
        distance_bins: bins of the distances that the heads see.
        first_distance: lower edge of the first of them, Å.
        last_distance: lower edge of the last of them, Å.
        counts_op3: whether the first atom of a nucleotide counts as the second, after one that is absent.
    """

    blocks: int = 4
    error_bins: int = 64
    plddt_bins: int = 50
    atoms_per_token: int = 23
    distance_bins: int = 39
    first_distance: float = 3.25
    last_distance: float = 50.75
    counts_op3: bool = False


@dataclass(frozen=True)
class AlphaFold3Config:
    """The architecture of an all-atom network.

    Args:
        name: name of the parameters.
        single_channels: channels of the single representation.
        single_heads: heads of the single attention of a pairformer block.
        single_transition_factor: width of the single transition's hidden layer relative to `single_channels`.
        pair: sizes of the pair half of MSA and pairformer blocks.
        pairformer_blocks: number of pairformer blocks.
        template_pair: sizes of the blocks of the template embedding.
        template_blocks: number of its blocks.
        template_distance_bins: bins of template distances.
        input_atoms: sizes of the input embedding's atom encoder.
        msa: sizes of the MSA module.
        diffusion: sizes of the diffusion module.
        confidence: sizes of the confidence heads.
        transposed_ending_bias: whether triangle attention around ending nodes takes its bias from the
            transposed pair representation, as AlphaFold2's does.
        unknown_dna: whether unknown DNA and RNA are two residue types of the input representation. They are
            one for DeepMind's parameters, whose inputs differ; see `AlphaFold3Inputs.for_network`.
        largest_offset: residue and token offsets are clipped to this.
        largest_chain_offset: offsets between copies of an entity are clipped to this.
    """

    name: str
    single_channels: int = 384
    single_heads: int = 16
    single_transition_factor: int = 4
    pair: PairConfig = field(default_factory=PairConfig)
    pairformer_blocks: int = 48
    template_pair: PairConfig = field(default_factory=lambda: TemplateConfig().pair)
    template_blocks: int = 2
    template_distance_bins: int = 39
    input_atoms: AtomConfig = AtomConfig()
    msa: MsaModuleConfig = MsaModuleConfig()
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)
    confidence: ConfidenceConfig = ConfidenceConfig()
    transposed_ending_bias: bool = False
    unknown_dna: bool = True
    largest_offset: int = 32
    largest_chain_offset: int = 2

    @property
    def variant(self) -> str:
        """The network's origin: "openbind", "p2" or "deepmind"."""
        if not self.unknown_dna:
            return "deepmind"
        return "openbind" if self.diffusion.shared_pair_norm else "p2"

    @property
    def input_channels(self) -> int:
        """Channels of the input representation: atoms, residue type, profile, mean number of deletions."""
        return self.single_channels + 2 * (RESIDUE_TYPES - (not self.unknown_dna)) + 1

    @property
    def relative_channels(self) -> int:
        """Channels of the relative position features."""
        return 2 * (2 * self.largest_offset + 2) + 2 * self.largest_chain_offset + 3


OPENBIND = AlphaFold3Config("of3-ob-2025-06-30-174k")
P2 = replace(
    OPENBIND,
    name="of3-p2-155k",
    diffusion=replace(OPENBIND.diffusion, shared_pair_norm=False),
    transposed_ending_bias=True,
)
_ATOMS = AtomConfig(shifted_conformers=True)
DEEPMIND = replace(
    OPENBIND,
    name="alphafold3",
    input_atoms=_ATOMS,
    diffusion=replace(OPENBIND.diffusion, atoms=_ATOMS),
    confidence=ConfidenceConfig(atoms_per_token=24, counts_op3=True),
    unknown_dna=False,
)
