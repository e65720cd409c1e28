"""Which launch a query gets: as measured on this machine, else on such a GPU, else what does for any."""

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

from cuda.alignment.gapless.layout import Layout

DEFAULT = "default"
Filter = Literal["exact", "bounds"]


@dataclass(frozen=True)
class Launch:
    """How a query is computed.

    Args:
        layout: lanes and columns.
        threads: of a block.
        blocks: that a multiprocessor is to hold at once; bounds a thread's registers.
    """

    layout: Layout
    threads: int
    blocks: int


def own_table(device: str, kernels: Path) -> Path:
    """Where this machine's own table for a GPU is looked for.

    Args:
        device: the GPU's name as the driver gives it, such as "NVIDIA H200".
        kernels: folder of compiled kernels.
    """
    return kernels / "tuning" / f"{_name(device)}.json"


def _name(device: str) -> str:
    return device.lower().replace(" ", "_")


@cache
def launch_table(
    device: str = DEFAULT, kernel: Filter = "exact", kernels: Path | None = None
) -> dict[int, Launch]:
    """Launches by the longest query that each is for, ascending.

    Args:
        device: the GPU's name as the driver gives it, such as "NVIDIA H200".
        kernel: exact scores, from entries of two bytes, or bounds, from entries of one.
        kernels: folder of compiled kernels, in which there may be a table of this machine's own.
    """
    folder = resources.files("cuda.alignment.gapless") / "tuning"
    path = own_table(device, kernels) if kernels is not None else None
    if path is None or not path.is_file():
        path = folder / f"{_name(device)}.json"
    if not path.is_file():
        path = folder / f"{DEFAULT}.json"
    entry_bytes = 1 if kernel == "bounds" else 2
    return {
        row["longest_query"]: Launch(
            Layout(row["lanes"], row["columns"], entry_bytes), row["threads"], row["blocks"]
        )
        for row in json.loads(path.read_text())[kernel]
    }


@cache
def choose_launch(
    query_length: int, device: str, shared_bytes: int, kernel: Filter = "exact", kernels: Path | None = None
) -> Launch | None:
    """The launch for a query; None if no tile holds it, or none that fits in so much shared memory."""
    for longest, launch in launch_table(device, kernel, kernels).items():
        if query_length <= longest and launch.layout.table_bytes <= shared_bytes:
            return launch
    return None


@cache
def widest(device: str, shared_bytes: int, kernel: Filter = "exact", kernels: Path | None = None) -> int:
    """Columns of the longest query that `choose_launch` has a launch for; 0 if there is none at all."""
    fitting = [
        longest
        for longest, launch in launch_table(device, kernel, kernels).items()
        if launch.layout.table_bytes <= shared_bytes
    ]
    return max(fitting, default=0)


def bordered(launch: Launch) -> Launch:
    """The launch of a tile of a longer query, which needs some more registers."""
    return replace(launch, threads=192, blocks=2)


def list_launch(query_length: int, shared_bytes: int) -> Launch | None:
    """The launch that scores listed targets exactly: so few that many lanes share each, on every GPU.

    Returns:
        None if the query is too long for shared memory or for a warp with 64 columns a lane.
    """
    for lanes, most in ((16, 32), (32, 64)):
        columns = -(-query_length // (16 * lanes)) * 16
        launch = Launch(Layout(lanes, columns), threads=64, blocks=8) if columns <= most else None
        if launch is not None and launch.layout.table_bytes <= shared_bytes:
            return launch
    return None
