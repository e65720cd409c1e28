"""Launch configurations by query length.

The table of this machine, if it has been tuned, takes precedence over that of the GPU model, and that over
the default table.
"""

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path

from cuda.alignment.gapless.layout import LaneLayout

DEFAULT = "default"


@dataclass(frozen=True)
class Launch:
    """A launch configuration.

    Args:
        layout: lanes and columns.
        threads: threads per block.
        blocks: blocks that must fit on a multiprocessor at once; limits a thread's registers.
    """

    layout: LaneLayout
    threads: int
    blocks: int


def local_table_path(device: str, kernels: Path) -> Path:
    """Return the path of this machine's own launch table for a GPU.

    Args:
        device: the GPU's name as reported by the driver, such as "NVIDIA H200".
        kernels: folder of compiled kernels.
    """
    return kernels / "tuning" / _file_name(device)


def _file_name(device: str) -> str:
    return f"{device.lower().replace(' ', '_')}.json"


@cache
def launch_table(device: str = DEFAULT, kernels: Path | None = None) -> dict[int, Launch]:
    """Read the launches of bounds, keyed by the longest query length that each supports, in ascending order.

    Args:
        device: the GPU's name as reported by the driver, such as "NVIDIA H200".
        kernels: folder of compiled kernels, which may contain this machine's own table.
    """
    folder = resources.files("cuda.alignment.gapless") / "tuning"
    path = local_table_path(device, kernels) if kernels is not None else None
    if path is None or not path.is_file():
        path = folder / _file_name(device)
    if not path.is_file():
        path = folder / _file_name(DEFAULT)
    return {
        row["longest_query"]: Launch(
            LaneLayout(row["lanes"], row["columns"], 1), row["threads"], row["blocks"]
        )
        for row in json.loads(path.read_text())["bounds"]
    }


_LIST_LAYOUTS = (4, 32), (4, 64), (4, 96), (4, 128), (8, 96), (8, 128), (16, 96), (16, 128)
"""Lanes, and columns per lane."""


@cache
def choose_launch(
    query_length: int, device: str, shared_bytes: int, kernels: Path | None = None
) -> Launch | None:
    """Return the launch for a query; None if the query fits in no tile that fits in shared memory."""
    for longest, launch in launch_table(device, kernels).items():
        if query_length <= longest and launch.layout.table_bytes <= shared_bytes:
            return launch
    return None


@cache
def max_query_length(device: str, shared_bytes: int, kernels: Path | None = None) -> int:
    """Return the length of the longest query for which `choose_launch` finds a launch; 0 if there is none."""
    fitting = [
        longest
        for longest, launch in launch_table(device, kernels).items()
        if launch.layout.table_bytes <= shared_bytes
    ]
    return max(fitting, default=0)


def border_launch(launch: Launch) -> Launch:
    """Return the launch for tiles of a longer query, whose kernel needs more registers per thread."""
    return replace(launch, threads=192, blocks=2)


def choose_list_launch(query_length: int, shared_bytes: int) -> Launch | None:
    """Return the launch for listed targets: one of few, as each has its kernel.

    Returns:
        None if the query is too long for shared memory, or has more than 2,048 residues.
    """
    for lanes, columns in _LIST_LAYOUTS:
        launch = Launch(LaneLayout(lanes, columns), threads=256 if columns <= 96 else 192, blocks=2)
        if query_length <= launch.layout.tile and launch.layout.table_bytes <= shared_bytes:
            return launch
    return None
