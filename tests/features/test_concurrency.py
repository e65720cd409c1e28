"""Test of many processes that fill one cache at once while some of them are killed."""

import multiprocessing
import os
import random
import signal
import sys
from pathlib import Path
from types import FrameType

import pytest

from features.cache.cache import FeatureCache, cache_key
from features.cache.cleanup import remove_abandoned
from features.cache.entry import read_entry
from msa.alignments.files import Alignment, parse_alignment

PROCESSES, TARGETS, KILLS = 16, 24, 4


def targets() -> list[list[Alignment]]:
    """Return alignments of 2 to 25 rows and different lengths."""
    letters = "ACDEFGHIKLMNPQRSTVWY" * 8
    texts = [
        "".join(f">t{number}_{row}\n{letters[row : row + 20 + 3 * number]}\n" for row in range(number + 2))
        for number in range(TARGETS)
    ]
    return [[parse_alignment(text.encode(), f"{number}.a3m")] for number, text in enumerate(texts)]


def die_after(calls: int, module: str) -> None:
    """Kill this process with SIGKILL after a number of calls of C functions.

    The names of the temporary files that it leaves are recorded in the folder `left`.

    Args:
        calls: number of calls.
        module: count only calls in files whose path ends with this.
    """
    remaining = calls

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal remaining
        if event == "c_call" and frame.f_code.co_filename.endswith(module):
            remaining -= 1
            if remaining == 0:
                sys.setprofile(None)
                for path in Path("shared/tmp").glob(f"*-{os.getpid()}-*"):
                    Path("left", path.name).touch()
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)


def fill(root: Path, seed: int, death: tuple[int, str] | None) -> None:
    """Store all targets in random order; kill this process partway if `death` is given."""
    inputs = targets()
    random.Random(seed).shuffle(inputs)
    if death is not None:
        die_after(*death)
    remove_abandoned(root)
    for alignments in inputs:
        FeatureCache(root).load_or_make(alignments)


def random_death(rng: random.Random) -> tuple[int, str]:
    """Return arguments of `die_after`: anywhere, or within the short time in which a file is written."""
    return rng.choice(((rng.randrange(1, 3000), ".py"), (rng.randrange(1, 40), "atomic.py")))


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_killed_and_restarted_processes_leave_the_entries_of_a_single_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    single, shared = tmp_path / "single", tmp_path / "shared"
    # also compiles kernels, which the processes inherit
    for _ in range(2):
        fill(single, 0, None)
    rng = random.Random(0)
    context = multiprocessing.get_context("fork")
    Path("left").mkdir()
    killed = 0
    for attempt in range(KILLS + 1):
        # nothing is killed in the last attempt
        deaths = [random_death(rng) if attempt < KILLS else None for _ in range(PROCESSES)]
        workers = [
            context.Process(target=fill, args=(shared, seed, death)) for seed, death in enumerate(deaths)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert {worker.exitcode for worker in workers} <= {0, -signal.SIGKILL}
        killed += sum(worker.exitcode == -signal.SIGKILL for worker in workers)
    assert [worker.exitcode for worker in workers] == [0] * PROCESSES
    left = len(list(Path("left").iterdir()))
    # otherwise the test would prove nothing
    assert killed >= PROCESSES and left >= 2

    assert contents(shared) == contents(single)
    assert len(contents(single)) == TARGETS
    for alignments in targets():
        read_entry(FeatureCache(shared).path(cache_key(alignments)), cache_key(alignments))
