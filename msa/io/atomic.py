"""Files that other processes never see half-written."""

import contextlib
import glob
import math
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal


@contextlib.contextmanager
def atomic_write(
    path: str | os.PathLike[str], mode: Literal["w", "wb"] = "w", prefix: Path | None = None
) -> Iterator[IO[Any]]:
    """Open a temporary file that is renamed to `path` when the block ends without an exception.

    Args:
        path: final name; its folder is created if absent.
        mode: "w" (UTF-8 text) or "wb".
        prefix: start of the temporary file's path, on the same file system as `path`; by default a hidden
            file in the same folder.

    Raises:
        OSError: the folder or file cannot be written; neither file is left behind.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if prefix is None:
        prefix = path.parent / f".{path.name}."
    prefix.parent.mkdir(parents=True, exist_ok=True)
    # choosing the name before creating the file means that an interrupt in between leaves no unknown file
    temporary = prefix.with_name(f"{prefix.name}{secrets.token_hex(8)}.tmp")
    kind = {"w": "x", "wb": "xb"}[mode]
    try:
        with temporary.open(kind, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        error.filename = str(path)
        raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_temporary_files(folder: Path, name: str = "", before: float = math.inf) -> None:
    """Remove the temporary files that a killed process left in a folder.

    Args:
        folder: no other process may be writing files of these names there, unless `before` excludes them.
        name: start of the names of the files that were being written; "" is any file.
        before: remove only files that were last modified before this time, in seconds since 1970.
    """
    for path in folder.glob(f".{glob.escape(name)}*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime < before:
                path.unlink()
