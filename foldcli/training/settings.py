"""The configuration of a training run, by the family of its network."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from features.training.crops import CropWeights
from model.alphafold3.config import DEEPMIND
from model.dataclass_mapping import flat_values
from model.errors import ConfigError
from model.training.alphafold3.task import AllAtomTrainingSettings
from model.training.runtime.settings import (
    AT_LEAST_ONE,
    BELOW_ONE,
    NOT_NEGATIVE,
    POSITIVE,
    TrainingSettings,
    check_numbers,
    check_seed,
    check_weights,
    read_content,
    settings_of,
)

_FAMILY = "family"
_NUMBERS = {
    AT_LEAST_ONE: (
        "batch", "crop", "steps", "decay_every", "passes.copies", "passes.rollout_steps",
        "passes.most_cycles", "validate_every", "validation_samples",
    ),
    NOT_NEGATIVE: ("checkpoint_every",),
    POSITIVE: ("learning_rate", "decay_factor", "clip_norm", "epsilon", "network.diffusion.sigma_data"),
    BELOW_ONE: ("beta1", "beta2", "ema_decay"),
}  # fmt: skip
# channels that heads share
_DIVIDED = (
    ("network.single_channels", "network.single_heads"),
    ("network.input_atoms.channels", "network.input_atoms.heads"),
    ("network.diffusion.channels", "network.diffusion.heads"),
    ("network.diffusion.atoms.channels", "network.diffusion.atoms.heads"),
)


@dataclass(frozen=True)
class AllAtomRunSettings(AllAtomTrainingSettings):
    """Settings of a training run of an all-atom network from folders of complexes.

    `data` is a folder of `foldcli training-data --molecules`, and `initial_network` "openfold3" for the
    parameters that `foldcli params` has installed, or a folder or file as for `--params` of predictions
    (DeepMind's with the family alphafold3).

    Args:
        crop: largest number of tokens of a sample.
        crops: shares of the kinds of crops.
        validation: folder of held-out complexes, as `data`, or empty.
    """

    crop: int = 384
    crops: CropWeights = field(default_factory=CropWeights)
    validation: str = ""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_numbers(self, _NUMBERS)
        values = flat_values(self)
        for channels, heads in _DIVIDED:
            if values[channels] % values[heads]:
                raise ConfigError(f"{channels}: must be a multiple of {heads}")
        for name in "crops", "losses":
            check_weights(getattr(self, name), name)
        if self.network.name in ("", "..") or Path(self.network.name).name != self.network.name:
            raise ConfigError(f"network.name: not a file name: {self.network.name!r}")


SETTINGS_OF_FAMILY: dict[str, type[TrainingSettings] | type[AllAtomRunSettings]] = {
    "alphafold2": TrainingSettings,
    "openfold3": AllAtomRunSettings,
    "alphafold3": AllAtomRunSettings,
}
# values of `network` that differ from the dataclass's own
_NETWORKS = {"alphafold3": asdict(DEEPMIND)}


def _merge(defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return defaults with values replaced by those given, at all depths."""
    both = {key: x for key, x in defaults.items() if isinstance(x, dict) and isinstance(given.get(key), dict)}
    return defaults | given | {key: _merge(x, given[key]) for key, x in both.items()}


def read_run_settings(path: Path) -> TrainingSettings | AllAtomRunSettings:
    """Read a YAML file; its `network.family` is AlphaFold2 by default.

    Raises:
        ConfigError: it is not YAML, or has an unknown key or a value of the wrong type.
    """
    content: Any = read_content(path)
    family = "alphafold2"
    if isinstance(content, dict) and isinstance(network := content.get("network"), dict):
        family = network.get(_FAMILY, family)
        given = {key: value for key, value in network.items() if key != _FAMILY}
        content["network"] = _merge(_NETWORKS.get(str(family), {}), given)
    if family not in list(SETTINGS_OF_FAMILY):
        expected = ", ".join(SETTINGS_OF_FAMILY)
        raise ConfigError(f"{path}: network.family: expected one of {expected}, got {family!r}")
    return settings_of(SETTINGS_OF_FAMILY[family], content, path)
