"""Work through targets so that one failure never stops the others and never looks like success."""

import contextlib
import json
import traceback
from collections.abc import Callable, Iterable, Sized
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from foldcli.errors import SomeTargetsFailed, TargetFailed, describe, exit_code_of, is_bug
from foldcli.inputs.shard import Shard
from foldcli.logs import logger
from foldcli.progress import progress_bar
from msa.io.atomic import atomic_write

T = TypeVar("T")


class Failures:
    """The targets of one run that failed; written to a file when the run ends.

    Args:
        folder: where it goes: failures.jsonl, or failures.I-of-N.jsonl for a shard, so that array jobs that
            share the folder do not write over each other's.
        shard: the run's part of the targets.
    """

    def __init__(self, folder: Path, shard: Shard) -> None:
        part = f".{shard.index}-of-{shard.count}" if shard.count > 1 else ""
        self.path = folder / f"failures{part}.jsonl"
        self.failed: list[tuple[str, BaseException]] = []
        self._tried = 0

    def add(self, name: str, error: Exception) -> None:
        """Take down that `name`, which was not tried by `run`, failed, and say so."""
        self._tried += 1
        self._add(name, error)

    def _add(self, name: str, error: Exception) -> None:
        if is_bug(error):
            logger.error("%s", "".join(traceback.format_exception(error)).rstrip())
        logger.error("%s", _with_name(name, describe(error)))
        # its traceback holds what the target's functions worked on, as large as that may be
        self.failed.append((name, error.with_traceback(None)))

    def run(self, items: Iterable[tuple[str, T]], work: Callable[[str, T], "Future[None] | None"]) -> None:
        """Call `work(name, item)` for each; an exception is taken down, an interrupt ends the run.

        What it gives back is waited for after the last: a part that goes on beside the next items. Of several
        items whose number is known a bar is drawn.
        """
        total = len(items) if isinstance(items, Sized) else 0
        rest: list[tuple[str, Future[None]]] = []
        with (
            progress_bar("targets", "target")
            if total > 1
            else contextlib.nullcontext(_tell_nobody) as progress
        ):
            progress(0, total)
            for done, (name, item) in enumerate(items, start=1):
                self._tried += 1
                try:
                    if (later := work(name, item)) is not None:
                        rest.append((name, later))
                except Exception as error:
                    self._add(name, error)
                rest = self._settle(rest, wait=done == total)
                progress(done, total)
            self._settle(rest, wait=True)

    def _settle(self, rest: "list[tuple[str, Future[None]]]", wait: bool) -> "list[tuple[str, Future[None]]]":
        """Take down what failed of what goes on beside; returns what has not ended yet."""
        left = []
        for name, later in rest:
            if not wait and not later.done():
                left.append((name, later))
                continue
            try:
                later.result()
            except Exception as error:
                self._add(name, error)
        return left

    def finish(self) -> None:
        """Write the failures, or remove an earlier run's when all went well.

        Raises:
            SomeTargetsFailed: some of several failed.
            TargetFailed: there was only one target; its exit code is that of its error.
        """
        if not self.failed:
            self.path.unlink(missing_ok=True)
            return
        self._write()
        self.judge()

    def _write(self) -> None:
        with atomic_write(self.path) as stream:
            for name, error in self.failed:
                entry = {
                    "target": name,
                    "error": describe(error),
                    "type": type(error).__name__,
                    "exit_code": int(exit_code_of(error)),
                }
                stream.write(json.dumps(entry) + "\n")

    def judge(self, written: bool = True) -> None:
        """Raise what `finish` raises, without writing anything.

        Args:
            written: whether there is a file of them to look into.
        """
        if not self.failed:
            return
        if self._tried == 1:
            raise TargetFailed(exit_code_of(self.failed[0][1]))
        where = f"; see {self.path}" if written else ""
        raise SomeTargetsFailed(f"{len(self.failed)} of {self._tried} targets failed{where}")


def _tell_nobody(done: int, total: int | None) -> None:
    pass


def _with_name(name: str, reason: str) -> str:
    # an error about a file begins with the file's name, which for a target given as a file is the target's
    return reason if reason.startswith(name) else f"{name}: {reason}"
