"""Where a run's results go, and which of them are made anew."""

from dataclasses import dataclass
from pathlib import Path

from foldcli.inputs.shard import Shard
from foldcli.outputs.layout import LayoutName, TargetFiles


@dataclass(frozen=True)
class Place:
    """Where the results of `fold` or `predict` go.

    Args:
        out: the run's folder, which need not be there.
        layout: of its files.
        shard: the run's part of the targets.
        overwrite: finished ones are done again.
    """

    out: Path
    layout: LayoutName
    shard: Shard
    overwrite: bool

    def files(self, name: str) -> TargetFiles:
        """Where a target's files lie."""
        return TargetFiles(name, self.out, self.layout)
