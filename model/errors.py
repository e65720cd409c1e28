"""What can be wrong with a network's parameters, and the lack of memory."""

import os


class ParametersError(ValueError):
    """A parameter file that cannot be used. Its text is `path: reason`.

    Args:
        reason: what is wrong, in a few words; names the keys concerned.
        path: the file, where there is one.
    """

    def __init__(self, reason: str, path: str | os.PathLike[str] | None = None) -> None:
        self.reason, self.path = reason, path
        super().__init__(reason if path is None else f"{os.fspath(path)}: {reason}")


class ParametersMissing(Exception):
    """There is no parameter file where one is needed.

    Args:
        reason: what is missing.
        remedy: how to get it; may have several lines.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason, self.remedy = reason, remedy
        super().__init__(f"{reason}\n{remedy}")


class OutOfMemory(MemoryError):
    """A target that does not fit into a device's memory; says what was asked for and what is free."""
