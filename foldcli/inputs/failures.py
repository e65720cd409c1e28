"""Failed targets of a run: one failure never stops the other targets and never looks like success."""

import contextlib
import json
from collections.abc import Callable, Iterable, Sized
from pathlib import Path
from typing import TypeVar

from foldcli.errors import SomeTargetsFailed, TargetFailed, describe, ends_run, exit_code_of, log_bug
from foldcli.inputs.shard import Shard
from foldcli.logs import logger
from foldcli.progress import progress_bar
from msa.base.atomic import atomic_write
from msa.base.temporary_names import remove_abandoned_files

T = TypeVar("T")


class Failures:
    """The failed targets of a run, written to a file when the run ends.

    Args:
        folder: folder of the file: failures.jsonl, or failures.I-of-N.jsonl for a shard, so that array jobs
            with a common folder do not overwrite each other's file.
    """

    def __init__(self, folder: Path, shard: Shard) -> None:
        self.path = folder / f"failures{shard.suffix}.jsonl"
        self._sharded = shard.count > 1
        self.failed: list[tuple[str, BaseException]] = []
        self._num_targets = 0

    def expect(self, num_targets: int) -> None:
        """Count targets whose failures, if any, will be passed to `record`."""
        self._num_targets += num_targets

    def add(self, name: str, error: Exception) -> None:
        """Record and log the failure of a target or file that `expect` has not counted; see `record`."""
        self.expect(1)
        self.record(name, error)

    def record(self, name: str, error: BaseException) -> None:
        """Record and log the failure of a target that `expect` has counted; may be called by any thread.

        Raises:
            BaseException: the error itself, if it ends a run; see `foldcli.errors.ends_run`.
        """
        if ends_run(error):
            raise error
        log_bug(error)
        logger.error("%s", _with_name(name, describe(error)))
        # the traceback would keep the local variables of the failed target in memory
        self.failed.append((name, error.with_traceback(None)))

    def run(self, items: Iterable[tuple[str, T]], process: Callable[[str, T], None]) -> None:
        """Call `process(name, item)` for each item, recording exceptions.

        Draws a progress bar if there are several items and `items` has a length.

        Raises:
            Exception: the first error that ends a run; see `foldcli.errors.ends_run`.
        """
        total = len(items) if isinstance(items, Sized) else 0
        with (
            progress_bar("targets", "target")
            if total > 1
            else contextlib.nullcontext(lambda done, total: None) as progress
        ):
            progress(0, total)
            for done, (name, item) in enumerate(items, start=1):
                self.expect(1)
                try:
                    process(name, item)
                except Exception as error:
                    self.record(name, error)
                progress(done, total)

    def finish(self) -> None:
        """Write the file of failures, or remove an earlier run's file if nothing failed.

        Raises:
            SomeTargetsFailed: some of several targets failed, or the only one of a shard.
            TargetFailed: the only target of a run failed; has the exit code of its error.
        """
        remove_abandoned_files(self.path.parent, self.path.name)
        if not self.failed:
            self.path.unlink(missing_ok=True)
            return
        # a run without any target has not created it
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as stream:
            for name, error in self.failed:
                entry = {
                    "target": name,
                    "error": describe(error),
                    "type": type(error).__name__,
                    "exit_code": int(exit_code_of(error)),
                }
                stream.write(json.dumps(entry) + "\n")
        self.raise_if_any()

    def raise_if_any(self, written: bool = True) -> None:
        """Raise the same errors as `finish`, without writing a file.

        Args:
            written: whether the file of failures exists, so that the message can name it.
        """
        if not self.failed:
            return
        # the exit code of an array job's task does not depend on how many targets its shard has
        if self._num_targets == 1 and not self._sharded:
            raise TargetFailed(exit_code_of(self.failed[0][1])) from self.failed[0][1]
        location = f"; see {self.path}" if written else ""
        error = SomeTargetsFailed(f"{len(self.failed)} of {self._num_targets} targets failed{location}")
        error.failed = dict(self.failed)
        raise error


def _with_name(name: str, reason: str) -> str:
    # the reason may begin with the target's name and a colon already
    return reason if reason.startswith(f"{name}:") else f"{name}: {reason}"
