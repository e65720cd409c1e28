"""`foldcli templates`: search a structure library for templates."""

from typing import Any

import click

from foldcli.options import common as options
from foldcli.options import types
from foldcli.options.command import GroupedCommand
from foldcli.options.templates import template_options


@click.command("templates", cls=GroupedCommand)
@click.argument("queries", nargs=-1, required=True, type=types.InputType(), metavar="QUERY...")
@options.output_option("File; - is stdout.")
@options.choice_option(
    "--format",
    "file_format",
    choices=["m8", "af3"],
    help="Table of templates, or JSON with the template entries of AlphaFold 3's jobs by query.",
)
@template_options
@options.threads_option
@options.overwrite_option
@options.logging_options
def command(
    queries: tuple[str, ...], out: str, file_format: str, threads: int, overwrite: bool, **option_values: Any
) -> None:
    """Search a structure library for templates, and write tables or AlphaFold 3's entries.

    QUERY is an input of `foldcli search`; an alignment finds more than its first sequence. Each distinct
    chain of a complex is a query of its own. docs/templates.md says how templates are chosen. A table has the
    columns of `foldcli search --format m8`.

    \b
    Examples:
      foldcli templates protein.a3m -o templates.m8
      foldcli templates protein.a3m -o templates.json --format af3 --templates library
    """
    from foldcli.exports.template_search import run_template_search

    run_template_search(queries, out, file_format, threads, overwrite, option_values)
