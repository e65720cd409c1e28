"""Click types of the values of options."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from foldcli.values import parse_size
from msa.database.file_names import MANIFEST, RESIDUES


class ParsedType(click.ParamType):
    """The click type of values that a function reads.

    Args:
        name: the form of the values, as the help shows it.
        parse: returns the value of a text, or raises ValueError with what is expected.
    """

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value; defaults may be values already."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _DeviceType(ParsedType):
    """The click type of `--device auto|cpu|cuda|cuda:N|cuda:N,N,…`."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the kinds of devices."""
        return [CompletionItem(kind) for kind in ("auto", "cpu", "cuda") if kind.startswith(incomplete)]


def _parse_device(text: str) -> str:
    """Return a device; GPU numbers lose leading zeros."""
    if text in ("auto", "cpu", "cuda"):
        return text
    kind, _, listed = text.partition(":")
    numbers = listed.split(",")
    if kind != "cuda" or not all(number.isascii() and number.isdecimal() for number in numbers):
        raise ValueError(f"expected auto, cpu, cuda, cuda:N or cuda:N,N,…, got {text!r}")
    gpus = [int(number) for number in numbers]
    for gpu in gpus:
        if gpus.count(gpu) > 1:
            raise ValueError(f"GPU {gpu} is named twice in {text!r}")
    return f"cuda:{','.join(map(str, gpus))}"


class PathType(click.ParamType):
    """The click type of a path that the command itself checks; shells complete it with files."""

    name = "PATH"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the kind of completion "file"."""
        return [CompletionItem(incomplete, type="file")]


class InputType(PathType):
    """The click type of an input, which is not a database.

    A database among the inputs is usually meant for an option, and must not be ignored.

    Args:
        remedy: what to do with a database; {path} stands for its path.
    """

    def __init__(self, remedy: str = "use --db {path}") -> None:
        self._remedy = remedy

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path."""
        path = str(value)
        if is_structure_library(path):
            self.fail(f"{path} is a structure library: use --templates {path}", param, ctx)
        if is_database(path):
            self.fail(f"{path} is a database: {self._remedy.format(path=path)}", param, ctx)
        return path


def is_database(path: str) -> bool:
    """Return True if a path is a target database from `foldcli createdb`."""
    return all(Path(path, name).is_file() for name in (MANIFEST, RESIDUES))


def is_structure_library(path: str) -> bool:
    """Return True if a path is a structure library from `foldcli createdb --structures`."""
    # the folder is that of features.templates.library.library, which imports numpy
    return is_database(str(Path(path, "sequences")))


def numbers_type(
    expected: str, is_valid: Callable[[str], object], parse: Callable[[str], Any] = int
) -> ParsedType:
    """Return the click type of a list such as 128,256, by default of integers; repeated ones are dropped.

    Args:
        expected: description of valid values, for the error message.
        is_valid: returns True if the text between two commas is a valid number.
        parse: returns the number.
    """

    def parse_list(text: str) -> tuple[Any, ...]:
        numbers = text.split(",")
        if not all(map(is_valid, numbers)):
            raise ValueError(f"expected {expected}, got {text!r}")
        return tuple(dict.fromkeys(map(parse, numbers)))

    return ParsedType("N,N,…", parse_list)


device_type = _DeviceType("auto|cpu|cuda[:N,…]", _parse_device)
size_type = ParsedType("SIZE", parse_size)
