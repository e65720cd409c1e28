"""Command lines of the benchmarks."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def parse_options(
    text: str, *paths: str, command_line: Sequence[str] | None = None, **options: Any
) -> argparse.Namespace:
    """Parse the command line of a script.

    Args:
        text: the script's docstring, its help.
        paths: names of positional arguments, which are paths; with `?`, `*` or `+` at the end for any number.
        command_line: the arguments; None is those of this process.
        options: the default of each option: False for a flag, a list for several values, a tuple for choices
            whose first is the default, a list of such a tuple for several of them, a type or a parser for an
            option that is None without a value, a list of it for several values, and ... for a path that is
            required.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawTextHelpFormatter)
    for name in paths:
        number = {"nargs": name[-1]} if name[-1] in "?*+" else {}
        parser.add_argument(name.rstrip("?*+"), type=Path, **number)
    for name, default in options.items():
        settings: dict[str, Any] = {"type": type(default), "default": default}
        if default is False:
            settings = {"action": "store_true"}
        elif default is ...:
            settings = {"type": Path, "required": True}
        elif callable(default):
            settings = {"type": default}
        elif isinstance(default, list) and isinstance(default[0], tuple):
            settings = {"choices": default[0], "nargs": "+", "default": [default[0][0]]}
        elif isinstance(default, list) and isinstance(default[0], type):
            settings = {"type": default[0], "nargs": "+"}
        elif isinstance(default, list):
            settings = {"type": type(default[0]), "nargs": "*", "default": default}
        elif isinstance(default, tuple):
            settings = {"type": type(default[0]), "choices": default, "default": default[0]}
        elif isinstance(default, Path):
            settings["type"] = Path
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    return parser.parse_args(command_line)
