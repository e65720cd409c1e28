"""One target on its way: what it is known by on the disk, and what it has cost."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foldcli.logs import logger
from foldcli.outputs.layout import TargetFiles
from foldcli.pipeline.timing import Stopwatch


@dataclass
class TargetRun:
    """One target on its way: where its files go and what its steps have cost."""

    files: TargetFiles
    watch: Stopwatch
    facts: dict[str, Any]
    warnings: list[str]

    @classmethod
    def begin(cls, files: TargetFiles) -> "TargetRun":
        return cls(files, Stopwatch(), {}, [])

    @property
    def name(self) -> str:
        return self.files.name

    @property
    def folder(self) -> Path:
        """The folder that holds this target's files alone."""
        return self.files.own

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the block as one stage of this target."""
        logger.debug("%s: %s", self.name, name)
        with self.watch.stage(name):
            yield

    @property
    def work(self) -> Path:
        """What is half-way; gone once the target is finished."""
        return self.files.work

    def clear(self) -> None:
        """Forget what was finished or half-way, so that all is done again."""
        self.unfinish()
        shutil.rmtree(self.work, ignore_errors=True)

    def unfinish(self) -> None:
        """Before files are replaced: from now on the target does not look finished."""
        for kind in ("done", "finished_mark"):
            self.files.path(kind).unlink(missing_ok=True)
