"""Progress bars on a terminal, silence elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tqdm import tqdm

from foldcli.logs import logger

Progress = Callable[[int, int | None], None]


@contextlib.contextmanager
def bar(description: str, unit: str) -> Iterator[Progress]:
    """Yield a callback `(done, total)` that draws a bar with rate and remaining time if stderr is a TTY."""
    with tqdm(
        desc=description,
        unit=unit,
        unit_scale=True,
        file=sys.stderr,
        disable=not sys.stderr.isatty(),
        leave=False,
    ) as drawn:

        def update(done: int, total: int | None) -> None:
            if total is not None and drawn.total != total:
                drawn.reset(total)
                # what was done before, as of a download that is taken up again, is none of the rate's
                drawn.n = drawn.last_print_n = drawn.initial = done
            drawn.update(done - drawn.n)

        yield update


class CompilingBar:
    """A line that says that kernels are compiled, and a bar of them on a terminal, while there are such."""

    def __init__(self) -> None:
        self._drawn: Any = None
        self._said = False

    def __call__(self, done: int, needed: int) -> None:
        """Draw kernels compiled and to be compiled, as far as is known; both only grow."""
        if not self._said:
            self._said = True
            logger.info("compiling GPU kernels, which are kept for the next time")
        if self._drawn is None and done < needed:
            self._drawn = tqdm(
                desc="compiling GPU kernels", unit="kernel", total=needed, initial=done, file=sys.stderr,
                disable=not sys.stderr.isatty(), leave=False,
            )  # fmt: skip
        if self._drawn is not None:
            self._drawn.total = needed
            self._drawn.update(done - self._drawn.n)
            if done == needed:
                self._drawn.close()
                self._drawn = None
