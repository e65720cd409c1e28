"""AlphaFold2's networks for single chains and for complexes, and what families of its architecture share."""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias

import numpy as np

from features.alphafold2.row_clusters import RowClusters, cluster_rows, select_rows
from features.alphafold2.sampling import SamplingSettings, mask_columns, sample_features
from features.cache.entry import read_entry
from features.chemistry.residues import check_foldable
from features.complexes.features import complex_features
from foldcli.families.base import Draw, Family
from foldcli.families.protocols import AlignmentIdentity, DeviceMemory, FeatureServices, Network, Templates
from foldcli.families.reporting import Estimate, InstalledParameters, ParametersFinding, PlanHeading
from foldcli.families.settings import AlphaFold2Settings, Job, NetworkOptions, SampleT
from foldcli.fingerprints import fingerprint
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.cached_targets import CachedTarget, read_complex_entry
from foldcli.inputs.complexes import Complex
from foldcli.inputs.names import ENTRY_SUFFIX
from foldcli.inputs.queries import QuerySources, read_named_queries
from foldcli.inputs.screen import Background, find_screen_targets
from foldcli.inputs.targets import TargetInput, approximate_length, find_predict_targets, is_complex
from foldcli.logs import logger
from foldcli.outputs.facts import RowClusterFacts
from foldcli.outputs.model_files import ModelOrigin
from foldcli.outputs.target import TargetRun
from foldcli.params.manifest import read_manifest
from foldcli.params.parameters import (
    ParameterSource,
    default_folder,
    download_instructions,
    find_parameters,
    installed_parameters,
    needed_families,
)
from model.alphafold2.modules.config import ModelConfig, model_config
from model.chains import chain_names, chain_slices
from model.checkpoints.deepmind import read_arrays
from model.prediction import Prediction
from msa.base.digests import file_sha256
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord
from msa.search.database_search import check_query

if TYPE_CHECKING:
    from foldcli.inputs.failures import Failures

# the sampled features of all passes of a job, by name
FeatureSample: TypeAlias = dict[str, np.ndarray]
# AlphaFold2's number of templates; their rows count towards max_seq
TEMPLATE_SLOTS = 4


@dataclass(frozen=True, eq=False)
class AlignmentInputs:
    """The inputs of a target of protein chains.

    Args:
        features: deterministic features of a chain, or those of a complex, which contain its templates.
        templates: templates of a chain; None if none were searched.
    """

    features: dict[str, np.ndarray]
    templates: Templates | None
    name: str = ""
    cyclic: tuple[str, ...] = ()

    @cached_property
    def row_clusters(self) -> RowClusters:
        """The clusters of the alignment's rows."""
        return cluster_rows(self.features["msa"])

    def features_of(self, seed: int, settings: AlphaFold2Settings) -> dict[str, np.ndarray]:
        """Return the features for a seed: with `msa_cluster`, seeds from 1 have the rows of one cluster."""
        if settings.msa_cluster and 1 <= seed <= len(self.row_clusters.rows):
            return select_rows(self.features, self.row_clusters.rows[seed - 1])
        return self.features

    def given_features(self, settings: AlphaFold2Settings) -> dict[str, np.ndarray]:
        """Return the features of cyclic chains, and of the structure that recycling starts from, if any.

        Raises:
            InputError: a chain does not exist, or the structure does not fit.
        """
        asym_id = self.features.get("asym_id", np.ones(self.features["msa"].shape[1]))
        slices = chain_slices(asym_id)
        names = chain_names(len(slices))
        lengths = [(name, part.stop - part.start) for name, part in zip(names, slices, strict=True)]
        given: dict[str, np.ndarray] = {}
        if cyclic := {*settings.cyclic, *self.cyclic}:
            if unknown := sorted(cyclic - set(names)):
                raise InputError(
                    f"--cyclic {','.join(unknown)}: the chains of {self.name} are {', '.join(names)}"
                )
            cycles = [np.full(length, length if name in cyclic else 0) for name, length in lengths]
            given["cycle_length"] = np.concatenate(cycles)
        if (path := settings.start_structure(self.name)) is not None:
            from features.alphafold2.start_structure import read_start_positions  # imports gemmi

            given["start_positions"] = read_start_positions(path, lengths)
        return given


class AlignmentFamily(
    Family[TargetInput, ParameterSource, AlignmentInputs, SampleT, AlphaFold2Settings], Generic[SampleT]
):
    """A family whose targets are chains and complexes of proteins: queries, alignments, cache entries."""

    papers: ClassVar[tuple[str, ...]] = ("Jumper2021",)
    own_options: ClassVar[frozenset[str]] = frozenset({"num_relax", "amber", "use_gpu_relax"})

    def read_queries(self, sources: QuerySources, failures: "Failures") -> list[tuple[str, TargetInput]]:
        """Read chains and complexes; see `Family.read_queries`."""
        return list(read_named_queries(sources, failures))

    def find_predict_targets(
        self, inputs: Sequence[str], all_cached: bool, cache: Path, failures: "Failures"
    ) -> list[tuple[str, TargetInput]]:
        """Return alignments and cache entries; see `inputs.targets.find_predict_targets`."""
        return [*find_predict_targets(inputs, all_cached, cache, failures)]

    def read_screen(
        self, sources: QuerySources, pairs: str | None, failures: "Failures", background: Background | None
    ) -> list[tuple[str, TargetInput]]:
        """Read chains, and combine them to complexes; see `Family.read_screen`."""
        settings = sources.comp_bias_corr, sources.matrix
        return [*find_screen_targets(sources.inputs, pairs, *settings, failures, background)]

    def approximate_size(self, target: TargetInput) -> int:
        """Return residues, or bytes of an alignment; see `Family.approximate_size`."""
        return approximate_length(target)

    def content(self, source: ParameterSource) -> str:
        """Return a hash of the parameters' content; see `Family.content`."""
        from foldcli.params.verify import content_hash  # imports torch

        return content_hash(source)

    def size(self, target: TargetInput) -> int:
        """Return the number of residues of all chains; see `Family.size`."""
        if isinstance(target, Complex | FastaRecord):
            for chain in target.chains if isinstance(target, Complex) else [target]:
                check_query(chain)
                check_foldable(chain.sequence)
            return target.residues if isinstance(target, Complex) else len(target.sequence)
        if isinstance(target, CachedTarget):
            return target.residues()
        return _residues_of_file(target)

    def chains_to_search(self, target: TargetInput) -> tuple[FastaRecord, ...]:
        """Return a query, or the chains of a complex; see `Family.chains_to_search`."""
        if isinstance(target, FastaRecord):
            return (target,)
        return target.chains if isinstance(target, Complex) else ()

    def target_identity(self, target: TargetInput, request: AlignmentIdentity | None) -> dict[str, Any]:
        """Return the request for an alignment, or the content of the input; see `Family.target_identity`."""
        if isinstance(target, CachedTarget):
            return target.identity
        if isinstance(target, FastaRecord | Complex):
            assert request is not None
            identity = request.identity(target)
            if target.templates:
                own = [None if each is None else [one.content for one in each] for each in target.templates]
                identity |= {"own_templates": fingerprint(own)}
            return identity | ({"cyclic": list(target.cyclic)} if target.cyclic else {})
        return {"input": _content_hash(target)}

    def inputs(self, target: TargetRun, features: FeatureServices, with_templates: bool) -> AlignmentInputs:
        """Return features and templates; see `Family.inputs`."""
        cyclic = getattr(target.input, "cyclic", ())
        loaded, templates = features.load(target, with_templates)
        return AlignmentInputs(loaded, templates, target.name, cyclic)

    def colabfold_config(self, settings: AlphaFold2Settings) -> dict[str, Any]:
        """Return recycling and rows; see `Family.colabfold_config`."""
        own = self.own_settings(settings)
        return {
            "num_recycles": own.num_recycles,
            "recycle_early_stop_tolerance": own.recycle_early_stop_tolerance or None,
            "max_seq": own.max_seq,
            "max_extra_seq": own.max_extra_seq,
        }


class AlphaFold2Family(AlignmentFamily[FeatureSample]):
    """A family of networks of AlphaFold2's architecture, all with `AlphaFold2Settings`."""

    unshared: ClassVar[str | None] = None
    own_options: ClassVar[frozenset[str]] = AlignmentFamily.own_options | {
        "models", "num_models", "model_type", "num_recycles", "recycle_early_stop_tolerance", "max_msa",
        "save_recycles", "save_single", "save_pair", "save_all", "save_pairwise", "refine", "initial_guess",
        "cyclic", "msa_mask", "msa_cluster", "dropout",
    }  # fmt: skip

    def settings(self, options: NetworkOptions) -> AlphaFold2Settings:
        """Return the settings as given; see `Family.settings`."""
        settings: AlphaFold2Settings = options.predict
        return settings

    def sources(self, options: NetworkOptions, families: Sequence[Any]) -> list[ParameterSource]:
        """Return the parameter files of each family; see `find_parameters`."""
        return find_parameters(options.params, options.models, options.model_type, families)

    def installed(self, folder: Path | None) -> list[InstalledParameters]:
        """Return DeepMind's files of this family; see `Family.installed`."""
        found = []
        for source in installed_parameters(folder or default_folder()):
            if source.family == self.name and source.file is not None:
                record = read_manifest(source.file.parent).files.get(source.file.name)
                sha256 = record.sha256 if record else None
                found.append(InstalledParameters(source.number, source.config_name, source.file, sha256))
        return found

    def read_file(self, source: ParameterSource) -> Any:
        """Return the arrays of an npz file."""
        assert source.file is not None
        return read_arrays(source.file)

    def import_libraries(self) -> None:
        """Import torch, and most of what a prediction needs."""
        import foldcli.families.alphafold2_networks  # noqa: F401

    def kernel_configs(self, sources: Sequence[ParameterSource]) -> list[ModelConfig]:
        """Return the architectures of all networks; see `Family.kernel_configs`."""
        return [source.config for source in sources]

    def load(
        self, source: ParameterSource, settings: AlphaFold2Settings, device: str, arrays: "Future[Any] | None"
    ) -> Network:
        """Load a network; see `Family.load`."""
        from foldcli.families.alphafold2_networks import AlphaFold2Network, load_network  # imports torch

        model = load_network(source, self.own_settings(settings), device, arrays)
        return AlphaFold2Network(model, self.own_settings)

    def origin(
        self, name: str, job: Job, sample: FeatureSample, model: Prediction, settings: AlphaFold2Settings
    ) -> ModelOrigin:
        """Return what the files of a model say about it; see `Family.origin`."""
        network = (
            f"{job.source.label}, seed {job.seed:03d}, {model.num_recycles} recycles, {settings.precision}"
            f"{', refined' if settings.refine else ''}"
        )
        return ModelOrigin(name, network, job.source.is_untrained)

    def plan_heading(
        self, sources: Sequence[ParameterSource], settings: AlphaFold2Settings, memory: DeviceMemory
    ) -> PlanHeading:
        """Return the heading about device and networks; see `Family.plan_heading`."""
        from foldcli.families.alphafold2_networks import plan_heading  # imports torch

        # a run may have networks for single chains and for complexes
        own = [settings.for_multimer() if source.is_multimer else settings for source in sources]
        return plan_heading(list(zip(sources, own, strict=True)), settings, memory)

    def estimate(
        self,
        size: int,
        target: TargetInput,
        sources: Sequence[ParameterSource],
        loaded: Sequence[ParameterSource],
        settings: AlphaFold2Settings,
        memory: DeviceMemory,
    ) -> Estimate | None:
        """Return memory as planned, and seconds as measured; see `Family.estimate`."""
        from foldcli.families.alphafold2_networks import estimate_cpu, estimate_gpu  # imports torch

        own, num_seeds = self.own_settings(settings), len(settings.seeds(self.seeds(target)))
        if memory.device == "cpu":
            return estimate_cpu(size, num_seeds, sources, loaded, own)
        return estimate_gpu(size, num_seeds, sources, loaded, own, memory)


class SingleChainFamily(AlphaFold2Family):
    """A family of networks for single chains, whose features are sampled ahead of the network."""

    samples_elsewhere: ClassVar[bool] = True

    def _sampling_settings(self, source: ParameterSource, settings: AlphaFold2Settings) -> SamplingSettings:
        raise NotImplementedError

    def row_cluster_facts(
        self, inputs: AlignmentInputs, settings: AlphaFold2Settings
    ) -> RowClusterFacts | None:
        """Return the clusters of rows, if they are used; see `Family.row_cluster_facts`."""
        if not settings.msa_cluster:
            return None
        clusters = inputs.row_clusters
        found = f"{len(clusters.rows)} clusters of rows within {clusters.epsilon:g}"
        logger.info("%s: %s; seeds from 1 have one each, all others the whole alignment", inputs.name, found)
        return RowClusterFacts(list(map(len, clusters.rows)), clusters.epsilon)

    def template_features(self, templates: Templates, source: ParameterSource) -> dict[str, np.ndarray]:
        """Return the features of templates as a network takes them."""
        return templates.features

    def sampling(self, job: Job, settings: AlphaFold2Settings) -> Any:
        """Return the rows to sample, and the seed."""
        return self._sampling_settings(job.source, settings), job.seed

    def same_for_all_seeds(self, inputs: AlignmentInputs, samplings: Sequence[Any]) -> str | None:
        """Return the reason why nothing is random, if so; see `Family.same_for_all_seeds`."""
        rows = len(inputs.features["msa"])
        if any(rows_to_sample.is_random(rows) for rows_to_sample, _ in samplings):
            return None
        return (
            f"all seeds give the same structure, because the network reads all {rows} rows of the alignment "
            "and nothing is sampled"
        )

    def sample(
        self, inputs: AlignmentInputs, job: Job, settings: AlphaFold2Settings, draw: Draw = None
    ) -> FeatureSample:
        """Sample the random features of a job's passes; see `Family.sample`."""
        features = inputs.features_of(job.seed, settings)
        if inputs.templates is not None:
            features = features | self.template_features(inputs.templates, job.source)
        rows, seed = self.sampling(job, settings)
        features = features | inputs.given_features(settings)
        return (draw or sample_features)(features, rows, settings.num_passes, seed)


class AlphaFold2(SingleChainFamily):
    """AlphaFold2's networks for single chains; with them, the run may use those of AlphaFold-Multimer."""

    name: ClassVar[str] = "monomer"
    fetchable: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "ptm": "five monomer networks with a PAE head",
            "monomer": "five monomer networks without a PAE head",
            "multimer": "five networks for complexes",
            "all": "all fifteen networks",
            "multimer_v2": "five networks for complexes, an older version; also multimer_v1",
        }
    )

    def claims(self, params: str | None) -> bool:
        """Return True for everything that no other family claims: folders of parameters, and the default."""
        return True

    def needed_families(self, options: NetworkOptions, targets: Sequence[TargetInput]) -> tuple[str, ...]:
        """Return the families that single chains and complexes need; see `Family.needed_families`."""
        complexes = [is_complex(target) for target in targets]
        return needed_families(options.model_type, not all(complexes), any(complexes))

    def check_installed(self, params: str) -> list[ParametersFinding]:
        """Check keys and shapes of the files in a folder, of both families; see `Family.check_installed`."""
        from foldcli.params.verify import find_problem  # imports torch

        folder, fetch = Path(params), f"foldcli params fetch --dest {params}"
        sources = installed_parameters(folder)
        if not sources:
            return [ParametersFinding(f"none in {folder}", download_instructions(folder))]
        broken = []
        for source in sources:
            assert source.file is not None
            if problem := find_problem(source.file, source.config):
                remedy = f"{fetch} --which {source.which} --overwrite"
                broken.append(ParametersFinding(f"{source.file}: {problem}", remedy, usable=False))
        if broken:
            return broken
        finding = f"{', '.join(source.config_name for source in sources)} in {folder}"
        found = {source.number for source in sources if source.family == self.name}
        if missing := {1, 2, 3, 4, 5} - found:
            numbers, absent = ",".join(map(str, sorted(found))), ", ".join(map(str, sorted(missing)))
            remedy = f"{fetch}, or predict with --models {numbers}." if found else fetch
            return [ParametersFinding(f"{finding}; none for model {absent}", remedy)]
        return [ParametersFinding(finding)]

    def kernel_networks(self, params: str | None, numbers: Sequence[int]) -> list[ModelConfig]:
        """Return the networks with a PAE head, whatever is installed; see `Family.kernel_networks`."""
        return [model_config(f"model_{number}_ptm") for number in numbers] if params is None else []

    def accepts(self, target: Any, source: ParameterSource) -> str | None:
        """Return None for single chains; see `Family.accepts`."""
        if not is_complex(target):
            return None
        return (
            "a complex of several chains, which needs the parameters of AlphaFold-Multimer "
            "(foldcli params fetch --which multimer) and --model-type auto or multimer_v3"
        )

    def uses_templates(self, source: ParameterSource) -> bool:
        """Return True for models 1 and 2; see `Family.uses_templates`."""
        return bool(source.config.template)

    def _sampling_settings(self, source: ParameterSource, settings: AlphaFold2Settings) -> SamplingSettings:
        slots = TEMPLATE_SLOTS if self.uses_templates(source) else 0
        return SamplingSettings(
            settings.max_seq,
            settings.max_extra_seq,
            slots,
            masked_columns=settings.msa_mask,
            seeds_differ=settings.msa_cluster or settings.dropout,
        )


class Multimer(AlphaFold2Family):
    """AlphaFold-Multimer's networks; `AlphaFold2` finds their parameters."""

    name: ClassVar[str] = "multimer"
    papers: ClassVar[tuple[str, ...]] = ("Jumper2021", "Evans2021")
    rank_score: ClassVar[str] = "multimer"
    pairs_chains: ClassVar[bool] = True

    def claims(self, params: str | None) -> bool:
        """Return False: the same values name the parameters of `AlphaFold2`."""
        return False

    def own_settings(self, settings: AlphaFold2Settings) -> AlphaFold2Settings:
        """Return the settings of multimer networks; see `Family.own_settings`."""
        return settings.for_multimer()

    def accepts(self, target: Any, source: ParameterSource) -> str | None:
        """Return None: complexes and single chains can be predicted."""
        return None

    def uses_templates(self, source: ParameterSource) -> bool:
        """Return True: all of these networks take templates."""
        return True

    def sampling(self, job: Job, settings: AlphaFold2Settings) -> int | None:
        """Return the seed of the masked columns; the network samples the rows of each pass itself."""
        return job.seed if settings.msa_mask else None

    def sample(
        self, inputs: AlignmentInputs, job: Job, settings: AlphaFold2Settings, draw: Draw = None
    ) -> FeatureSample:
        """Return the features of a complex, as they are; see `Family.sample`."""
        if settings.msa_cluster:
            raise InputError("--msa-cluster is for single chains and networks for single chains")
        features = inputs.features
        if inputs.templates is not None:
            features = features | inputs.templates.features
        features = features if "asym_id" in features else complex_features([features])
        features = {**mask_columns(features, settings.msa_mask, job.seed)}
        return features | replace(inputs, features=features).given_features(settings)


def _residues_of_file(target: AlignmentTarget) -> int:
    """Return the number of residues of alignments, or of an entry of the feature cache."""
    file = target.files[0]
    if file.endswith(ENTRY_SUFFIX):
        return (
            read_complex_entry(file).residues if target.is_complex else int(read_entry(file)["msa"].shape[1])
        )
    if target.is_complex:
        rows = target.parse_complex(target.read_contents())
        assert rows is not None
        return rows.residues
    query = target.read()[0].query
    check_foldable(query)
    return len(query)


def _content_hash(target: AlignmentTarget) -> str | list[str]:
    """Return the SHA-256 of each of a target's files, or of its content from standard input."""
    if target.content is not None:
        return hashlib.sha256(target.content).hexdigest()
    hashes = [file_sha256(Path(path)) for path in target.files]
    return hashes[0] if len(hashes) == 1 else hashes
