"""Networks of few blocks."""

from dataclasses import replace

from model.alphafold3.config import AlphaFold3Config


def shallow(config: AlphaFold3Config) -> AlphaFold3Config:
    """Return a network with one block of each kind, and two of the MSA module."""
    atoms = replace(config.input_atoms, blocks=1)
    return replace(
        config,
        pairformer_blocks=1,
        template_blocks=1,
        input_atoms=atoms,
        msa=replace(config.msa, blocks=2),
        diffusion=replace(config.diffusion, blocks=1, atoms=atoms),
        confidence=replace(config.confidence, blocks=1),
    )
