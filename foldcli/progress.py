"""Progress bars on a terminal, silence elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from tqdm import tqdm

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
            drawn.update(done - drawn.n)

        yield update
