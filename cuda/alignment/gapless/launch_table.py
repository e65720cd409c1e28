"""Which launch a query gets, as measured per GPU; an unknown GPU takes the default."""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

from cuda.alignment.gapless.layout import Layout

DEFAULT = "default"


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


@cache
def launch_table(device: str = DEFAULT) -> dict[int, Launch]:
    """Launches by the longest query that each is for, ascending.

    Args:
        device: the GPU's name as the driver gives it, such as "NVIDIA H200".
    """
    folder = resources.files("cuda.alignment.gapless") / "tuning"
    path = folder / f"{device.lower().replace(' ', '_')}.json"
    if not path.is_file():
        path = folder / f"{DEFAULT}.json"
    return {
        row["longest_query"]: Launch(Layout(row["lanes"], row["columns"]), row["threads"], row["blocks"])
        for row in json.loads(path.read_text())["launches"]
    }


def choose_launch(query_length: int, device: str, shared_bytes: int) -> Launch | None:
    """The launch for a query; None if no tile holds it, or none that fits in so much shared memory."""
    for longest, launch in launch_table(device).items():
        if query_length <= longest and launch.layout.table_bytes <= shared_bytes:
            return launch
    return None
