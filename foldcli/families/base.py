"""The protocol of a family of networks: all that a run needs to know of it.

A run never asks which network it is. It finds the family that `--params` names (`registry`), and calls the
methods of `Family` in this order:

    claims, settings, check_options       the options
    read_queries, needed_families         inputs
    sources, content                      parameters
    accepts, check, chains_to_search      each target, before its search
    target_identity, identity             the fingerprint of its results
    size                                  its place in the order of targets
    uses_templates                        of each job, before templates are searched for its target
    inputs, sampling, sample              in background threads
    is_prepared, prepare                  instead, in `cache-features`
    load, Network.start                   on the device
    origin, writer                        of each model; `writer` in the processes that write files

The families are `AllAtom`, and those of protein chains and complexes (`AlignmentFamily`): `TemplateCopy` and
networks of AlphaFold2's architecture (`AlphaFold2Family`), which are `Multimer` and, with features that are
sampled ahead of the network (`SingleChainFamily`), `AlphaFold2` and `Native`.

The protocols of runs and of loaded networks are in `protocols`; the hooks that predictions do not need are in
`reporting`.

Families have no state and can be pickled. Their modules import no torch and no numba at the top, because a
run finds its parameters before it imports them; methods from `content` on may.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from features.templates.library.settings import TemplateSettings
from foldcli.errors import OptionError
from foldcli.families.protocols import AlignmentIdentity, DeviceMemory, FeatureServices, Network
from foldcli.families.reporting import Reporting, SourceT, TargetT
from foldcli.families.settings import Job, NetworkOptions, SampleT, SettingsT
from foldcli.inputs.queries import QuerySources
from foldcli.inputs.screen import Background
from foldcli.outputs.facts import Facts, NetworkFacts, RowClusterFacts
from foldcli.outputs.model_files import RESIDUE_MODELS, ModelOrigin, ModelWriter
from foldcli.outputs.target import TargetRun
from model.alphafold2.modules.config import ModelConfig
from model.prediction import Prediction
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from foldcli.inputs.failures import Failures

InputsT = TypeVar("InputsT")
# draws features of AlphaFold2 in another process; None to draw them here
Draw: TypeAlias = Callable[..., Any] | None


class Family(
    Reporting[TargetT, SourceT, SettingsT], ABC, Generic[TargetT, SourceT, InputsT, SampleT, SettingsT]
):
    """A family of networks. The methods with a body suit most families; see the module for their order.

    The type variables are the targets that it predicts, the source of a model's parameters, what the jobs of
    a target have in common (`inputs`), the input of one job (`sample`), and the settings of a run.

    Attributes:
        name: name by which `Source.family` refers to it.
        stage: name of the stage of its jobs in done.json.
        has_network: False if models are made without a network, on the CPU: nothing is loaded or compiled,
            and there are no workers.
        unshared: the reason why several processes cannot predict a target together (--gpus-per-target), as a
            sentence; None for networks that can be divided (`foldcli.pipeline.network.ranks`).
        samples_elsewhere: whether `sample` calls its argument `draw`, for which a run with GPUs starts
            processes.
        size_unit: what `size` counts; the name of its column in plans.
        papers: keys of the network's papers in `foldcli/outputs/papers.bib`.
        rank_score: the score that --rank auto means.
        prepares_jobs: whether `cache-features` stores the inputs of its jobs (`prepare`); it stores
            AlphaFold2's features of alignments for other families.
        pairs_chains: whether its targets have several protein chains, whose alignments are paired.
        own_options: the options, by parameter name, that not all families have; see
            `registry.refuse_options_of_others`.
        writer: writes the files of its models.
    """

    name: ClassVar[str]
    stage: ClassVar[str] = "predict"
    has_network: ClassVar[bool] = True
    unshared: ClassVar[str | None] = "--gpus-per-target: this network predicts each target on one device."
    samples_elsewhere: ClassVar[bool] = False
    size_unit: ClassVar[str] = "residues"
    papers: ClassVar[tuple[str, ...]] = ()
    rank_score: ClassVar[str] = "plddt"
    prepares_jobs: ClassVar[bool] = False
    pairs_chains: ClassVar[bool] = False
    own_options: ClassVar[frozenset[str]] = frozenset()
    writer: ClassVar[ModelWriter] = RESIDUE_MODELS

    # options and parameters

    @abstractmethod
    def claims(self, params: str | None) -> bool:
        """Return True if a value of `--params` names parameters of this family; None is the default.

        A run may use further families beside the one that claims its parameters; see `sources`.

        Raises:
            MissingError, ParametersError: the parameters do not exist, or are damaged.
        """

    def refusal(self, option: str) -> str:
        """Return the reason why an option that only other families have cannot be used."""
        return "only all-atom networks have it (--params openfold3)"

    def check_options(self, values: Mapping[str, Any]) -> None:
        """Check what a run with these values of options needs.

        Raises:
            OptionError: the options exclude each other.
            MissingError: a library is not installed.
        """

    @abstractmethod
    def settings(self, options: NetworkOptions) -> SettingsT:
        """Return the settings of a run: what the options say, with this family's defaults and limits."""

    def own_settings(self, settings: SettingsT) -> SettingsT:
        """Return the part of a run's settings that holds for this family, if several run together."""
        return settings

    def needed_families(self, options: NetworkOptions, targets: Sequence[TargetT]) -> tuple[str, ...]:
        """Return the names of the families that a run with these parameters and targets needs."""
        return (self.name,)

    @abstractmethod
    def sources(self, options: NetworkOptions, families: Sequence[str]) -> list[SourceT]:
        """Return the models to run, in order.

        Raises:
            MissingError: there are no parameters; the remedy says how to get them.
        """

    @abstractmethod
    def content(self, source: SourceT) -> str:
        """Return a hash of the parameters' content, after checking keys and shapes.

        Raises:
            ParametersError: a file cannot be used.
        """

    def read_file(self, source: SourceT) -> Any:
        """Read the file of a source, ahead of `load` and in a thread."""
        raise NotImplementedError(f"{self.name} reads no file ahead")

    def import_libraries(self) -> None:
        """Import what predictions need, such as torch, in a process that has just been started."""

    def template_search(self, search: TemplateSettings, source: SourceT) -> TemplateSettings | None:
        """Return the settings of the search for templates, as a network needs them; None for no search."""
        return search

    # targets

    @abstractmethod
    def read_queries(self, sources: QuerySources, failures: "Failures") -> list[tuple[str, TargetT]]:
        """Read the queries of `foldcli fold`; return names and targets.

        Files that cannot be read are added to `failures`.

        Raises:
            InputError: a folder contains no query file.
        """

    def find_predict_targets(
        self, inputs: Sequence[str], all_cached: bool, cache: Path, failures: "Failures"
    ) -> list[tuple[str, TargetT]]:
        """Return names and targets of `foldcli predict`; see `inputs.targets.find_predict_targets`."""
        raise OptionError(f"`foldcli predict` has no inputs for {self.name} networks")

    def read_screen(
        self, sources: QuerySources, pairs: str | None, failures: "Failures", background: Background | None
    ) -> list[tuple[str, TargetT]]:
        """Read the targets of `foldcli screen`; return names and targets.

        Args:
            sources: files of chains, or of what the family combines with them, and how to read them.
            pairs: a table of complexes; None for all pairs.
            failures: receives what cannot be read.
            background: the pairs to draw in addition; None for none.
        """
        raise OptionError(f"`foldcli screen` has no inputs for {self.name} networks")

    @abstractmethod
    def accepts(self, target: Any, source: SourceT) -> str | None:
        """Return the reason why a model cannot predict a target of any family; None if it can."""

    def check(self, target: TargetT) -> None:
        """Check a target before its search, as far as that takes no time.

        Raises:
            InputError: it cannot be predicted.
        """

    @abstractmethod
    def size(self, target: TargetT) -> int:
        """Return the size of a target in `size_unit`, after checking the target.

        Raises:
            InputError: the target is invalid.
            OSError: a file cannot be read.
        """

    def approximate_size(self, target: TargetT) -> int:
        """Return a number that grows with the size of a target, without reading much, to sort targets."""
        return self.size(target)

    def seeds(self, target: TargetT) -> tuple[int, ...]:
        """Return the seeds that the job file of a target names; empty if there are none."""
        return getattr(target, "seeds", ())

    def chains_to_search(self, target: TargetT) -> tuple[FastaRecord, ...]:
        """Return the chains of a target whose alignments a search adds to the cache, copies included."""
        return ()

    def is_searched(self, target: TargetT) -> bool:
        """Return True if a target needs alignments from a search."""
        return bool(self.chains_to_search(target))

    @abstractmethod
    def target_identity(self, target: TargetT, request: AlignmentIdentity | None) -> dict[str, Any]:
        """Return everything that the inputs of a target depend on, as JSON values.

        Args:
            target: the target.
            request: the request for alignments; None if nothing is searched.

        Raises:
            OSError: a file cannot be read.
        """

    def identity(self, settings: SettingsT) -> dict[str, Any]:
        """Return the settings that every prediction depends on, for the fingerprint of a target."""
        return {"predict": self.own_settings(settings).identity()}

    # jobs

    def row_cluster_facts(self, inputs: InputsT, settings: SettingsT) -> RowClusterFacts | None:
        """Return the clusters of the rows of a target's alignment; None if the settings use none."""
        return None

    @abstractmethod
    def uses_templates(self, source: SourceT) -> bool:
        """Return True if a model takes templates."""

    @abstractmethod
    def inputs(self, target: TargetRun, features: FeatureServices, with_templates: bool) -> InputsT:
        """Return what the jobs of a locked target have in common, such as its features.

        Called by several threads. Adds facts, see `Facts`, and stages files such as NAME.a3m.

        Args:
            target: the target; its chains have been searched.
            features: the feature stage.
            with_templates: whether a job takes templates.

        Raises:
            InputError: an alignment is invalid.
            OSError: a file cannot be read or written.
        """

    def prepare(
        self,
        target: TargetRun,
        features: FeatureServices,
        request: AlignmentIdentity | None,
        seeds: Sequence[int],
    ) -> bool:
        """Add all that predictions of a target need to the feature cache; return whether the cache had it.

        Args:
            target: the target; its chains have been searched. Its facts are added.
            features: the feature stage.
            request: see `target_identity`.
            seeds: the seeds of its jobs.

        Raises:
            InputError: the target cannot be predicted.
            OSError: a file cannot be read or written.
        """
        raise NotImplementedError(f"{self.name} has no inputs of its own in the feature cache")

    def is_prepared(
        self,
        name: str,
        target: TargetT,
        features: FeatureServices,
        request: AlignmentIdentity | None,
        seeds: Sequence[int],
    ) -> bool:
        """Return True if `prepare` would find everything in the cache; `name` is the target's."""
        return False

    def network_facts(
        self, source: SourceT, inputs: InputsT, settings: SettingsT, own_templates: bool
    ) -> NetworkFacts | None:
        """Return the facts about network and target for done.json; `note` has them in words.

        The accuracy is named only for inputs like those with which it was measured.
        """
        return None

    def describe_network(self, source: SourceT) -> str | None:
        """Return what holds for all predictions of a network, for the log and as the begin of `note`."""
        return None

    def sampling(self, job: Job, settings: SettingsT) -> Any:
        """Return what the sample of a job depends on; jobs with an equal value share their sample."""
        return job.seed

    def same_for_all_seeds(self, inputs: InputsT, samplings: Sequence[Any]) -> str | None:
        """Return the reason why several seeds give the same models; None if they do not."""
        return None

    @abstractmethod
    def sample(self, inputs: InputsT, job: Job, settings: SettingsT, draw: Draw = None) -> SampleT:
        """Make the input of a job; called in a background thread.

        Args:
            inputs: result of `inputs`.
            job: the job.
            settings: settings of the run.
            draw: draws features of AlphaFold2 in another process (`SamplingProcesses.sample`); None to draw
                them here. Other families ignore it.

        Returns:
            Anything that can be pickled; a dictionary of arrays is mapped by workers instead of copied.

        Raises:
            InputError: the target cannot be predicted.
        """

    @abstractmethod
    def load(
        self, source: SourceT, settings: SettingsT, device: str, arrays: "Future[Any] | None"
    ) -> Network:
        """Load a network.

        Args:
            source: its parameters.
            settings: settings of the run.
            device: a torch device.
            arrays: future result of `read_file`; None if it is not being read.

        Raises:
            ParametersError: the parameters cannot be used.
        """

    @abstractmethod
    def origin(
        self, name: str, job: Job, sample: SampleT, model: Prediction, settings: SettingsT
    ) -> ModelOrigin:
        """Return what the files of a model say about its origin."""

    # words

    def kernel_configs(self, sources: Sequence[SourceT]) -> list[ModelConfig]:
        """Return the networks whose fused kernels are compiled before the first job."""
        return []

    def describe_device(self, settings: SettingsT, memory: DeviceMemory) -> str:
        """Return device, precision and kernels in words, for the opening line."""
        return f"{memory.device_name()}, {settings.precision}; {settings.kernels} kernels"

    def describe_size(self, facts: Facts) -> str:
        """Return the size of a target in words, given its facts, for the line about its result."""
        return f"{facts.residues} residues, {facts.alignment_rows} alignment rows"


# a family of which nothing but the protocol is known
AnyFamily: TypeAlias = Family[Any, Any, Any, Any, Any]
