"""Files that are never seen half-written."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal


@contextlib.contextmanager
def atomic_write(
    path: str | os.PathLike[str], mode: Literal["w", "wb"] = "w", prefix: Path | None = None
) -> Iterator[IO[Any]]:
    """Open a temporary file that takes the name of `path` when the block ends without an exception.

    Args:
        path: final name; its folder is made when absent.
        mode: "w" (UTF-8 text) or "wb".
        prefix: what the temporary file's path begins with, on the same file system; by default it is a hidden
            file beside `path`.

    Raises:
        OSError: the folder or file cannot be written; nothing stays behind under either name.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if prefix is None:
        prefix = path.parent / f".{path.name}."
    prefix.parent.mkdir(parents=True, exist_ok=True)
    # named before it is made: an interrupt between the two would leave a file that nobody knows
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
