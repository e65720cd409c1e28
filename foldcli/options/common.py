"""Options that many subcommands have, and click types for their values."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from foldcli.inputs.shard import Shard
from foldcli.logs import configure
from foldcli.values import parse_size
from msa.base.hardware import available_cores
from msa.database.file_names import MANIFEST, RESIDUES

Command = TypeVar("Command", bound=Callable[..., Any])


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
database_option = click.option(
    "--db",
    type=PathType(),
    show_default="the chains of known structure in the package",
    help="Target database from `foldcli createdb`, or a FASTA file or MMseqs2 database, which is converted "
    "once into $FOLDCLI_CACHE.",
)


def distinct_databases(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Refuse a database that is given twice, whose hits would be listed twice."""
    if repeated := next((path for path in value if value.count(path) > 1), None):
        raise click.BadParameter(f"{repeated} is given twice.", context, parameter)
    return value


databases_option = click.option(
    "--db",
    "databases",
    type=PathType(),
    multiple=True,
    callback=distinct_databases,
    show_default="the chains of known structure in the package",
    help="Target database from `foldcli createdb`, or a FASTA file or MMseqs2 database, which is converted "
    "once into $FOLDCLI_CACHE. Repeat the option to search further databases with the profiles of the first.",
)
retries_option = number_option(
    "--retries",
    numbers=click.IntRange(0),
    default=5,
    help="Maximum number of consecutive attempts without progress.",
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
