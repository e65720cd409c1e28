"""The random features of one target's jobs, each drawn while the network is at the job before."""

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from foldcli.pipeline.prefetcher import Ahead

if TYPE_CHECKING:
    import numpy as np

    from features.sampling import SamplingSettings

# what is drawn for a job: numbers of rows, and the seed
Draw = tuple["SamplingSettings", int]


class JobDraws:
    """What the jobs of one target draw, in order.

    Consecutive jobs that draw the same, such as models without templates of one seed, share it. Beside what
    the network uses there is at most one more draw in memory.

    Args:
        features: deterministic features of the target.
        draws: of each job.
        num_iterations: passes through the network.
        background: see `Ahead`.
    """

    def __init__(
        self,
        features: "dict[str, np.ndarray]",
        draws: Sequence[Draw],
        num_iterations: int,
        background: Executor | None,
    ) -> None:
        self.waited = 0.0
        """Seconds that the jobs have waited for their features so far."""
        self._features, self._num_iterations = features, num_iterations
        self._last: tuple[Draw, dict[str, np.ndarray]] | None = None
        self._ahead = Ahead(draws, self._draw, background)

    @property
    def left(self) -> int:
        """How many jobs have not taken their features."""
        return self._ahead.left

    def make_first(self) -> None:
        """Draw for the first job in the calling thread, so that it need not wait."""
        if self._ahead.left:
            self._ahead.make_now()

    def take(self) -> "dict[str, np.ndarray]":
        """The next job's features; those of the job after it are begun with."""
        drawn = self._ahead.take()
        assert drawn is not None
        self.waited += self._ahead.waited
        self._ahead.start()
        if not self._ahead.left:
            self._last = None
        return drawn

    def _draw(self, draw: Draw) -> "dict[str, np.ndarray]":
        from features.sampling import sample_features

        if self._last is None or self._last[0] != draw:
            self._last = None  # before the next is made, so that there are never three
            self._last = draw, sample_features(self._features, draw[0], self._num_iterations, draw[1])
        return self._last[1]
