"""Exceptions for problems that a user can correct.

Worker processes return exceptions by pickling them, which calls the constructor with `args`. An exception
with arguments of its own therefore passes them on to its base class, and makes its message in `__str__`.
"""

import os

_MAX_REASON = 500


class InputError(ValueError):
    """Invalid input.

    The message is one line, `path:line:column: reason`, without the parts that are unknown.

    Args:
        reason: the problem, in a few words; shortened if it is long, because it may quote a file.
        path: the file; `-` stands for standard input.
        line: 1-based line number.
        column: 1-based column in that line.
    """

    def __init__(
        self,
        reason: str,
        path: str | os.PathLike[str] | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        reason = " ".join(reason.splitlines())
        if len(reason) > _MAX_REASON:
            reason = f"{reason[: _MAX_REASON - 1]}…"
        self.reason, self.path, self.line, self.column = reason, path, line, column
        super().__init__(reason, path, line, column)

    def __str__(self) -> str:
        location = []
        if self.path is not None:
            location.append("standard input" if str(self.path) == "-" else os.fspath(self.path))
        location += [str(number) for number in (self.line, self.column) if number is not None]
        return f"{':'.join(location)}: {self.reason}" if location else self.reason


class DamagedDatabase(InputError):
    """A database with files of wrong sizes, or one that was replaced after it had been opened."""


class MissingError(Exception):
    """A required file, program or device that is missing.

    Args:
        reason: one line that names what is missing.
        remedy: how to get it; may have several lines.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason, self.remedy = reason, remedy
        super().__init__(reason, remedy)

    def __str__(self) -> str:
        return f"{self.reason}\n{self.remedy}"


class UnwritableFolder(MissingError):
    """A folder of the cache to which nothing can be written. The message is one line."""

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}"


class OutOfGpuMemory(Exception):
    """An allocation on the GPU failed."""

    def __init__(self, requested_bytes: int) -> None:
        self.requested_bytes = requested_bytes
        super().__init__(requested_bytes)

    def __str__(self) -> str:
        return f"no {self.requested_bytes} bytes free on the GPU"


def check_range(name: str, value: float, bounds: tuple[float, float]) -> None:
    """Raise InputError if a setting is out of range, bounds included, or NaN."""
    low, high = bounds
    if not low <= value <= high:
        raise InputError(f"{name} is {value}: expected {low} to {high}")


def check_intact(subject: str, holds: object, reason: str, path: str | os.PathLike[str]) -> None:
    """Raise InputError that a subject, such as "database", is damaged, unless a condition holds."""
    if not holds:
        raise InputError(f"damaged {subject}: {reason}", path)
