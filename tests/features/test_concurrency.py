"""Processes that fill one cache at once, and are killed while they do, leave what one process alone would."""

import multiprocessing
import os
import random
import signal
import sys
from pathlib import Path
from types import FrameType

import pytest

from features.cache import FeatureCache, cache_key, read_entry
from features.temporaries import remove_abandoned
from msa.io.alignments import Alignment, parse_alignment

PROCESSES, TARGETS, KILLS = 16, 24, 4


def targets() -> list[list[Alignment]]:
    """Alignments of 2 to 25 rows and different lengths."""
    letters = "ACDEFGHIKLMNPQRSTVWY" * 8
    texts = [
        "".join(f">t{number}_{row}\n{letters[row : row + 20 + 3 * number]}\n" for row in range(number + 2))
        for number in range(TARGETS)
    ]
    return [[parse_alignment(text.encode(), f"{number}.a3m")] for number, text in enumerate(texts)]


def die_after(calls: int, module: str) -> None:
    """SIGKILL for this process, once code in files that end so has called so many functions of C.

    The temporary file that it leaves has its name in the folder `left`.
    """
    left = calls

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal left
        if event == "c_call" and frame.f_code.co_filename.endswith(module):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                for path in Path("shared/tmp").glob(f"*-{os.getpid()}-*"):
                    Path("left", path.name).touch()
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)


def fill(root: Path, seed: int, death: tuple[int, str] | None) -> None:
    """What a run of cache-features does, in an order of its own; killed somewhere, or not."""
    inputs = targets()
    random.Random(seed).shuffle(inputs)
    if death is not None:
        die_after(*death)
    remove_abandoned(root)
    for alignments in inputs:
        FeatureCache(root).load_or_make(alignments)


def somewhere(rng: random.Random) -> tuple[int, str]:
    """A place to die: anywhere, or while a file is written, which takes little of the time."""
    return rng.choice(((rng.randrange(1, 3000), ".py"), (rng.randrange(1, 40), "atomic.py")))


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_killed_and_restarted_processes_leave_one_valid_entry_per_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    # also compiles what the processes inherit
    for _ in range(2):
        fill(alone, 0, None)
    rng = random.Random(0)
    context = multiprocessing.get_context("fork")
    Path("left").mkdir()
    killed = 0
    for attempt in range(KILLS + 1):
        # the last attempt goes through
        deaths = [somewhere(rng) if attempt < KILLS else None for _ in range(PROCESSES)]
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
    # otherwise the test would show nothing
    assert killed >= PROCESSES and left >= 2

    assert contents(shared) == contents(alone)
    assert len(contents(alone)) == TARGETS
    for alignments in targets():
        read_entry(FeatureCache(shared).path(cache_key(alignments)), cache_key(alignments))
