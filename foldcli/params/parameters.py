"""Where the network's parameters come from: a folder, the cache, or the untrained demo network."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from foldcli.paths import cache_dir
from msa.errors import MissingError

DEMO = "demo"
UNTRAINED = "UNTRAINED demonstration network: coordinates and confidences mean nothing."
ModelType = Literal["auto", "alphafold2_ptm", "alphafold2"]
# by --model-type, what a network's name ends with, the first that is there being taken
_SUFFIXES = {"auto": ("_ptm", ""), "alphafold2_ptm": ("_ptm",), "alphafold2": ("",)}


@dataclass(frozen=True)
class ParameterSource:
    """The parameter file of one model.

    Args:
        number: 1 to 5.
        config_name: such as "model_3_ptm", or "demo".
        file: DeepMind's npz, or None for the demo network.
    """

    number: int
    config_name: str
    file: Path | None

    @property
    def label(self) -> str:
        """As ColabFold names it in files: alphafold2_ptm_model_3 or alphafold2_model_3."""
        kind = (
            "alphafold2"
            if self.file is not None and not self.config_name.endswith("_ptm")
            else "alphafold2_ptm"
        )
        return f"{kind}_model_{self.number}"

    @property
    def untrained(self) -> bool:
        return self.file is None


def find_parameters(
    given: str | None, numbers: tuple[int, ...], model_type: ModelType
) -> list[ParameterSource]:
    """The parameters to use for each model number.

    Args:
        given: a folder, "demo", or None for `default_folder()`.
        numbers: models asked for, in order.
        model_type: "auto" takes params_model_N_ptm.npz where it is there, else params_model_N.npz.

    Raises:
        MissingError: a file is not there; the remedy tells how to get DeepMind's.
    """
    if given == DEMO:
        return [ParameterSource(number, DEMO, None) for number in numbers]
    folder = Path(given) if given is not None else default_folder()
    if not folder.is_dir():
        raise MissingError(f"no network parameters: {folder} is not a folder", how_to_get(folder))
    return [_find(folder, number, _SUFFIXES[model_type]) for number in numbers]


def default_folder() -> Path:
    """`$FOLDCLI_PARAMS`, such as a folder that a site shares, else `$FOLDCLI_CACHE/params`."""
    own = os.environ.get("FOLDCLI_PARAMS")
    return Path(own) if own else cache_dir() / "params"


def installed(folder: Path) -> list[ParameterSource]:
    """The parameter files that predictions would find in a folder, those with a PAE head first."""
    names = [(number, f"model_{number}{suffix}") for suffix in ("_ptm", "") for number in range(1, 6)]
    files = [(number, name, _file(folder, name)) for number, name in names]
    return [ParameterSource(number, name, file) for number, name, file in files if file is not None]


def check_parameters(sources: list[ParameterSource]) -> list[dict[str, str]]:
    """Check every file before a run begins, by its keys and shapes.

    Returns:
        Per source, what tells its parameters from others: part of a target's fingerprint.

    Raises:
        ParametersError: a file that cannot be used; names it and what is wrong.
    """
    from model.config import model_config
    from model.parameters import check_npz

    def content(source: ParameterSource) -> str:
        return DEMO if source.file is None else check_npz(source.file, model_config(source.config_name))

    return [
        {"label": source.label, "network": source.config_name, "content": content(source)}
        for source in sources
    ]


def how_to_get(folder: Path) -> str:
    """The lines that tell a user without parameters what to do."""
    return (
        "DeepMind's parameters (CC BY 4.0, a download of 5.3 GB) come with\n"
        f"  foldcli params fetch --dest {folder}\n"
        f"To try the path without them: --params {DEMO} (an untrained network, its structures mean nothing)."
    )


def _find(folder: Path, number: int, suffixes: tuple[str, ...]) -> ParameterSource:
    names = [f"model_{number}{suffix}" for suffix in suffixes]
    for name in names:
        if file := _file(folder, name):
            return ParameterSource(number, name, file)
    wanted = " or ".join(f"params_{name}.npz" for name in names)
    raise MissingError(f"no network parameters: {folder} has no {wanted}", how_to_get(folder))


def _file(folder: Path, name: str) -> Path | None:
    """A network's file in a folder, or in its `params`, where other programs put it."""
    files = (place / f"params_{name}.npz" for place in (folder, folder / "params"))
    return next((file for file in files if file.is_file()), None)
