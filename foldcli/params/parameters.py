"""Parameter files that predictions find: in a folder, in the cache, or the untrained demo network."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from foldcli.paths import cache_dir
from msa.errors import MissingError

DEMO = "demo"
UNTRAINED = "UNTRAINED demonstration network: coordinates and confidences mean nothing."
ModelType = Literal["auto", "alphafold2_ptm", "alphafold2"]
# suffixes of network names by --model-type, in order of preference
_SUFFIXES = {"auto": ("_ptm", ""), "alphafold2_ptm": ("_ptm",), "alphafold2": ("",)}


@dataclass(frozen=True)
class ParameterSource:
    """The parameter file of one model.

    Args:
        number: model number, 1 to 5.
        config_name: network name such as "model_3_ptm", or "demo".
        file: DeepMind's npz file, or None for the demo network.
    """

    number: int
    config_name: str
    file: Path | None

    @property
    def label(self) -> str:
        """The model's name in file names, as in ColabFold: alphafold2_ptm_model_3 or alphafold2_model_3."""
        has_ptm = self.file is None or self.config_name.endswith("_ptm")
        return f"{'alphafold2_ptm' if has_ptm else 'alphafold2'}_model_{self.number}"

    @property
    def untrained(self) -> bool:
        """True for the demo network."""
        return self.file is None


def find_parameters(
    params: str | None, numbers: tuple[int, ...], model_type: ModelType
) -> list[ParameterSource]:
    """Return the parameters to use for each model number.

    Args:
        params: a folder, "demo", or None for `default_folder()`.
        numbers: requested model numbers, in order.
        model_type: "auto" prefers params_model_N_ptm.npz to params_model_N.npz.

    Raises:
        MissingError: a file is missing; the remedy says how to get DeepMind's.
    """
    if params == DEMO:
        return [ParameterSource(number, DEMO, None) for number in numbers]
    folder = Path(params) if params is not None else default_folder()
    if not folder.is_dir():
        raise MissingError(f"no network parameters: {folder} is not a folder", download_instructions(folder))
    return [_find(folder, number, _SUFFIXES[model_type]) for number in numbers]


def default_folder() -> Path:
    """Return `$FOLDCLI_PARAMS`, for example a folder shared by a site, else `$FOLDCLI_CACHE/params`."""
    own = os.environ.get("FOLDCLI_PARAMS")
    return Path(own) if own else cache_dir() / "params"


def installed_parameters(folder: Path) -> list[ParameterSource]:
    """Return the parameter files that predictions would find in a folder, those with a PAE head first."""
    names = [(number, f"model_{number}{suffix}") for suffix in ("_ptm", "") for number in range(1, 6)]
    files = [(number, name, _find_file(folder, name)) for number, name in names]
    return [ParameterSource(number, name, file) for number, name, file in files if file is not None]


def download_instructions(folder: Path) -> str:
    """Return instructions for a user whose folder has no parameters."""
    return (
        "Get DeepMind's parameters (CC BY 4.0, a download of 5.3 GB) with\n"
        f"  foldcli params fetch --dest {folder}\n"
        f"To try foldcli without them: --params {DEMO} (an untrained network; its structures mean nothing)."
    )


def _find(folder: Path, number: int, suffixes: tuple[str, ...]) -> ParameterSource:
    names = [f"model_{number}{suffix}" for suffix in suffixes]
    for name in names:
        if file := _find_file(folder, name):
            return ParameterSource(number, name, file)
    expected = " or ".join(f"params_{name}.npz" for name in names)
    raise MissingError(f"no network parameters: {folder} has no {expected}", download_instructions(folder))


def _find_file(folder: Path, name: str) -> Path | None:
    """Return a network's file in a folder or in its subfolder `params`, where other programs store it."""
    files = (parent / f"params_{name}.npz" for parent in (folder, folder / "params"))
    return next((file for file in files if file.is_file()), None)
