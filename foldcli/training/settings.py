"""The configuration of a training run; the only place that tells the families of networks apart."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from features.training.crops import CropWeights
from model.alphafold3.config import OPENBIND, AlphaFold3Config
from model.errors import ConfigError
from model.training.alphafold3.trainer import AllAtomSettings
from model.training.runtime.settings import TrainingSettings, read_content, settings_of

_FAMILY = "family"


@dataclass(frozen=True)
class AllAtomRunSettings(AllAtomSettings):
    """Settings of a training run of an all-atom network.

    Args:
        network: the shape of the network.
        data: folder of `foldcli training-data --molecules`, or empty.
        steps: number of steps.
        crop: largest number of tokens of a sample.
        crops: shares of the kinds of crops.
        checkpoint_every: steps between checkpoints, 0 for one at the end.
    """

    network: AlphaFold3Config = OPENBIND
    data: str = ""
    steps: int = 100_000
    crop: int = 384
    crops: CropWeights = field(default_factory=CropWeights)
    checkpoint_every: int = 1000

    def __post_init__(self) -> None:
        for name in ("batch", "crop", "steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: at least 1 is needed")
        crops = vars(self.crops).values()
        if min(crops) < 0 or not sum(crops) > 0:
            raise ConfigError("crops: shares must not be negative, and one must be positive")

    @property
    def total_steps(self) -> int:
        """Number of steps of the run."""
        return self.steps


FAMILIES: dict[str, type[TrainingSettings] | type[AllAtomRunSettings]] = {
    "alphafold2": TrainingSettings,
    "openfold3": AllAtomRunSettings,
}


def read_run_settings(path: Path) -> TrainingSettings | AllAtomRunSettings:
    """Read a YAML file; its `network.family` is AlphaFold2 by default.

    Raises:
        ConfigError: it is not YAML, or has an unknown key or a value of the wrong type.
    """
    content: Any = read_content(path)
    family = "alphafold2"
    if isinstance(content, dict) and isinstance(network := content.get("network"), dict):
        family = network.get(_FAMILY, family)
        content["network"] = {key: value for key, value in network.items() if key != _FAMILY}
    if family not in FAMILIES:
        expected = ", ".join(FAMILIES)
        raise ConfigError(f"{path}: network.family: expected one of {expected}, got {family!r}")
    return settings_of(FAMILIES[family], content, path)
