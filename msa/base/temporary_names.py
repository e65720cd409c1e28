"""Names of temporary files and folders that identify the process that writes them.

A file that becomes NAME is written as `.NAME.PROCESS.RANDOM.tmp`. PROCESS consists of the process table (a
hash of boot id and PID namespace), the process id, and the process's start time. A process of the same table
can be checked: it has ended or still runs. A process of another table (another machine, or this one before a
reboot) counts as ended once its file has not changed for a long time by the file system's clock.
"""

import contextlib
import functools
import glob
import hashlib
import os
import re
import secrets
import tempfile
import time
from pathlib import Path

OLD_SECONDS = 7 * 86400
"""Age at which the file of a process that cannot be checked is removed: no run takes that long."""

_PROCESS = re.compile(r"\.([0-9a-f]{12})-(\d+)-(\d+)\.")
# leaves room for the other parts of the name within the usual limit of 255 bytes
_MAX_NAME_BYTES = 200


def temporary_path(path: Path, suffix: str = ".tmp") -> Path:
    """Return a new name for a temporary file or folder next to `path`."""
    return path.with_name(f".{_shorten(path.name)}.{process_tag()}.{secrets.token_hex(4)}{suffix}")


def find_abandoned(folder: Path, name: str = "", suffix: str = ".tmp") -> list[Path]:
    """Find temporary files or folders whose processes have ended.

    Args:
        folder: need not exist.
        name: start of the final names of the files; "" matches any file.
        suffix: see `temporary_path`.
    """
    paths = sorted(folder.glob(f".{glob.escape(_shorten(name))}*{suffix}"))
    if not paths:
        return []
    old = file_system_time(folder) - OLD_SECONDS
    return [path for path in paths if is_abandoned(path, old)]


def remove_abandoned_files(folder: Path, name: str = "") -> None:
    """Remove the temporary files that `find_abandoned` returns, unless they cannot be removed."""
    for path in find_abandoned(folder, name):
        with contextlib.suppress(OSError):
            path.unlink()


def is_abandoned(path: Path, old: float) -> bool:
    """Return True if the process that writes a temporary file has ended.

    Args:
        path: the file, with `process_tag` in its name.
        old: time in seconds since 1970; a process that cannot be checked counts as ended if the file was last
            modified before.
    """
    matches = _PROCESS.findall(path.name)
    if matches and matches[-1][0] == process_table():
        return not is_running(int(matches[-1][1]), int(matches[-1][2]))
    try:
        return path.lstat().st_mtime < old
    except FileNotFoundError:
        # another process has removed it, or its writer renamed it
        return False


def process_tag() -> str:
    """Return the part of a name that identifies this process."""
    return f"{process_table()}-{os.getpid()}-{start_time(os.getpid()) or 0}"


def file_system_time(folder: Path) -> float:
    """Return the time in seconds since 1970 by the file system's clock, which may be a file server's."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            return os.fstat(probe.fileno()).st_mtime
    except OSError:  # a read-only folder
        return time.time()


def _shorten(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:_MAX_NAME_BYTES])


def is_running(pid: int, start: int) -> bool:
    """Return True if a process runs in this process table.

    Args:
        pid: its id.
        start: its `start_time`, because ids are reused; 0 if unknown.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    # ids are reused; if /proc hides other users' processes, only the id can be compared
    actual_start = start_time(pid)
    return actual_start is None or start in (0, actual_start)


def start_time(pid: int) -> int | None:
    """Return a process's start time in clock ticks since boot; 0 if it has ended, None if unknown."""
    try:
        # the command name, in parentheses, may contain anything
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    # a zombie: it was killed, and its parent has not read its exit code yet
    return 0 if fields[0] in "ZX" else int(fields[19])


@functools.cache
def process_table() -> str:
    """Return an identifier of this process's table, which differs between machines, boots and containers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        identifier = boot + str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        # without /proc nothing is known about other processes
        identifier = os.urandom(16).hex()
    return hashlib.blake2b(identifier.encode(), digest_size=6).hexdigest()
