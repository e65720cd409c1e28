"""Progress bars, drawn on a terminal only."""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any, TypeAlias

from foldcli.logs import StderrHandler, logger, logs_json
from msa.base.progress import Progress

Report: TypeAlias = Callable[[int, int, str], None]
"""A callback that gets the steps done so far, the number of all steps, and what is done now, in words."""


def shows_progress() -> bool:
    """Return True for a command whose stderr is a terminal, without --quiet and --log-json."""
    is_command = any(isinstance(handler, StderrHandler) for handler in logger.handlers)
    return is_command and sys.stderr.isatty() and logger.isEnabledFor(logging.INFO) and not logs_json()


def _bar(**options: Any) -> Any:
    """Return a tqdm progress bar on stderr, which is drawn if `shows_progress()`."""
    from tqdm import tqdm  # not imported for commands without a bar, which it would delay

    return tqdm(file=sys.stderr, disable=not shows_progress(), leave=False, **options)


@contextlib.contextmanager
def progress_bar(description: str, unit: str) -> Iterator[Progress]:
    """Yield a callback that draws a progress bar with rate and remaining time, if `shows_progress()`."""
    if not shows_progress():
        yield lambda done, total: None
        return
    with _bar(
        desc=description,
        unit=unit,
        unit_scale=unit in ("B", "targets"),  # show large numbers as 1.23M
        delay=0.5,  # shorter work needs no bar
    ) as bar:

        def update(done: int, total: int | None) -> None:
            if total is not None and bar.total != total:
                bar.reset(total)
                # exclude earlier work, such as the first part of a resumed download, from the rate
                bar.n = bar.last_print_n = bar.initial = done
            bar.update(done - bar.n)

        yield update


class RunProgress:
    """The progress bar of a run of `fold` or `predict`: passes through the network, and the current step.

    Args:
        passes: passes of each target, if recycling does not stop early.
        report: called with each change, by any thread; may raise.
    """

    def __init__(self, targets: int, passes: int, report: Report = lambda done, total, text: None) -> None:
        self._passes, self._total, self._report = passes, targets * passes, report
        self._passes_done: dict[str, int] = {}
        self._lock = Lock()
        self._bar = _bar(
            total=self._total,
            unit="pass",
            bar_format="{percentage:3.0f}% |{bar:20}| {n_fmt}/{total_fmt} passes, {remaining} left{postfix}",
        )
        self.show("starting")

    def __enter__(self) -> "RunProgress":
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def show(self, text: str) -> None:
        """Show the current step as text."""
        with self._lock:
            self._bar.set_postfix_str(text)
        self._tell(text)

    def begin_job(self, name: str, size: str, tag: str, detail: str = "first pass") -> Progress:
        """Show the job that the network begins; return the callback that counts its passes.

        Args:
            name: name of the target.
            size: its size in words, such as "76 residues".
            tag: tag of the job.
            detail: shown until the first pass is counted.
        """
        text, num_counted = f"{name} ({size}): {tag}", 0
        self.show(f"{text}, {detail}")

        def pass_done(done: int, total: int | None) -> None:
            nonlocal num_counted
            new_passes, num_counted = done - num_counted, done
            with self._lock:
                self._passes_done[name] = self._passes_done.get(name, 0) + new_passes
                if total is not None and done < total:
                    self._bar.set_postfix_str(f"{text}, recycle {done}/{total - 1}", refresh=False)
                self._bar.update(new_passes)
            self._tell(text)

        return pass_done

    def target_done(self, name: str) -> None:
        """Count all passes of a target that is finished, or has failed."""
        with self._lock:
            remaining = self._passes - self._passes_done.get(name, 0)
            self._passes_done[name] = self._passes
            self._bar.update(max(0, remaining))
        self._tell(f"{name}: done")

    def _tell(self, text: str) -> None:
        self._report(sum(self._passes_done.values()), self._total, text)


class CompilationProgress:
    """A log message and a progress bar that appear once GPU kernels need to be compiled."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._announced = False

    def __call__(self, done: int, total: int) -> None:
        """Update the bar.

        Args:
            done: number of kernels compiled so far.
            total: number of kernels known to need compilation; it may grow between calls.
        """
        if not self._announced:
            self._announced = True
            logger.info("compiling GPU kernels; later runs reuse them")
        if self._bar is None and done < total and shows_progress():
            self._bar = _bar(desc="compiling GPU kernels", unit="kernel", total=total, initial=done)
        if self._bar is not None:
            self._bar.total = total
            self._bar.update(done - self._bar.n)
            if done == total:
                self._bar.close()
                self._bar = None
