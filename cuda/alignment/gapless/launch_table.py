"""Launch configurations by query length.

The table of this machine, if it has been tuned, takes precedence over that of the GPU model, and that over
the default table.
"""

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

from cuda.alignment.gapless.layout import Layout

DEFAULT = "default"
ScoreKind = Literal["exact", "bounds"]


@dataclass(frozen=True)
class Launch:
    """A launch configuration.

    Args:
        layout: lanes and columns.
        threads: threads per block.
        blocks: blocks that must fit on a multiprocessor at once; limits a thread's registers.
    """

    layout: Layout
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
def launch_table(
    device: str = DEFAULT, kind: ScoreKind = "exact", kernels: Path | None = None
) -> dict[int, Launch]:
    """Read the launches, keyed by the longest query length that each supports, in ascending order.

    Args:
        device: the GPU's name as reported by the driver, such as "NVIDIA H200".
        kind: exact scores (two-byte table entries) or bounds (one-byte entries).
        kernels: folder of compiled kernels, which may contain this machine's own table.
    """
    folder = resources.files("cuda.alignment.gapless") / "tuning"
    path = local_table_path(device, kernels) if kernels is not None else None
    if path is None or not path.is_file():
        path = folder / _file_name(device)
    if not path.is_file():
        path = folder / _file_name(DEFAULT)
    entry_bytes = 1 if kind == "bounds" else 2
    return {
        row["longest_query"]: Launch(
            Layout(row["lanes"], row["columns"], entry_bytes), row["threads"], row["blocks"]
        )
        for row in json.loads(path.read_text())[kind]
    }


@cache
def choose_launch(
    query_length: int, device: str, shared_bytes: int, kind: ScoreKind = "exact", kernels: Path | None = None
) -> Launch | None:
    """Return the launch for a query; None if the query fits in no tile that fits in shared memory."""
    for longest, launch in launch_table(device, kind, kernels).items():
        if query_length <= longest and launch.layout.table_bytes <= shared_bytes:
            return launch
    return None


@cache
def max_query_length(
    device: str, shared_bytes: int, kind: ScoreKind = "exact", kernels: Path | None = None
) -> int:
    """Return the length of the longest query for which `choose_launch` finds a launch; 0 if there is none."""
    fitting = [
        longest
        for longest, launch in launch_table(device, kind, kernels).items()
        if launch.layout.table_bytes <= shared_bytes
    ]
    return max(fitting, default=0)


def border_launch(launch: Launch) -> Launch:
    """Return the launch for tiles of a longer query, whose kernel needs more registers per thread."""
    return replace(launch, threads=192, blocks=2)


def choose_list_launch(query_length: int, shared_bytes: int) -> Launch | None:
    """Return the launch for listed targets; many lanes share each, because there are few of them.

    Returns:
        None if the query is too long for shared memory, or for a warp with 64 columns per lane.
    """
    for lanes, max_columns in ((16, 32), (32, 64)):
        columns = -(-query_length // (16 * lanes)) * 16
        launch = Launch(Layout(lanes, columns), threads=64, blocks=8) if columns <= max_columns else None
        if launch is not None and launch.layout.table_bytes <= shared_bytes:
            return launch
    return None
