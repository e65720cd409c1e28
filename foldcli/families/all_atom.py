"""All-atom networks, which predict proteins, nucleic acids, ligands and ions together."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from features.assembly.job import MoleculeJob, Polymer
from features.assembly.job_json import job_to_json
from foldcli.families.base import Draw, Family
from foldcli.families.protocols import AlignmentIdentity, DeviceMemory, FeatureServices, Network
from foldcli.families.reporting import Estimate, InstalledParameters, ParametersFinding, PlanHeading
from foldcli.families.settings import AllAtomSettings, Job, JobSettings, NetworkOptions
from foldcli.inputs.molecules.prepared import Preparation, PreparedJob, find_prepared_targets
from foldcli.inputs.queries import QuerySources
from foldcli.inputs.screen import Background, find_screen_targets
from foldcli.outputs.all_atom.models import ALL_ATOM_MODELS
from foldcli.outputs.facts import Facts
from foldcli.outputs.model_files import ModelOrigin, ModelWriter
from foldcli.outputs.target import TargetRun
from foldcli.params.openfold3 import (
    OPENFOLD3,
    REMEDY,
    TRAINED,
    AllAtomParameters,
    find_parameters,
    installed_parameters,
    is_all_atom,
    openfold3_folder,
)
from foldcli.values import value_or_default
from model.alphafold3.config import DEEPMIND
from model.prediction import Prediction
from msa.base.digests import file_sha256
from msa.base.errors import InputError, MissingError
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from features.assembly.tokens import JobSize
    from foldcli.families.all_atom_inputs import AllAtomInputs, AllAtomSample, PreparedInputs
    from foldcli.inputs.failures import Failures

# what a run predicts: a job, or one that `cache-features` has prepared
MoleculeTarget: TypeAlias = MoleculeJob | PreparedJob

# more do not fit on eight GPUs of 80 GB; the plan of a job's memory refuses what does not fit on those in use
MAX_TOKENS = 16384
# rows of a searched alignment that plans assume
MAX_ROWS = 16384
# packages of the extra `allatom`
_LIBRARIES = ("biotite", "rdkit")


@dataclass(frozen=True)
class AllAtomSource:
    """The parameters of an all-atom network, and the number of structures that each job draws."""

    parameters: AllAtomParameters
    samples: int

    family: ClassVar[str] = "all_atom"
    number: ClassVar[int] = 1
    is_untrained: ClassVar[bool] = False
    # read when the network is loaded, because its tensors are mapped
    file: ClassVar[Path | None] = None

    @property
    def label(self) -> str:
        """The network's name in file names and messages."""
        variant = self.parameters.variant
        if self.parameters.source == TRAINED:
            # as `foldcli.outputs.layout.TAG` requires
            return re.sub("[^A-Za-z0-9]+", "_", self.parameters.name).replace("rank_", "rank")[:60]
        if variant == DEEPMIND.variant:
            return DEEPMIND.name
        return f"openfold3_{variant}" if variant else OPENFOLD3

    @property
    def config_name(self) -> str:
        """The name of the parameters."""
        return self.parameters.name

    def tags(self, seed: int) -> tuple[str, ...]:
        """Return one tag for each structure; see `foldcli.families.settings.Source`."""
        return tuple(f"{self.label}_seed_{seed:03d}_sample_{sample}" for sample in range(self.samples))


class AllAtom(
    Family[MoleculeTarget, AllAtomSource, "AllAtomInputs | PreparedInputs", "AllAtomSample", AllAtomSettings]
):
    """All-atom networks; a target is a job of any molecules (`features.assembly.job.MoleculeJob`)."""

    name: ClassVar[str] = "all_atom"
    unshared: ClassVar[str | None] = None
    size_unit: ClassVar[str] = "tokens"
    prepares_jobs: ClassVar[bool] = True
    pairs_chains: ClassVar[bool] = True
    rank_score: ClassVar[str] = "AlphaFold 3's ranking score"
    own_options: ClassVar[frozenset[str]] = frozenset({
        "num_recycles", "num_diffusion_samples", "num_diffusion_steps", "save_all", "save_pairwise",
        "dropout",
    })  # fmt: skip
    writer: ClassVar[ModelWriter] = ALL_ATOM_MODELS
    papers: ClassVar[tuple[str, ...]] = ("Abramson2024",)
    fetchable: ClassVar[Mapping[str, str]] = MappingProxyType(
        {OPENFOLD3: "an all-atom network: proteins, nucleic acids, ligands; also openfold3_p2"}
    )

    def claims(self, params: str | None) -> bool:
        """Return True for "openfold3", and for a file or a folder of such parameters."""
        return params == OPENFOLD3 or (params is not None and is_all_atom(Path(params)))

    def refusal(self, option: str) -> str:
        """Return the reason; see `Family.refusal`."""
        reason = "all-atom networks have no such option"
        return f"{reason}; write `cyclic: true` into a job for Boltz" if option == "cyclic" else reason

    def check_options(self, values: Mapping[str, Any]) -> None:
        """Check that the libraries of chemistry are installed; see `Family.check_options`."""
        if missing := [name for name in _LIBRARIES if find_spec(name) is None]:
            raise MissingError(
                f"all-atom networks need {' and '.join(missing)}",
                "Install them: pip install 'foldcli[allatom]'.",
            )

    def settings(self, options: NetworkOptions) -> AllAtomSettings:
        """Return the settings that the options give; see `Family.settings`."""
        common, default = options.predict, AllAtomSettings
        return AllAtomSettings(
            **{each.name: getattr(common, each.name) for each in fields(JobSettings)},
            num_recycles=value_or_default(options.num_recycles, default.num_recycles),
            num_steps=value_or_default(options.num_diffusion_steps, default.num_steps),
            dropout=common.dropout,
            num_samples=value_or_default(options.num_diffusion_samples, default.num_samples),
        )

    def installed(self, folder: Path | None) -> list[InstalledParameters]:
        """Return the imported parameters in a folder; see `Family.installed`."""
        return [
            InstalledParameters(None, each.name, each.file, each.source_sha256)
            for each in installed_parameters(folder or openfold3_folder())
        ]

    def check_installed(self, params: str) -> list[ParametersFinding]:
        """Name the parameters that exist; `load` checks their tensors. See `Family.check_installed`."""
        path = openfold3_folder() if params == OPENFOLD3 else Path(params)
        if path.is_file():
            return [ParametersFinding(f"all-atom parameters in {path}")]
        names = [each.network for each in self.installed(path)]
        if not names:
            return [ParametersFinding(f"none in {path}", REMEDY)]
        return [ParametersFinding(f"{', '.join(names)} in {path}")]

    def sources(self, options: NetworkOptions, families: Sequence[str]) -> list[AllAtomSource]:
        """Return the only model; see `foldcli.params.openfold3.find_parameters`."""
        folder = openfold3_folder() if options.params == OPENFOLD3 else Path(str(options.params))
        return [AllAtomSource(find_parameters(folder), self.settings(options).num_samples)]

    def content(self, source: AllAtomSource) -> str:
        """Return the SHA-256 of the imported checkpoint, or of the file; see `Family.content`."""
        return source.parameters.source_sha256 or file_sha256(source.parameters.file)

    def import_libraries(self) -> None:
        """Import torch, and most of what a prediction needs."""
        import foldcli.families.all_atom_networks  # noqa: F401

    def read_queries(self, sources: QuerySources, failures: "Failures") -> list[tuple[str, MoleculeTarget]]:
        """Read jobs of any molecules; see `foldcli.inputs.molecules.read.read_jobs`."""
        from foldcli.inputs.molecules.read import read_jobs  # imports the dictionary of components

        return [*read_jobs(sources.inputs, failures)]

    def find_predict_targets(
        self, inputs: Sequence[str], all_cached: bool, cache: Path, failures: "Failures"
    ) -> list[tuple[str, MoleculeTarget]]:
        """Return prepared jobs, and jobs that need no search; see `find_prepared_targets`."""
        identity = partial(self.target_identity, request=None)
        return [*find_prepared_targets(inputs, all_cached, cache, failures, identity, self.is_searched)]

    def read_screen(
        self, sources: QuerySources, pairs: str | None, failures: "Failures", background: Background | None
    ) -> list[tuple[str, MoleculeTarget]]:
        """Combine jobs of a file with ligands of another, or pairs of chains; see the base class."""
        from foldcli.inputs.molecules import ligands, read  # imports RDKit and biotite

        files = sources.inputs
        if pairs is None and len(files) == 2 and ligands.is_ligand_file(files[1]):
            if background is not None:
                raise InputError("--background draws pairs of protein chains, not of proteins and ligands")
            proteins = read.read_jobs(files[:1], failures)
            return [*ligands.screen_jobs(proteins, ligands.read_ligands(files[1], failures))]
        complexes = find_screen_targets(
            files, pairs, sources.comp_bias_corr, sources.matrix, failures, background
        )
        return [
            (name, replace(read.job_of_query(target, target.path), name=name)) for name, target in complexes
        ]

    def accepts(self, target: Any, source: AllAtomSource) -> str | None:
        """Return None for jobs; see `Family.accepts`."""
        if isinstance(target, MoleculeJob | PreparedJob):
            return None
        return f"the network {source.label} predicts jobs, and these are features of AlphaFold2"

    def check(self, target: MoleculeTarget) -> None:
        """Check that the molecules exist; see `Family.check`."""
        self.size(target)

    def size(self, target: MoleculeTarget) -> int:
        """Return the number of tokens; see `Family.size`."""
        target = _job(target)
        tokens = _job_size(target).tokens
        if tokens > MAX_TOKENS:
            reason = f"{tokens:,} tokens; all-atom networks predict at most {MAX_TOKENS:,}"
            raise InputError(reason, target.path, target.line)
        return tokens

    def approximate_size(self, target: MoleculeTarget) -> int:
        """Return the number of residues, and a guess of the atoms of ligands; see the base class."""
        return sum(
            len(entity.chains) * (len(entity.sequence) if isinstance(entity, Polymer) else 30)
            for entity in _job(target).entities
        )

    def chains_to_search(self, target: MoleculeTarget) -> tuple[FastaRecord, ...]:
        """Return the proteins without an alignment of their own; see `Family.chains_to_search`."""
        if isinstance(target, PreparedJob):
            return ()
        return tuple(
            FastaRecord(f"{target.name}_{polymer.chains[0]}", polymer.sequence)
            for polymer in target.proteins_to_search()
        )

    def target_identity(self, target: MoleculeTarget, request: AlignmentIdentity | None) -> dict[str, Any]:
        """Return the molecules, and the fingerprints of alignments; see `Family.target_identity`."""
        if isinstance(target, PreparedJob):
            return target.identity
        identity: dict[str, Any] = {"molecules": job_to_json(target), "given": _given(target)}
        searched = self.chains_to_search(target)
        if searched and request is not None:
            identity |= request.chains_identity(searched)
        return identity

    def uses_templates(self, source: AllAtomSource) -> bool:
        """Return True."""
        return True

    def inputs(
        self, target: TargetRun, features: FeatureServices, with_templates: bool
    ) -> "AllAtomInputs | PreparedInputs":
        """Return the job with its alignments, and its templates; see `Family.inputs`."""
        from foldcli.families.all_atom_inputs import load_inputs, load_prepared  # imports RDKit

        if isinstance(target.input, PreparedJob):
            return load_prepared(target, features)
        return load_inputs(target, features, self.chains_to_search(target.input), with_templates)

    def prepare(
        self,
        target: TargetRun,
        features: FeatureServices,
        request: AlignmentIdentity | None,
        seeds: Sequence[int],
    ) -> bool:
        """Add alignments, templates and samples of a job to the cache; see `Family.prepare`."""
        from foldcli.families.all_atom_inputs import prepare_job  # imports RDKit

        job = target.input
        preparation = self._preparation(target.name, job, features, request)
        return prepare_job(target, features, self.chains_to_search(job), preparation, seeds)

    def is_prepared(
        self,
        name: str,
        target: MoleculeTarget,
        features: FeatureServices,
        request: AlignmentIdentity | None,
        seeds: Sequence[int],
    ) -> bool:
        """Return True if the cache has the inputs of a job for these seeds; see `Family.is_prepared`."""
        return self._preparation(name, target, features, request).has(seeds)

    def _preparation(
        self, name: str, job: MoleculeTarget, features: FeatureServices, request: AlignmentIdentity | None
    ) -> Preparation:
        """Return the place of a job in the cache."""
        templates = None if features.templates is None else features.templates.identity()
        identity = self.target_identity(job, request)
        return Preparation(features.settings.cache, name, identity, templates)

    def sample(
        self, inputs: "AllAtomInputs | PreparedInputs", job: Job, settings: AllAtomSettings, draw: Draw = None
    ) -> "AllAtomSample":
        """Return the network's inputs, from the cache or added to it; see `Family.sample`."""
        from foldcli.families.all_atom_inputs import make_sample  # imports RDKit

        return make_sample(inputs, job.seed)

    def load(
        self, source: AllAtomSource, settings: AllAtomSettings, device: str, arrays: "Future[Any] | None"
    ) -> Network:
        """Load a network; see `Family.load`."""
        from foldcli.families.all_atom_networks import load_network  # imports torch

        return load_network(source.parameters.file, settings, device)

    def origin(
        self, name: str, job: Job, sample: "AllAtomSample", model: Prediction, settings: AllAtomSettings
    ) -> ModelOrigin:
        """Return what the files of a model say about it; see `Family.origin`."""
        network = (
            f"{job.source.label} ({job.source.config_name}), seed {job.seed:03d}, "
            f"{settings.num_recycles} recycles, {settings.num_steps} denoising steps, {settings.precision}"
        )
        return ModelOrigin(
            name,
            network,
            job.source.is_untrained,
            restraints=sample.restraints,
            templates=sample.templates,
        )

    def describe_size(self, facts: Facts) -> str:
        """Return tokens, atoms and rows in words; see `Family.describe_size`."""
        return f"{facts.residues} tokens, {facts.atoms} atoms, {facts.alignment_rows} alignment rows"

    def plan_heading(
        self, sources: Sequence[AllAtomSource], settings: AllAtomSettings, memory: DeviceMemory
    ) -> PlanHeading:
        """Return the heading about device and network; see `Family.plan_heading`."""
        seeds = f"{settings.num_seeds} seed{'s' if settings.num_seeds > 1 else ''}"
        line = (
            f"network: {memory.device_name()}, {settings.precision}; {sources[0].label}; per target: {seeds},"
            f" {settings.num_samples} samples of {settings.num_recycles + 1} cycles and {settings.num_steps} "
            "steps; sizes are tokens"
        )
        values = {
            "device": memory.device_name(),
            "precision": settings.precision,
            "kernels": settings.kernels,
            "models": [source.label for source in sources],
            "seeds": settings.seeds(),
            "samples": settings.num_samples,
            "cycles": settings.num_recycles + 1,
            "steps": settings.num_steps,
        }
        return PlanHeading(line, "network", values)

    def estimate(
        self,
        size: int,
        target: MoleculeTarget,
        sources: Sequence[AllAtomSource],
        loaded: Sequence[AllAtomSource],
        settings: AllAtomSettings,
        memory: DeviceMemory,
    ) -> Estimate | None:
        """Return memory from the layers' sizes, and seconds as measured; see `Family.estimate`."""
        from foldcli.families.all_atom_networks import estimate_bytes, estimate_seconds  # imports torch

        molecules = _job_size(_job(target))
        rows_are_known = isinstance(target, MoleculeJob) and not self.is_searched(target)
        rows = max(molecules.rows, 1 if rows_are_known else MAX_ROWS)
        variant, seeds = sources[0].parameters.variant, len(settings.seeds(self.seeds(target)))
        seconds = estimate_seconds(molecules.tokens, settings, memory)
        return Estimate(
            estimate_bytes(variant, molecules, rows, settings, memory),
            None if seconds is None else seeds * seconds,
            is_rough=memory.device == "cpu",
            atoms=molecules.atoms,
        )


def _job(target: MoleculeTarget) -> MoleculeJob:
    return target.job if isinstance(target, PreparedJob) else target


def _given(job: MoleculeJob) -> str:
    """Return a hash of the alignments and templates that a job gives itself."""
    digest = hashlib.sha256()
    is_paired = len(job.proteins()) > 1
    for entity in job.entities:
        if isinstance(entity, Polymer):
            for kind, alignment in (("unpaired", entity.alignment), ("paired", entity.paired)):
                if alignment is not None:
                    digest.update(kind.encode() + alignment.letters.tobytes() + alignment.deletions.tobytes())
                    # by which the rows of several proteins are paired
                    digest.update("\0".join(alignment.species if is_paired else ()).encode())
            templates = [template.content for template in entity.templates or ()]
            digest.update(json.dumps([entity.templates is None, templates]).encode())
    return digest.hexdigest()


def _job_size(job: MoleculeJob) -> "JobSize":
    from features.assembly.tokens import job_size  # imports the dictionary of components

    return job_size(job)
