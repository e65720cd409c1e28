"""Options of templates."""

from pathlib import Path
from typing import Any

import click

from foldcli.options.common import combine

_NO_VALUE = ""


class _LibraryType(click.Path):
    """The click type of `--templates [LIBRARY]`; without a value, as for ColabFold, it is None."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        return None if value == _NO_VALUE else super().convert(value, param, ctx)


template_options = combine(
    click.option(
        "--templates",
        type=_LibraryType(exists=True, path_type=Path),
        is_flag=False,
        flag_value=_NO_VALUE,
        metavar="[LIBRARY]",
        show_default="the library that comes with foldcli",
        help="Structure library from foldcli createdb --structures, or structure files, to search.",
    ),
    click.option("--no-templates", is_flag=True, help="Do not use templates."),
    click.option(
        "--max-template-date",
        metavar="YYYY-MM-DD",
        help="Use only templates that were released by this date; those without a known date are not used.",
    ),
    click.option(
        "--exclude-self", is_flag=True, help="Do not use templates that are the query itself, for benchmarks."
    ),
    click.option(
        "--custom-template-path",
        type=click.Path(exists=True, path_type=Path),
        metavar="PATH",
        help="Use these structures as templates, however remote: a folder of mmCIF and PDB files, or one.",
    ),
    click.option(
        "--pdb-hit-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="M8",
        help="Use the templates in this table, as from ColabFold's search: query, tab, chain (1abc_A).",
    ),
    click.option(
        "--local-pdb-path",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="FOLDER",
        help="Mirror of the PDB with the entries of --pdb-hit-file, flat or with two-letter folders.",
    ),
)
