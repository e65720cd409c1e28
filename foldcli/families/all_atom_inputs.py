"""The inputs of jobs of any molecules: alignments and templates of their proteins, and cached samples."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path

import numpy as np

from features.alphafold2.deterministic import make_features
from features.alphafold3.found_alignments import AlignedJob, add_alignments
from features.alphafold3.inputs import InputSettings, Sample, build_sample
from features.alphafold3.samples import load_sample, read_sample, sample_key, sample_path, write_sample
from features.alphafold3.templates import features_of_hits, map_templates_to_tokens
from features.assembly.atoms import Atoms, build_atoms
from features.assembly.job import MoleculeJob, Polymer
from features.assembly.notes import molecule_notes
from features.assembly.tokens import build_tokens
from features.cache.entry import CorruptEntryError
from features.chemistry.residue_classes import MoleculeKind
from features.complexes.a3m import write_job_a3m
from foldcli.families.protocols import ChainAlignments, FeatureServices, Templates
from foldcli.inputs.complexes import chain_query
from foldcli.inputs.molecules.prepared import Preparation, PreparedJob
from foldcli.logs import logger
from foldcli.outputs.all_atom.restraints import build_restraints
from foldcli.outputs.all_atom.structure import build_structure
from foldcli.outputs.target import TargetRun
from foldcli.outputs.templates import record_templates, used_templates
from model.all_atom.checks import Restraints
from model.output.modelcif import UsedTemplate
from model.structure import Structure
from msa.alignments.files import parse_alignment
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord


@dataclass(frozen=True, eq=False)
class AllAtomInputs:
    """A job with what all its seeds have in common.

    Args:
        templates: templates of a search by sequence, best first.
        used: templates of the chains in words.
    """

    job: MoleculeJob
    templates: Mapping[str, Mapping[str, np.ndarray]]
    used: tuple[UsedTemplate, ...]
    cache: Path
    atoms: Atoms

    def load_or_build(self, seed: int, overwrite: bool = False) -> tuple[str, Sample]:
        """Return key and sample of a seed, from the cache or added to it.

        Raises:
            InputError: a molecule or a template is invalid.
        """
        job, atoms, settings = self.job, self.atoms, InputSettings(seed=seed)
        templates = map_templates_to_tokens(atoms, build_tokens(atoms), self.templates, settings.templates)
        key = sample_key(job, settings, templates)
        sample = None if overwrite else _load(self.cache, key, job.name)
        if sample is None:
            sample = build_sample(job, settings, templates, atoms)
            write_sample(self.cache, key, job, sample)
        return key, sample


@dataclass(frozen=True, eq=False)
class PreparedInputs:
    """A prepared job; see `foldcli.inputs.molecules.prepared`."""

    preparation: Preparation
    used: tuple[UsedTemplate, ...]

    def load(self, seed: int) -> Sample:
        """Return the sample of a seed.

        Raises:
            InputError: the cache does not have it, or it is damaged.
        """
        preparation = self.preparation
        if (key := preparation.sample_key(seed)) is None:
            seeds = ", ".join(map(str, preparation.seeds()))
            reason = f"the feature cache has its inputs for the seeds {seeds}, and not for {seed}"
            remedy = f"run `foldcli cache-features` again with --random-seed {seed}"
            raise InputError(f"{reason}: {remedy}", preparation.name)
        path = sample_path(preparation.cache, key)
        try:
            return read_sample(path, key)
        except CorruptEntryError as error:
            raise InputError(f"{error.reason}; run `foldcli cache-features` again", path) from error


@dataclass(frozen=True, eq=False)
class AllAtomSample:
    """The input of one job, with what the files of its models need.

    Args:
        features: the network's inputs; see `msa.base.network_inputs.ALL_ATOM`.
        chain_numbers: int [N], the network's number of each token's chain.
        restraints: the geometry that the molecules should have.
    """

    features: dict[str, np.ndarray] = field(repr=False)
    structure: Structure
    chain_numbers: np.ndarray = field(repr=False)
    restraints: Restraints = field(repr=False)
    templates: tuple[UsedTemplate, ...] = ()


def load_inputs(
    target: TargetRun, features: FeatureServices, chains: Sequence[FastaRecord], with_templates: bool
) -> AllAtomInputs:
    """Return a job with the alignments and templates of its proteins; see `Family.inputs`.

    Raises:
        InputError: an alignment or a template is invalid.
    """
    job: MoleculeJob = target.input
    # files of an interrupted run with other settings
    shutil.rmtree(target.files.search_folder, ignore_errors=True)
    with target.stage("features"):
        store = features.chain_store
        found = {} if store is None else {chain.sequence: store.read(chain_query(chain)) for chain in chains}
        aligned = add_alignments(job, found, *([] if store is None else [store.pairing]))
        if store is not None and found:
            _stage_search(target, store, job, chains, found)
        atoms = build_atoms(aligned.job)
    tokens = build_tokens(atoms)
    _add_facts(target, aligned, len(tokens), len(atoms))
    _warn(target, molecule_notes(atoms, tokens))
    templates: dict[str, dict[str, np.ndarray]] = {}
    used: tuple[UsedTemplate, ...] = ()
    given = any(isinstance(entity, Polymer) and entity.templates for entity in job.entities)
    if with_templates and (given or features.templates is not None):
        with target.stage("templates"), features.template_lock:
            templates, used = _find_templates(target, features, aligned.job)
    return AllAtomInputs(aligned.job, templates, used, features.settings.cache, atoms)


def make_sample(inputs: AllAtomInputs | PreparedInputs, seed: int) -> AllAtomSample:
    """Return the input of a job with one seed; raises the exceptions of `load` or `load_or_build`."""
    sample = inputs.load(seed) if isinstance(inputs, PreparedInputs) else inputs.load_or_build(seed)[1]
    structure = build_structure(sample.atoms, sample.tokens)
    restraints = build_restraints(sample.atoms, structure)
    return AllAtomSample(sample.features, structure, sample.tokens.chain, restraints, inputs.used)


def load_prepared(target: TargetRun, features: FeatureServices) -> PreparedInputs:
    """Return the inputs of a prepared job, and stage its files; see `Family.inputs`.

    Raises:
        InputError: it was prepared with other templates than those of the run, or is damaged.
    """
    prepared: PreparedJob = target.input
    with target.stage("features"):
        templates = None if features.templates is None else features.templates.identity()
        preparation = prepared.with_templates(templates)
        content = preparation.read()
        shutil.rmtree(target.files.search_folder, ignore_errors=True)
        preparation.stage_files(target.files)
    target.facts = target.facts.updated(content.facts)
    _warn(target, content.warnings)
    return PreparedInputs(preparation, tuple(UsedTemplate(*values) for values in content.used))


def prepare_job(
    target: TargetRun,
    features: FeatureServices,
    chains: Sequence[FastaRecord],
    preparation: Preparation,
    seeds: Sequence[int],
) -> bool:
    """Add all that predictions of a job need to the feature cache; return whether the cache had it.

    Raises:
        InputError: a molecule, an alignment or a template is invalid.
    """
    overwrite = features.settings.overwrite
    if not overwrite and preparation.has(seeds):
        try:
            target.facts = target.facts.updated(preparation.read().facts)
            for seed in seeds if features.settings.verify else ():
                PreparedInputs(preparation, ()).load(seed)
        except InputError:
            logger.warning(
                "%s: computed again, because its entry in the feature cache is damaged", target.name
            )
        else:
            return True
    inputs = load_inputs(target, features, chains, with_templates=True)
    samples = {seed: inputs.load_or_build(seed, overwrite)[0] for seed in seeds}
    used = [astuple(template) for template in inputs.used]
    preparation.write(target.files, target.facts, target.warnings, used, samples)
    return False


def _load(cache: Path, key: str, name: str) -> Sample | None:
    """Return a cached sample; None if there is none, or it is damaged."""
    try:
        return load_sample(cache, key)
    except CorruptEntryError as error:
        logger.warning("%s: %s; computed again", name, error)
        return None


def _stage_search(
    target: TargetRun,
    store: ChainAlignments,
    job: MoleculeJob,
    chains: Sequence[FastaRecord],
    found: Mapping[str, bytes],
) -> None:
    """Stage NAME.a3m and NAME.m8 of the searched chains."""
    copies = [
        found[entity.sequence]
        for entity in job.entities
        if isinstance(entity, Polymer) and entity.kind == MoleculeKind.PROTEIN and entity.sequence in found
        for _ in entity.chains
    ]
    distinct = {chain.sequence: chain for chain in chains}.values()
    store.stage(
        target,
        {chain.id: chain for chain in distinct},
        lambda stream: write_job_a3m(stream, target.name, copies, store.pairing),
    )


def _add_facts(target: TargetRun, aligned: AlignedJob, tokens: int, atoms: int) -> None:
    polymers = [entity for entity in aligned.job.entities if isinstance(entity, Polymer)]
    rows = max((len(each.alignment) for each in polymers if each.alignment is not None), default=1)
    facts = target.facts
    facts.residues, facts.atoms = tokens, atoms
    facts.alignment_rows, facts.paired_rows = rows + aligned.paired_rows, aligned.paired_rows
    facts.chains = sum(len(entity.chains) for entity in aligned.job.entities)
    _warn(target, aligned.notes)


def _warn(target: TargetRun, notes: Sequence[str]) -> None:
    """Add warnings to a target, and log them."""
    for note in notes:
        if note not in target.warnings:
            target.warnings.append(note)
            logger.warning("%s: %s", target.name, note)


def _find_templates(
    target: TargetRun, features: FeatureServices, job: MoleculeJob
) -> tuple[dict[str, dict[str, np.ndarray]], tuple[UsedTemplate, ...]]:
    """Search templates for the proteins that do not name their own, and stage NAME_templates.tsv.

    Returns:
        Templates that were found, by sequence, and those of all proteins in words.
    """
    found: dict[str, Templates] = {}
    named = []
    for entity in job.entities:
        if not isinstance(entity, Polymer) or entity.kind != MoleculeKind.PROTEIN:
            continue
        chain = entity.chains[0]
        if entity.templates is not None:
            named.append((chain, features.templates_of_chain(chain, entity.sequence, entity.templates)))
        elif features.templates is not None and entity.sequence not in found:
            alignment = entity.alignment or parse_alignment(f">query\n{entity.sequence}\n".encode())
            deterministic = make_features([alignment])
            found[entity.sequence] = features.templates.find(
                f"{target.name}_{chain}", deterministic, len(found)
            )
            named.append((chain, found[entity.sequence]))
    record_templates(target, named)
    templates = {sequence: features_of_hits(each.hits) for sequence, each in found.items()}
    used = tuple(used for name, each in named for used in used_templates(name, each.hits)[:4])
    return templates, used
