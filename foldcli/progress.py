"""Progress bars, drawn on a terminal only."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

from tqdm import tqdm

from foldcli.logs import logger, logs_json
from msa.progress import Progress


def shows_progress() -> bool:
    """Return True if stderr is a terminal and neither --quiet nor --log-json was given."""
    return sys.stderr.isatty() and logger.isEnabledFor(logging.INFO) and not logs_json()


@contextlib.contextmanager
def progress_bar(description: str, unit: str) -> Iterator[Progress]:
    """Yield a callback that draws a progress bar with rate and remaining time, if `shows_progress()`."""
    with tqdm(
        desc=description,
        unit=unit,
        unit_scale=unit in ("B", "targets"),  # show large numbers as 1.23M
        file=sys.stderr,
        disable=not shows_progress(),
        leave=False,
    ) as bar:

        def update(done: int, total: int | None) -> None:
            if total is not None and bar.total != total:
                bar.reset(total)
                # exclude earlier work, such as the first part of a resumed download, from the rate
                bar.n = bar.last_print_n = bar.initial = done
            bar.update(done - bar.n)

        yield update


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
        if self._bar is None and done < total:
            self._bar = tqdm(
                desc="compiling GPU kernels", unit="kernel", total=total, initial=done, file=sys.stderr,
                disable=not shows_progress(), leave=False,
            )  # fmt: skip
        if self._bar is not None:
            self._bar.total = total
            self._bar.update(done - self._bar.n)
            if done == total:
                self._bar.close()
                self._bar = None
