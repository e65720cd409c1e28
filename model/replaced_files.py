"""Files that other processes never see half-written, for model, which may not import `msa.base.atomic`."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a hidden path in the same folder; what the block writes there replaces the file at the end.

    The content is on the disk before the file is replaced. If the block fails, the file stays as it was.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}")
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
