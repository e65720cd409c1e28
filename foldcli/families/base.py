"""The protocol of a kind of network: all that a run needs to know of it.

A run never asks which network it is. It finds the family that `--params` names (`registry`), and calls the
methods of `Family` in this order:

    claims, check_options, settings       the options
    read_queries, kinds, sources          inputs and parameters
    accepts, check, chains_to_search      each target, before its search
    target_identity, identity             the fingerprint of its results
    inputs, sampling, sample              in background threads
    is_prepared, prepare                  instead, in `cache-features`
    load, Network.start                   on the device
    writer                                in the processes that write files

The protocols of runs and of loaded networks are in `protocols`.

Families have no state and can be pickled. Their modules import no torch and no numba at the top, because a
run finds its parameters before it imports them; `load` and `sample` may.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import click

from foldcli.families.protocols import DeviceMemory, FeatureServices
from foldcli.families.settings import Job, JobSettings, NetworkOptions
from foldcli.inputs.queries import QuerySources, read_named_queries
from foldcli.inputs.screen import Background, find_screen_targets
from foldcli.inputs.targets import approximate_length, find_predict_targets
from foldcli.outputs.model_files import RESIDUE_MODELS, ModelOrigin, ModelWriter
from foldcli.outputs.target import TargetRun
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from foldcli.inputs.failures import Failures


@dataclass(frozen=True)
class Estimate:
    """Estimated cost of one target.

    Args:
        memory_bytes: peak memory of the device, parameters included; None is unknown.
        seconds: time of the network's passes, an upper bound for shallow alignments; None is unknown.
        is_rough: whether both are rough estimates, as on a CPU.
        atoms: number of atoms; None for families that count residues only.
    """

    memory_bytes: int | None
    seconds: float | None
    is_rough: bool = False
    atoms: int | None = None


@dataclass(frozen=True)
class PlanHeading:
    """The heading of a plan about one part of the run, such as the database."""

    line: str
    name: str
    values: Any


@dataclass(frozen=True)
class InstalledParameters:
    """A parameter file that predictions find.

    Args:
        model: number of the model; None for networks without one.
        network: name of the network.
        file: the file.
        sha256: the recorded SHA-256 of the file or of its source, hex; None if none is recorded.
    """

    model: int | None
    network: str
    file: Path
    sha256: str | None


@dataclass(frozen=True)
class ParametersFinding:
    """The result of checking the parameters that a run would use.

    Args:
        finding: the result, in one line.
        remedy: instructions for the user; "" if none are needed.
        usable: False if predictions would fail.
    """

    finding: str
    remedy: str = ""
    usable: bool = True


class Family(ABC):
    """A kind of network. The methods with a body suit most families; see the module for their order.

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
        paper: key of the network's paper in `foldcli/outputs/papers.bib`; empty without.
        rank_score: the score that --rank auto means.
        prepares_jobs: whether `cache-features` stores the inputs of its jobs (`prepare`); it stores
            AlphaFold2's features of alignments for other families.
        pairs_chains: whether its targets have several protein chains, whose alignments are paired.
        writer: writes the files of its models.
        fetchable: values of `params fetch --which` for its parameters, and the networks in words.
    """

    name: ClassVar[str]
    stage: ClassVar[str] = "predict"
    has_network: ClassVar[bool] = True
    unshared: ClassVar[str | None] = "--gpus-per-target: this network predicts each target on one device."
    samples_elsewhere: ClassVar[bool] = False
    size_unit: ClassVar[str] = "residues"
    paper: ClassVar[str] = ""
    rank_score: ClassVar[str] = "plddt"
    prepares_jobs: ClassVar[bool] = False
    pairs_chains: ClassVar[bool] = False
    writer: ClassVar[ModelWriter] = RESIDUE_MODELS
    fetchable: ClassVar[Mapping[str, str]] = MappingProxyType({})

    # options and parameters

    @abstractmethod
    def claims(self, params: str | None) -> bool:
        """Return True if a value of `--params` names parameters of this family; None is the default.

        A run may use further families beside the one that claims its parameters; see `sources`.

        Raises:
            MissingError, ParametersError: the parameters do not exist, or are damaged.
        """

    def check_options(self, values: Mapping[str, Any], given: Collection[str]) -> None:
        """Check that a run uses no option that this family does not have: here those of all-atom networks.

        Raises:
            click.UsageError: names the first such option.
        """
        for name in ("num_diffusion_samples", "num_diffusion_steps"):
            if name in given:
                option = f"--{name.replace('_', '-')}"
                raise click.UsageError(f"{option}: only all-atom networks have it (--params openfold3)")

    @abstractmethod
    def settings(self, options: NetworkOptions) -> JobSettings:
        """Return the settings of a run: what the options say, with this family's defaults and limits."""

    def own_settings(self, settings: Any) -> Any:
        """Return the part of a run's settings that holds for this family, if several run together."""
        return settings

    def kinds(self, options: NetworkOptions, targets: Sequence[Any]) -> tuple[str, ...]:
        """Return the names of the families that a run with these parameters and targets needs."""
        return (self.name,)

    @abstractmethod
    def sources(self, options: NetworkOptions, kinds: Sequence[str]) -> list[Any]:
        """Return the models to run, in order.

        Raises:
            MissingError: there are no parameters; the remedy says how to get them.
        """

    def installed(self, folder: Path | None) -> list[InstalledParameters]:
        """Return the parameter files in a folder, without reading them; None for the family's own folder.

        Raises:
            ParametersError: a manifest is damaged.
        """
        return []

    def check_installed(self, params: str) -> list[ParametersFinding]:
        """Check the parameters that a value of `--params` names, which this family claims; for `doctor`.

        Raises:
            MissingError, ParametersError: they cannot be used.
        """
        return [ParametersFinding(f"--params {params} needs none")]

    def kernel_networks(self, params: str | None, numbers: Sequence[int]) -> list[Any]:
        """Return the networks (`ModelConfig`) whose kernels `warmup` compiles; empty if it compiles none."""
        return []

    @abstractmethod
    def content(self, source: Any) -> str:
        """Return a hash of the parameters' content, after checking keys and shapes.

        Raises:
            ParametersError: a file cannot be used.
        """

    def read_file(self, source: Any) -> Any:
        """Read the file of a source, ahead of `load` and in a thread."""
        raise NotImplementedError(f"{self.name} reads no file ahead")

    def import_libraries(self) -> None:  # noqa: B027
        """Import what predictions need, such as torch, in a process that has just been started."""

    def template_search(self, search: Any, source: Any) -> Any:
        """Return the settings of the search for templates, as a network needs them; None for no search."""
        return search

    # targets

    def read_queries(self, sources: QuerySources, failures: "Failures") -> list[tuple[str, Any]]:
        """Read the queries of `foldcli fold`; return names and targets.

        Files that cannot be read are added to `failures`.

        Raises:
            InputError: a folder contains no query file.
        """
        return list(read_named_queries(sources, failures))

    def find_predict_targets(
        self, inputs: Sequence[str], all_cached: bool, cache: Path, failures: "Failures"
    ) -> list[tuple[str, Any]]:
        """Return names and targets of `foldcli predict`; see `inputs.targets.find_predict_targets`."""
        return [*find_predict_targets(inputs, all_cached, cache, failures)]

    def read_screen(
        self,
        files: Sequence[str],
        pairs: str | None,
        sources: QuerySources,
        failures: "Failures",
        background: Background | None = None,
    ) -> list[tuple[str, Any]]:
        """Read the targets of `foldcli screen`; return names and targets.

        Args:
            files: files of chains, or of what the family combines with them.
            pairs: a table of complexes; None for all pairs.
            sources: settings of reading; its inputs are `files`.
            failures: receives what cannot be read.
            background: the pairs to draw in addition; None for none.
        """
        return [
            *find_screen_targets(files, pairs, sources.comp_bias_corr, sources.matrix, failures, background)
        ]

    @abstractmethod
    def accepts(self, target: Any, source: Any) -> str | None:
        """Return the reason why a model of this family cannot predict a target; None if it can."""

    def check(self, target: Any) -> None:  # noqa: B027
        """Check a target before its search, as far as that takes no time.

        Raises:
            InputError: it cannot be predicted.
        """

    @abstractmethod
    def size(self, target: Any) -> int:
        """Return the size of a target in `size_unit`, after checking the target.

        Raises:
            InputError: the target is invalid.
            OSError: a file cannot be read.
        """

    def approximate_size(self, target: Any) -> int:
        """Return a number that grows with the size of a target, without reading much, to sort targets."""
        return approximate_length(target)

    def seeds(self, target: Any) -> tuple[int, ...]:
        """Return the seeds that the job file of a target names; empty if there are none."""
        return getattr(target, "seeds", ())

    def chains_to_search(self, target: Any) -> tuple[FastaRecord, ...]:
        """Return the chains of a target whose alignments a search adds to the chain store, copies included.

        A FastaRecord is a target that is searched as a whole instead, and has no chains here.
        """
        return ()

    def is_searched(self, target: Any) -> bool:
        """Return True if a target needs alignments from a search."""
        return isinstance(target, FastaRecord) or bool(self.chains_to_search(target))

    @abstractmethod
    def target_identity(self, target: Any, request: Any) -> dict[str, Any]:
        """Return everything that the inputs of a target depend on, as JSON values.

        Args:
            target: the target.
            request: the request for alignments (`AlignmentRequest`); None if nothing is searched.

        Raises:
            OSError: a file cannot be read.
        """

    def identity(self, settings: Any) -> dict[str, Any]:
        """Return the settings that every prediction depends on, for the fingerprint of a target."""
        return {"predict": self.own_settings(settings).identity()}

    # jobs

    def input_facts(self, inputs: Any, settings: Any) -> dict[str, Any]:
        """Return facts about the inputs of a target for done.json, beyond those that `inputs` adds."""
        return {}

    @abstractmethod
    def uses_templates(self, source: Any) -> bool:
        """Return True if a model takes templates."""

    @abstractmethod
    def inputs(self, target: TargetRun, features: FeatureServices, with_templates: bool) -> Any:
        """Return what the jobs of a locked target have in common, such as its features.

        Called by several threads. Adds the facts of `TargetRun`, and stages files such as NAME.a3m.

        Args:
            target: the target; its chains have been searched.
            features: the feature stage.
            with_templates: whether a job takes templates.

        Raises:
            InputError: an alignment is invalid.
            OSError: a file cannot be read or written.
        """

    def prepare(
        self, target: TargetRun, features: FeatureServices, request: Any, seeds: Sequence[int]
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
        self, name: str, target: Any, features: FeatureServices, request: Any, seeds: Sequence[int]
    ) -> bool:
        """Return True if `prepare` would find everything in the cache; `name` is the target's."""
        return False

    def network_facts(
        self, source: Any, inputs: Any, settings: Any, own_templates: bool
    ) -> dict[str, Any] | None:
        """Return the facts about network and target for done.json; "note" has them in words.

        The accuracy is named only for inputs like those with which it was measured.
        """
        return None

    def describe_network(self, source: Any) -> str | None:
        """Return what holds for all predictions of a network, for the log and as the begin of "note"."""
        return None

    def sampling(self, job: Job, settings: Any) -> Any:
        """Return what the sample of a job depends on; jobs with an equal value share their sample."""
        return job.seed

    def same_for_all_seeds(self, inputs: Any, samplings: Sequence[Any]) -> str | None:
        """Return the reason why several seeds give the same models; None if they do not."""
        return None

    @abstractmethod
    def sample(self, inputs: Any, job: Job, settings: Any, draw: Callable[..., Any] | None = None) -> Any:
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
    def load(self, source: Any, settings: Any, device: str, arrays: Any) -> Any:
        """Load a network; returns a `Network`.

        Args:
            source: its parameters.
            settings: settings of the run.
            device: a torch device.
            arrays: future result of `read_file`; None if it is not being read.

        Raises:
            ParametersError: the parameters cannot be used.
        """

    @abstractmethod
    def origin(self, name: str, job: Job, sample: Any, model: Any, settings: Any) -> ModelOrigin:
        """Return what the files of a model say about its origin."""

    # words and estimates

    def kernel_configs(self, sources: Sequence[Any]) -> list[Any]:
        """Return the networks (`ModelConfig`) whose fused kernels are compiled before the first job."""
        return []

    def colabfold_config(self, settings: Any) -> dict[str, Any]:
        """Return num_recycles, recycle_early_stop_tolerance, max_seq and max_extra_seq of config.json."""
        return {}

    def describe_device(self, settings: Any, memory: DeviceMemory) -> str:
        """Return device, precision and kernels in words, for the opening line."""
        return f"{memory.device_name()}, {settings.precision}; {settings.kernels} kernels"

    def describe_size(self, facts: Mapping[str, Any]) -> str:
        """Return the size of a target in words, given its facts, for the line about its result."""
        return f"{facts['residues']} residues, {facts['alignment_rows']} alignment rows"

    @abstractmethod
    def plan_heading(self, sources: Sequence[Any], settings: Any, memory: DeviceMemory) -> PlanHeading:
        """Return the heading of the plan about device and networks, for --dry-run."""

    @abstractmethod
    def estimate(
        self,
        size: int,
        target: Any,
        sources: Sequence[Any],
        loaded: Sequence[Any],
        settings: Any,
        memory: DeviceMemory,
    ) -> Estimate | None:
        """Return the estimated cost of a target for --dry-run; None if there is nothing to estimate."""
