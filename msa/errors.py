"""What can be wrong with what a user gives: errors that name file, line and reason in one line."""

import os


class InputError(ValueError):
    """Bad input. Its text is `path:line:column: reason`, as far as these are known.

    Args:
        reason: what is wrong, in a few words.
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
        self.reason, self.path, self.line, self.column = reason, path, line, column
        place = [] if path is None else ["standard input" if str(path) == "-" else os.fspath(path)]
        place += [str(number) for number in (line, column) if number is not None]
        super().__init__(f"{':'.join(place)}: {reason}" if place else reason)


class MissingError(Exception):
    """Something needed is not there.

    Args:
        reason: what is missing.
        remedy: how to get it; may have several lines.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason, self.remedy = reason, remedy
        super().__init__(f"{reason}\n{remedy}")
