"""Protocols between a run and a family of networks, and between a run and a loaded network."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Generic, Protocol, TypeAlias

import numpy as np

from features.assembly.job import JobTemplate
from features.complexes.pairing import PairingSettings
from foldcli.families.settings import Job, SampleT, SettingsT
from foldcli.inputs.complexes import Complex
from foldcli.outputs.target import TargetRun
from foldcli.progress import Progress
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from model.prediction import Prediction


class AlignmentIdentity(Protocol):
    """The part of `foldcli.pipeline.targets.alignment_request.AlignmentRequest` that families use."""

    def identity(self, query: FastaRecord | Complex) -> dict[str, Any]:
        """Return everything that the alignment of a query or a complex depends on."""

    def chains_identity(self, chains: Sequence[FastaRecord]) -> dict[str, Any]:
        """Return everything that the alignments of chains, and the pairing of their rows, depend on."""

    def fingerprint(self, query: FastaRecord | Complex) -> str:
        """Return the fingerprint of the alignment of a query or a complex."""


class Templates(Protocol):
    """The part of `foldcli.pipeline.prepare.template_stage.TargetTemplates` that families use."""

    @property
    def hits(self) -> Any:
        """The templates and the rejected candidates."""

    @property
    def features(self) -> dict[str, np.ndarray]:
        """The template features."""

    def describe_rejections(self) -> str:
        """Return the reason why the first candidate is not used, and the number of other rejections."""


class ChainAlignments(Protocol):
    """The part of `foldcli.pipeline.search.stores.ChainStore` that families use."""

    @property
    def pairing(self) -> PairingSettings:
        """The method of pairing the alignments of several chains."""

    def read(self, query: FastaRecord) -> bytes:
        """Return the A3M file of a searched chain."""

    def stage(
        self,
        target: TargetRun,
        chains: Mapping[str, FastaRecord],
        write_alignment: Callable[[IO[str]], object],
    ) -> None:
        """Stage NAME.a3m and NAME.m8 of a target, and add its facts."""


class TemplateFinder(Protocol):
    """The part of `foldcli.pipeline.prepare.template_stage.TemplateStage` that families use."""

    def identity(self) -> dict[str, object]:
        """Return everything that templates depend on."""

    def find(self, name: str, features: Mapping[str, np.ndarray], index: int = 0) -> Templates:
        """Find the templates of a chain; `index` is its place among those of the target."""


class CacheAccess(Protocol):
    """The part of `foldcli.pipeline.targets.settings.FeatureSettings` that families use."""

    @property
    def cache(self) -> Path:
        """The folder."""

    @property
    def overwrite(self) -> bool:
        """True to compute again what the cache has."""

    @property
    def verify(self) -> bool:
        """True to compare what it has with checksums."""


class FeatureServices(Protocol):
    """The feature stage of a run (`foldcli.pipeline.prepare.feature_stage`), which several threads use."""

    @property
    def chain_store(self) -> ChainAlignments | None:
        """The alignments of searched chains; None if there are no searches."""

    @property
    def templates(self) -> TemplateFinder | None:
        """The search for templates; None to use no templates."""

    @property
    def settings(self) -> CacheAccess:
        """The folder of the feature cache, and its use."""

    @property
    def template_lock(self) -> AbstractContextManager[Any]:
        """The lock to hold during a search for templates."""

    def load(self, target: TargetRun, with_templates: bool) -> tuple[dict[str, np.ndarray], Templates | None]:
        """Return the AlphaFold2 features of a target, and the templates of a single chain."""

    def templates_of_chain(self, name: str, sequence: str, templates: Sequence[JobTemplate]) -> Templates:
        """Return the templates that a job gives to a chain.

        Raises:
            InputError: a template cannot be read; names its place in the file.
        """


class DeviceMemory(Protocol):
    """The part of `foldcli.pipeline.network.device.NetworkMemory` that families use."""

    @property
    def device(self) -> str:
        """A torch device."""

    @property
    def ranks(self) -> int:
        """The number of devices that predict a target together."""

    @property
    def strict(self) -> bool:
        """True if a target that is not expected to fit is refused with OutOfMemory."""

    @property
    def is_planned(self) -> bool:
        """True if passes are split into chunks that fit: on a GPU."""

    def available_bytes(self) -> int:
        """Return the bytes available on the GPU now."""

    def device_name(self) -> str:
        """Return the name of the GPU, or "CPU"."""

    def describe_shortage(self, message: str) -> str:
        """Describe a lack of memory, given the message of `torch.OutOfMemoryError`."""


@dataclass(frozen=True, eq=False)
class NetworkJob(Generic[SampleT, SettingsT]):
    """A job that is ready for its network.

    Args:
        sample: its input; see `Family.sample`.
        progress: called with the number of finished steps and of all steps; see `JobSettings.num_passes`.
    """

    name: str
    job: Job
    sample: SampleT
    settings: SettingsT
    progress: Progress


# a job of any family
AnyJob: TypeAlias = NetworkJob[Any, Any]


@dataclass(frozen=True)
class PartsPlan:
    """The parts in which several processes run a job together.

    Args:
        parts: sizes of the parts, and choices; smaller numbers need less memory.
        fits: whether the job may be tried.
    """

    parts: list[int]
    text: str = ""
    fits: bool = True


class Network(Protocol):
    """A loaded network."""

    def start(self, work: AnyJob, memory: DeviceMemory) -> Callable[[], tuple["Prediction", ...]]:
        """Start a job within the available memory.

        Returns:
            A function that waits for the models and returns them, one for each tag of the job; any thread may
            call it, once.

        Raises:
            OutOfMemory: the target does not fit into memory.
        """

    def warm_up(self, residues: int) -> None:
        """Prepare the GPU by a pass on something made up of a size."""


class SharedNetwork(Network, Protocol):
    """A loaded network that several processes, called ranks, can run together."""

    def shared(self, group: Any, predict_together: Callable[..., Any]) -> "SharedNetwork":
        """Return the network as one of the ranks of a group (`RankGroup`).

        Args:
            group: the ranks.
            predict_together: called by `start` with the network and a job, for the result of `predict`.
        """

    def arrays(self, sample: Any) -> dict[str, np.ndarray]:
        """Return the arrays of a job's sample, or the sample if it is one that a rank has received."""

    def plan_parts(self, work: AnyJob, memory: DeviceMemory) -> PartsPlan:
        """Return the parts in which a job fits into the memory of this rank."""

    def predict(self, work: AnyJob, parts: Sequence[int]) -> Any:
        """Run a job in this thread; its sample may be the arrays that a rank has received."""
