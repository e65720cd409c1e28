"""The request of a run of predictions, made once from the values of its options, and what sessions keep."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from foldcli.errors import OptionError
from foldcli.families.base import AnyFamily
from foldcli.families.protocols import Network
from foldcli.families.registry import find_family, refuse_options_of_others, with_params
from foldcli.families.settings import NetworkOptions, Source
from foldcli.pipeline.search.options import SearchOptions
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.targets.defaults import with_default_method
from foldcli.pipeline.targets.settings import FeatureSettings, OutputSettings, TemplateOptions
from foldcli.progress import Report
from model.parallel.rank_assignment import RankAssignment


@dataclass(frozen=True)
class PredictionRequest:
    """A run of predictions as a command line or a Python session requests it.

    Args:
        search: database and settings of the searches; None if no target needs a search.
        templates: options of the templates; None for no templates.
        assignment: the rank that torchrun has assigned to this process, or None.
        threads: value of `--threads`.
        dry_run: print the plan of the run, and predict nothing.
        as_json: print the plan or the results as JSON.
    """

    search: SearchOptions | None
    network: NetworkOptions
    templates: TemplateOptions | None
    features: FeatureSettings
    output: OutputSettings
    assignment: RankAssignment | None
    threads: int
    dry_run: bool
    as_json: bool

    @classmethod
    def from_options(
        cls, values: dict[str, Any], given: Collection[str], searches: bool = True
    ) -> "PredictionRequest":
        """Create the request from the values of options.

        Args:
            values: values by parameter of the options that the commands share; others are ignored.
            given: the parameters that the user gave.
            searches: whether the command searches a database.

        Raises:
            OptionError: options exclude each other, or the network has no such option.
            MissingError: the parameters do not exist.
        """
        search = SearchOptions.from_options(values) if searches else None
        assignment = RankAssignment.from_environment()
        network = _network_options(values, assignment)
        templates = TemplateOptions.from_options(values, values["threads"])
        family = find_family(network.params)
        refuse_options_of_others(family, given)
        family.check_options(values)
        if "rank_timeout" in given and network.gpus_per_target == 1:
            raise OptionError("--rank-timeout needs --gpus-per-target")
        return cls(
            search=search,
            network=network,
            templates=templates,
            features=FeatureSettings.from_options(values),
            output=OutputSettings.from_options(values),
            assignment=assignment,
            threads=values["threads"],
            dry_run=values["dry_run"],
            as_json=values["as_json"],
        )

    @property
    def family(self) -> AnyFamily:
        """The family of networks that `--params` names."""
        return find_family(self.network.params)

    def with_defaults(self, families: Sequence[str]) -> "PredictionRequest":
        """Return the request with default parameters and database where it names none; see `defaults`.

        Args:
            families: see `foldcli.families.base.Family.needed_families`.
        """
        return replace(
            self,
            network=with_default_method(self.network, self.templates, families),
            search=None if self.search is None else self.search.with_database(),
        )


@dataclass
class KeptState:
    """State that a Python session keeps for its next run, and its observers of a run.

    Args:
        search: the search stage, in this process, and the description of its database.
    """

    networks: dict[Source, Network] = field(default_factory=dict)
    search: tuple[SearchStage, str] | None = None
    report: Report | None = None

    def open(self, search: SearchOptions, device: str) -> tuple[SearchStage, str]:
        """Return the search stage, opening the database at the first call; see `SearchOptions.open`."""
        self.search = self.search or search.open(device, None)
        return self.search


def _network_options(values: dict[str, Any], assignment: RankAssignment | None) -> NetworkOptions:
    """Return the options of the network, with the settings of the family that `--params` names."""
    params, ranks = values["params"], values["gpus_per_target"]
    family = find_family(params)
    if assignment is not None:
        if ranks not in (1, assignment.size):
            raise OptionError(f"--gpus-per-target {ranks}: torchrun has started {assignment.size} processes.")
        ranks = assignment.size
    if ranks > 1 and family.unshared is not None:
        raise OptionError(family.unshared)
    if ranks > 1 and values["dropout"]:
        raise OptionError("--dropout: several GPUs cannot predict a target together with it")
    return with_params(NetworkOptions.from_options(values | {"gpus_per_target": ranks}), params)
