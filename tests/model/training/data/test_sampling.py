"""Tests of the worker processes that make training samples."""

import subprocess
import sys

# the iterator is in a reference cycle, so it still exists when the process exits
SCRIPT = """
import itertools
import numpy as np
from model.training.data.sampling import MicroBatch, load_batches

class Sampler:
    def batch(self, first, size, crop, clamped_rate):
        return {"first": np.full(size, first)}

class Holder:
    pass

if __name__ == "__main__":
    holder = Holder()
    holder.itself = holder
    plan = (MicroBatch(first, 2, 8, 1.0) for first in itertools.count(0, 2))
    holder.batches = load_batches(Sampler(), plan, workers=2, pin_memory=False)
    print([int(next(holder.batches)["first"][0]) for _ in range(3)])
"""


def test_workers_end_with_the_process() -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False
    )
    assert (run.returncode, run.stdout) == (0, "[0, 2, 4]\n"), run.stderr
