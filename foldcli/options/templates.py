"""Options of templates."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from foldcli.options.common import Command, combine, flag
from foldcli.options.types import is_database

_NO_VALUE = ""


class _LibraryType(click.Path):
    """The click type of `--templates [LIBRARY]`; it is None without a value, which ColabFold allows too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if value == _NO_VALUE:
            return None
        if is_database(str(value)):
            self.fail(f"{value} is a database of sequences without structures: use --db {value}", param, ctx)
        return super().convert(value, param, ctx)


def library_option(help: str, default: str | None = None) -> Callable[[Command], Command]:
    """Return the option `--templates [LIBRARY]`; the default only describes it in the help."""
    library = _LibraryType(exists=True, path_type=Path)
    return click.option(
        "--templates", type=library, is_flag=False, flag_value=_NO_VALUE, metavar="[LIBRARY]",
        show_default=default, help=help,
    )  # fmt: skip


template_options = combine(
    library_option(
        "Structure library from foldcli createdb --structures, or structure files, to search.",
        default="the library that comes with foldcli",
    ),
    flag("--no-templates", help="Do not search for templates; use only those that jobs give."),
    click.option(
        "--max-template-date",
        metavar="YYYY-MM-DD",
        help="Use only templates that are known to have been released by this date.",
    ),
    flag("--exclude-self", help="For benchmarks: do not use templates that are the query itself."),
    click.option(
        "--custom-template-path",
        type=click.Path(exists=True, path_type=Path),
        metavar="PATH",
        help="Use these structures as templates, whatever their E-value: an mmCIF or PDB file, or a folder.",
    ),
    click.option(
        "--pdb-hit-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="M8",
        help="Use the templates in this table, as ColabFold's search writes it: query, tab, chain (1abc_A).",
    ),
    click.option(
        "--local-pdb-path",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="FOLDER",
        help="Mirror of the PDB with the entries of --pdb-hit-file, in one folder or in two-letter "
        "subfolders.",
    ),
)
