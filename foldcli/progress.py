"""Progress bars on a terminal, silence elsewhere."""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tqdm import tqdm

from foldcli.logs import as_json, logger

Progress = Callable[[int, int | None], None]


def drawn_here() -> bool:
    """Whether someone looks: stderr is a terminal, and neither -q nor --log-json was given."""
    return sys.stderr.isatty() and logger.isEnabledFor(logging.INFO) and not as_json()


@contextlib.contextmanager
def bar(description: str, unit: str) -> Iterator[Progress]:
    """Yield a callback `(done, total)` that draws a bar with rate and remaining time where `drawn_here`."""
    with tqdm(
        desc=description,
        unit=unit,
        # large numbers, which are read as 1.23M
        unit_scale=unit in ("B", "targets"),
        file=sys.stderr,
        disable=not drawn_here(),
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
                disable=not drawn_here(), leave=False,
            )  # fmt: skip
        if self._drawn is not None:
            self._drawn.total = needed
            self._drawn.update(done - self._drawn.n)
            if done == needed:
                self._drawn.close()
                self._drawn = None
