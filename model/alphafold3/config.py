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
    """Sizes of an atom transformer and of the atom embedding around it."""

    channels: int = 128  # channels of the atom representation
    pair_channels: int = 16  # channels of the representation of atom pairs in a window
    heads: int = 4  # attention heads
    blocks: int = 3  # number of blocks
    transition_factor: int = 2  # width of the transition's hidden layer relative to `channels`
    queries: int = 32  # atoms of a window that attend
    keys: int = 128  # atoms of a window that they attend to
    # whether the conformer of key k is that of token k // 24, as in DeepMind's code
    shifted_conformers: bool = False


@dataclass(frozen=True)
class MsaModuleConfig:
    """Sizes of the MSA module."""

    channels: int = 64  # channels of the MSA representation
    blocks: int = 4  # number of blocks; the last one does not update the MSA representation
    heads: int = 8  # heads of the pair-weighted averaging
    head_channels: int = 8  # channels per head
    outer_channels: int = 32  # channels of each factor of the outer product mean
    transition_factor: int = 4  # width of the transition's hidden layer relative to `channels`
    rows: int = 1024  # rows of the alignment that a cycle sees at most


@dataclass(frozen=True)
class DiffusionConfig:
    """Sizes of the diffusion module, and the constants of its noise levels and sampler."""

    channels: int = 768  # channels of the token representation
    heads: int = 16  # heads of the token transformer
    blocks: int = 24  # blocks of the token transformer
    transition_factor: int = 2  # width of the transition's hidden layer relative to `channels`
    noise_channels: int = 256  # channels of the Fourier embedding of the noise level
    atoms: AtomConfig = AtomConfig()  # sizes of the atom encoder and decoder
    # whether all blocks of the token transformer share the LayerNorm of the pair representation, instead of
    # one for each block
    shared_pair_norm: bool = True
    sigma_data: float = 16.0  # standard deviation of atom positions, Å
    largest_noise: float = 160.0  # first noise level of a trajectory, in units of `sigma_data`
    smallest_noise: float = 4e-4  # last noise level of a trajectory, in units of `sigma_data`
    noise_exponent: float = 7.0  # exponent of the interpolation between the two
    added_noise: float = 0.8  # share by which the noise level is raised before a step (γ0)
    added_noise_above: float = 1.0  # lowest noise level, Å, after a step before which noise is added
    noise_scale: float = 1.003  # factor of the added noise (λ)
    step_scale: float = 1.5  # factor of each step (η)


@dataclass(frozen=True)
class ConfidenceConfig:
    """Sizes of the confidence heads."""

    blocks: int = 4  # blocks of their pairformer
    error_bins: int = 64  # bins of the aligned and distance errors and of the distogram
    plddt_bins: int = 50  # bins of pLDDT
    atoms_per_token: int = 23  # largest number of atoms of a token
    distance_bins: int = 39  # bins of the distances that the heads see
    first_distance: float = 3.25  # lower edge of the first of them, Å
    last_distance: float = 50.75  # lower edge of the last of them, Å
    # whether the first atom of a nucleotide counts as the second, after one that is absent
    counts_op3: bool = False


@dataclass(frozen=True)
class AlphaFold3Config:
    """The architecture of an all-atom network."""

    name: str  # name of the parameters
    single_channels: int = 384  # channels of the single representation
    single_heads: int = 16  # heads of the single attention of a pairformer block
    # width of the single transition's hidden layer relative to `single_channels`
    single_transition_factor: int = 4
    # sizes of the pair half of MSA and pairformer blocks
    pair: PairConfig = field(default_factory=PairConfig)
    pairformer_blocks: int = 48  # number of pairformer blocks
    # sizes of the blocks of the template embedding
    template_pair: PairConfig = field(default_factory=lambda: TemplateConfig().pair)
    template_blocks: int = 2  # number of its blocks
    template_distance_bins: int = 39  # bins of template distances
    input_atoms: AtomConfig = AtomConfig()  # sizes of the input embedding's atom encoder
    msa: MsaModuleConfig = MsaModuleConfig()  # sizes of the MSA module
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)  # sizes of the diffusion module
    confidence: ConfidenceConfig = ConfidenceConfig()  # sizes of the confidence heads
    # whether triangle attention around ending nodes takes its bias from the transposed pair representation,
    # as AlphaFold2's does
    transposed_ending_bias: bool = False
    # whether unknown DNA and RNA are two residue types of the input representation. They are one for
    # DeepMind's parameters, whose inputs differ; see `AlphaFold3Inputs.for_network`
    unknown_dna: bool = True
    largest_offset: int = 32  # residue and token offsets are clipped to this
    largest_chain_offset: int = 2  # offsets between copies of an entity are clipped to this

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
