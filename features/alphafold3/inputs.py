"""All inputs of the all-atom network for one job."""

from dataclasses import dataclass, field

import numpy as np

from features.alphafold3.alignments import AlignmentLimits, alignment_features, draw_rows
from features.alphafold3.templates import TokenTemplates, template_features
from features.alphafold3.tokens import reference_features, token_features
from features.assembly.atoms import Atoms, build_atoms
from features.assembly.job import MoleculeJob
from features.assembly.tokens import Tokens, build_tokens
from features.chemistry.conformers import Conformer, ConformerGenerator
from features.chemistry.molecules import InvalidMolecule
from msa.base.errors import InputError
from msa.base.network_inputs import ALL_ATOM


@dataclass(frozen=True)
class InputSettings:
    """InputSettings of the inputs.

    Attributes:
        seed: seed of conformers, their rotations and the choice of alignment rows.
        chiral_residues: see `features.chemistry.conformers.ConformerGenerator`.
        max_tokens: largest number of tokens; None without limit.
    """

    seed: int = 42
    templates: int = 4
    chiral_residues: bool = True
    max_tokens: int | None = None
    limits: AlignmentLimits = field(default_factory=AlignmentLimits)


@dataclass(frozen=True, eq=False)
class Sample:
    """A job ready for the network.

    Attributes:
        atoms: its atoms, which name the rows of the predicted coordinates.
        features: the network's inputs, as ALL_ATOM lists them.
    """

    atoms: Atoms
    tokens: Tokens
    conformers: tuple[Conformer, ...]
    features: dict[str, np.ndarray]


def check_tokens(job: MoleculeJob, tokens: int, settings: InputSettings) -> None:
    """Raise InputError if a job has more tokens than the settings allow."""
    if settings.max_tokens is not None and tokens > settings.max_tokens:
        reason = f"{tokens:,} tokens; at most {settings.max_tokens:,} are allowed"
        raise InputError(reason, job.path, job.line)


def build_sample(
    job: MoleculeJob,
    settings: InputSettings,
    templates: TokenTemplates | None = None,
    atoms: Atoms | None = None,
) -> Sample:
    """Return the inputs of the network for a job.

    Args:
        job: the job.
        settings: settings.
        templates: rows of its templates; None without templates.
        atoms: its atoms, if they are known.

    Raises:
        InputError: the job does not describe molecules (see `features.assembly.atoms.build_atoms`), an
            alignment does not fit its chain, or there are too many tokens.
    """
    atoms = build_atoms(job) if atoms is None else atoms
    tokens = build_tokens(atoms)
    check_tokens(job, len(tokens), settings)
    conformers = _conformers(job, atoms, ConformerGenerator(settings.seed, settings.chiral_residues))
    rotations = np.random.default_rng(settings.seed)
    features = (
        token_features(atoms, tokens)
        | reference_features(atoms, conformers, rotations)
        | _alignment_features(job, atoms, tokens, settings)
        | template_features(tokens, templates, settings.templates)
    )
    return Sample(atoms, tokens, conformers, {name: features[name] for name in ALL_ATOM})


def _alignment_features(
    job: MoleculeJob, atoms: Atoms, tokens: Tokens, settings: InputSettings
) -> dict[str, np.ndarray]:
    """Return the features of a job's alignments; errors name the job's file if they name no other."""
    try:
        rows = draw_rows(atoms, settings.limits, np.random.RandomState(settings.seed))
        return alignment_features(atoms, tokens, rows, settings.limits)
    except InputError as error:
        if error.path is not None:
            raise
        raise InputError(error.reason, job.path, job.line) from None


def _conformers(job: MoleculeJob, atoms: Atoms, generator: ConformerGenerator) -> tuple[Conformer, ...]:
    """Return the conformers of all reference molecules."""
    conformers = generator.generate_all([(x.component, x.in_polymer) for x in atoms.molecules])
    for index, (molecule, conformer) in enumerate(zip(atoms.molecules, conformers, strict=True)):
        smiles = molecule.component.smiles
        if smiles is not None and conformer.source == "none":
            chain = atoms.chains[int(atoms.chain[np.argmax(atoms.molecule == index)])]
            reason = f"RDKit finds no conformer for the SMILES string {smiles!r:.200}"
            raise InvalidMolecule(reason, *job.location_of(chain.entity))
    return tuple(conformers)
