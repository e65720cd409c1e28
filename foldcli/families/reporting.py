"""The hooks of a family that only doctor, params, warmup, dry runs and ColabFold's config.json call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from foldcli.families.protocols import DeviceMemory
from foldcli.families.settings import SettingsT, Source
from model.alphafold2.modules.config import ModelConfig

TargetT = TypeVar("TargetT")
SourceT = TypeVar("SourceT", bound=Source)


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


class Reporting(Generic[TargetT, SourceT, SettingsT]):
    """Facts about parameters, and about a run before it starts; all hooks have a default.

    Attributes:
        fetchable: values of `params fetch --which` for its parameters, and the networks in words.
    """

    fetchable: ClassVar[Mapping[str, str]] = MappingProxyType({})

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

    def kernel_networks(self, params: str | None, numbers: Sequence[int]) -> list[ModelConfig]:
        """Return the networks whose kernels `warmup` compiles; empty if it compiles none."""
        return []

    def colabfold_config(self, settings: SettingsT) -> dict[str, Any]:
        """Return num_recycles, recycle_early_stop_tolerance, max_seq and max_extra_seq of config.json."""
        return {}

    def plan_heading(
        self, sources: Sequence[SourceT], settings: SettingsT, memory: DeviceMemory
    ) -> PlanHeading:
        """Return the heading of the plan about device and networks, for --dry-run."""
        labels = [source.label for source in sources]
        line = f"network: {memory.device_name()}; {', '.join(labels)}"
        return PlanHeading(line, "network", {"device": memory.device_name(), "models": labels})

    def estimate(
        self,
        size: int,
        target: TargetT,
        sources: Sequence[SourceT],
        loaded: Sequence[SourceT],
        settings: SettingsT,
        memory: DeviceMemory,
    ) -> Estimate | None:
        """Return the estimated cost of a target for --dry-run; None if there is nothing to estimate.

        Args:
            size: size of the target.
            target: the target.
            sources: the models that predict it.
            loaded: all models of the run.
            settings: settings of the run.
            memory: the device.
        """
        return None
