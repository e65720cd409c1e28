"""Options of templates."""

from pathlib import Path

import click

from foldcli.options.common import combine

template_options = combine(
    click.option(
        "--templates",
        type=click.Path(exists=True, path_type=Path),
        metavar="LIBRARY",
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
