"""The temporary files of a cache's writers, and what becomes of those of killed ones.

An entry is written as `CACHE/tmp/KEY.WRITER.….tmp` and renamed. A writer's mark says in which process table
it is (machine since its last start, and container), its number there, and when it began: whether a writer of
the same table lives can be asked, and one of another counts as gone when its file has not changed for an hour
of the file system's clock. A file that was removed although its writer lives is written again.
"""

import contextlib
import functools
import hashlib
import os
import re
import tempfile
import time
from pathlib import Path

# seconds after which the file of a writer of whom nothing is known is removed; writing takes seconds
ABANDONED_AFTER = 3600

_FOLDER = "tmp"
_NAME = re.compile(r"[0-9a-f]{64}\.([0-9a-f]{12})-(\d+)-(\d+)\..+\.tmp")


def temporary_prefix(root: Path, key: str) -> Path:
    """What the path of a temporary file of an entry begins with, for `msa.io.atomic.atomic_write`."""
    return root / _FOLDER / f"{key}.{_table()}-{os.getpid()}-{_start_of(os.getpid()) or 0}."


def abandoned(root: Path, everywhere: bool = False) -> list[Path]:
    """Temporary files in the cache that nobody will rename.

    Args:
        root: the cache.
        everywhere: look beside entries too, where earlier versions wrote, which reads every folder.

    Raises:
        OSError: the folder cannot be read.
    """
    found = list((root / _FOLDER).glob("*.tmp"))
    if everywhere:
        found += [*root.glob("[0-9a-f][0-9a-f]/.*.tmp"), *root.glob(".failures*.tmp")]
    if not found:
        return []
    now = _clock_of(root)
    gone = []
    for path in sorted(found):
        with contextlib.suppress(FileNotFoundError):  # another run does the same, or its writer was done
            if _is_gone(path, now - ABANDONED_AFTER):
                gone.append(path)
    return gone


def remove_abandoned(root: Path, everywhere: bool = False) -> list[Path]:
    """Remove and return the files of `abandoned`; nothing where there is no cache.

    Raises:
        OSError: the folder cannot be read, or a file not be removed.
    """
    gone = abandoned(root, everywhere)
    for path in gone:
        path.unlink(missing_ok=True)
    return gone


@functools.lru_cache(maxsize=16)
def tidy_once(root: Path) -> None:
    """`remove_abandoned`, once in a process: what earlier runs left does not change."""
    remove_abandoned(root)


def _clock_of(root: Path) -> float:
    """What the time is on a file system, in seconds since 1970; another machine may keep its clock."""
    try:
        with tempfile.TemporaryFile(dir=root) as probe:
            return os.fstat(probe.fileno()).st_mtime
    except OSError:  # it may be looked at and not be written
        return time.time()


def _is_gone(path: Path, before: float) -> bool:
    if (mark := _NAME.fullmatch(path.name)) and mark[1] == _table():
        return not _lives(int(mark[2]), int(mark[3]))
    return path.stat().st_mtime < before


def _lives(number: int, start: int) -> bool:
    """Whether the process of this number, begun at this time, runs in this process table."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    # a number is given out again; where /proc hides other people's processes, the number must do
    found = _start_of(number)
    return found is None or start in (0, found)


def _start_of(number: int) -> int | None:
    """When a process began, in clock ticks of its machine; 0 once it has ended; None: not known."""
    try:
        # the command's name, in brackets, may hold anything
        fields = Path(f"/proc/{number}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    # of a killed process whose parent has not asked for its exit code, only the number is left
    return 0 if fields[0] in "ZX" else int(fields[19])


@functools.cache
def _table() -> str:
    """Names the process table that this process is in; every machine, and container, has its own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        parts = boot + str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        # then nothing is known of any other writer
        parts = os.urandom(16).hex()
    return hashlib.blake2b(parts.encode(), digest_size=6).hexdigest()
