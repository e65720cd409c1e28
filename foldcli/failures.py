"""Work through targets so that one failure never stops the others and never looks like success."""

import json
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from foldcli.errors import ExitCode, SomeTargetsFailed, describe, exit_code_of
from foldcli.logs import logger
from msa.atomic import atomic_write

FAILURES = "failures.jsonl"
T = TypeVar("T")


class Failures:
    """The targets of one run that failed; written to OUT/failures.jsonl when the run ends.

    Args:
        folder: where failures.jsonl goes.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FAILURES
        self._failed: list[tuple[str, BaseException]] = []

    def add(self, name: str, error: Exception) -> None:
        """Take down that `name` failed, and say so."""
        if exit_code_of(error) is ExitCode.UNEXPECTED:
            logger.debug("%s", "".join(traceback.format_exception(error)))
        logger.error("%s: failed: %s", name, describe(error))
        self._failed.append((name, error))

    def run(self, items: Iterable[tuple[str, T]], work: Callable[[str, T], None]) -> None:
        """Call `work(name, item)` for each; an exception is taken down, an interrupt ends the run."""
        for name, item in items:
            try:
                work(name, item)
            except Exception as error:
                self.add(name, error)

    def finish(self, total: int) -> None:
        """Write failures.jsonl, or remove an old one when all went well.

        Args:
            total: targets of this run.

        Raises:
            SomeTargetsFailed: some of several failed.
            Exception: the one target's own error, if there was only one.
        """
        if not self._failed:
            self._path.unlink(missing_ok=True)
            return
        with atomic_write(self._path) as stream:
            for name, error in self._failed:
                entry = {
                    "target": name,
                    "error": describe(error),
                    "type": type(error).__name__,
                    "exit_code": int(exit_code_of(error)),
                }
                stream.write(json.dumps(entry) + "\n")
        if total == 1:
            raise self._failed[0][1]
        raise SomeTargetsFailed(f"{len(self._failed)} of {total} targets failed; see {self._path}")
