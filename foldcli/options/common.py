"""Options that many subcommands have, and functions that make options."""

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from foldcli.inputs.shard import Shard
from foldcli.logs import configure
from foldcli.options.types import ParsedType, PathType, device_type
from msa.base.hardware import available_cores

Command = TypeVar("Command", bound=Callable[..., Any])


def given_options(context: click.Context | None = None) -> set[str]:
    """Return the names of the options and arguments that the user gave, by default those of this command."""
    context, default = context or click.get_current_context(), click.core.ParameterSource.DEFAULT
    return {name for name in context.params if context.get_parameter_source(name) is not default}


def combine(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine click options into one decorator; the help lists them in this order."""
    return lambda function: functools.reduce(lambda f, d: d(f), reversed(decorators), function)


class _NumberOption(click.Option):
    """An option whose described default is shown without parentheses if it is a number."""

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        if str(self.show_default).replace(".", "").isdecimal():
            extra["default"] = str(self.show_default)
        return extra


def number_option(
    *names: str, numbers: click.IntRange | click.FloatRange, default: Any, help: str, metavar: str = "N"
) -> Callable[[Command], Command]:
    """Return an option with a number; a default that is text only describes it in the help."""
    value, shown = (None, default) if isinstance(default, str) else (default, True)
    return click.option(
        *names, type=numbers, metavar=metavar, default=value, show_default=shown, help=help, cls=_NumberOption
    )


def flag(*names: str, help: str) -> Callable[[Command], Command]:
    """Return an option without a value."""
    return click.option(*names, is_flag=True, help=help)


def choice_option(*names: str, choices: Sequence[str], help: str) -> Callable[[Command], Command]:
    """Return an option with one of several values, by default the first one."""
    return click.option(*names, type=click.Choice(choices), default=choices[0], show_default=True, help=help)


molecule_option = choice_option(
    "--molecule", choices=["protein", "rna"], help="Kind of the sequences; see docs/sensitivity.md for RNA."
)
rna_db_option = click.option(
    "--rna-db",
    type=PathType(),
    metavar="DB",
    help="Database of RNA (`createdb --molecule rna`), searched with the RNA chains of jobs.",
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(1),
    metavar="N",
    default=available_cores,
    show_default="the cores this process may use",
    help="CPU threads.",
)
shard_option = click.option(
    "--shard",
    type=ParsedType("I/N", Shard.parse),
    default="1/1",
    show_default=True,
    help="Process only shard I of N: every N-th target in the order of their names, starting with the I-th.",
)
overwrite_option = flag("--overwrite", help="Replace existing results.")
json_option = flag("--json", "as_json", help="Print JSON.")
dry_run_option = flag("--dry-run", help="Show what would run or be skipped, and why, without running it.")
out_option = click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the results; created if it does not exist.",
)
cache_option = click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    show_default="$FOLDCLI_CACHE/features",
    help="Folder of the feature cache.",
)
no_verify_option = click.option(
    "--no-verify",
    "verify",
    flag_value=False,
    default=True,
    help="Do not compare cached features with their checksums.",
)
_DATABASE_HELP = (
    "Target database from `foldcli createdb`, or a FASTA file or MMseqs2 database, which is converted once "
    "into $FOLDCLI_CACHE."
)
_PACKAGE_LIBRARY = "the chains of known structure in the package"
database_option = click.option("--db", type=PathType(), show_default=_PACKAGE_LIBRARY, help=_DATABASE_HELP)


def distinct_databases(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Refuse a database that is given twice, whose hits would be listed twice."""
    folders = [os.path.realpath(path) for path in value]
    if repeated := next((path for k, path in enumerate(value) if folders[k] in folders[:k]), None):
        raise click.BadParameter(f"{repeated} is given twice.", context, parameter)
    return value


def several_databases_option(help: str, **settings: Any) -> Callable[[Command], Command]:
    """Return the option `--db` of a command that searches several databases."""
    return click.option(
        "--db",
        "databases",
        type=PathType(),
        multiple=True,
        callback=distinct_databases,
        help=help,
        **settings,
    )


def output_option(help: str) -> Callable[[Command], Command]:
    """Return the option `-o` of a command that writes a file, or to standard output."""
    return click.option("-o", "--out", required=True, type=PathType(), metavar="OUT", help=help)


databases_option = several_databases_option(
    f"{_DATABASE_HELP} Repeat the option to search further databases with the profiles of the first.",
    show_default=_PACKAGE_LIBRARY,
)
download_options = combine(
    click.option(
        "--from",
        "local_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Use this copy of the file instead of downloading it; it is not removed.",
    ),
    click.option(
        "--sha256",
        metavar="HEX|FILE|URL",
        help="SHA-256 of the file, or a file or URL with the output of sha256sum; another file is refused.",
    ),
    number_option(
        "--retries",
        numbers=click.IntRange(0),
        default=5,
        help="Maximum number of consecutive attempts without progress.",
    ),
)
report_options = combine(
    click.option(
        "--reference",
        "references",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
        help="Folder of experimental structures, NAME.cif or .pdb, with which `foldcli compare` compares the "
        "models of target NAME; writes NAME_comparison.json and OUT/comparison.tsv.",
    ),
    click.option(
        "--find-similar",
        "similar",
        type=click.Path(exists=True, path_type=Path),
        is_flag=False,
        flag_value=str(Path(__file__).parents[2] / "features" / "templates" / "embedded"),
        metavar="[LIBRARY]",
        help="Search this structure library, or without LIBRARY the one that comes with foldcli, for chains "
        "that look like the best model; writes NAME_similar.tsv and NAME_similar.cif.",
    ),
    flag("--no-report", help="Do not write HTML pages (NAME.html, index.html)."),
    flag("--no-plots", help="Do not write PNG plots (NAME_coverage, _plddt, _pae)."),
)


def device_option(workload: str) -> Callable[[Command], Command]:
    """Return the option `--device`; its help text names the workload that runs on the device."""
    return click.option(
        "--device",
        type=device_type,
        default="auto",
        show_default=True,
        help=f"Device for {workload}; auto is the first GPU that works, else the CPU. With several GPUs, as "
        "in cuda:0,1, there is a process for each.",
    )


def logging_options(function: Command) -> Command:
    """Add -q, -v and --log-json to a command, which set up logging before the command runs."""

    @flag("-q", "--quiet", help="Show only warnings and errors on stderr.")
    @flag("-v", "--verbose", help="Show more messages on stderr.")
    @flag("--log-json", help="Write messages as JSON lines.")
    @functools.wraps(function)
    def wrapped(*args: Any, quiet: bool, verbose: bool, log_json: bool, **kwargs: Any) -> Any:
        configure(quiet, verbose, log_json)
        return function(*args, **kwargs)

    return wrapped  # type: ignore[return-value]
