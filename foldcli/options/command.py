"""A click command that shows its options in groups, and names replacements of options it does not have."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

from foldcli.errors import OptionError
from foldcli.options.common import Command, given_options

_GROUP = "help_group"
# key of the context of a command whose help lists all options
_HELP_ALL = "foldcli.help_all"

_RELAX_SETTINGS = "relaxation has AlphaFold2's settings; `foldcli relax --max-rounds` limits its rounds."
_PAIRED_IN_FILE = "the A3M file of a complex has its paired rows; `foldcli fold` pairs rows."

# replacements of options of ColabFold, HH-suite, MMseqs2 and earlier versions of foldcli
PREDICTION_REPLACEMENTS = {
    "--max-seq": "use --max-msa ROWS:EXTRA, such as 512:5120.",
    "--max-extra-seq": "use --max-msa ROWS:EXTRA, such as 512:5120.",
    "--num-ensemble": "there is one ensemble, as in ColabFold by default; --num-seeds adds predictions.",
    "--data": "use --params.",
    "--overwrite-existing-results": "use --overwrite.",
    "--msa-mode": "`foldcli fold` searches the database of --db; `foldcli predict` needs no search.",
    "--msa-only": "use `foldcli search --format a3m`.",
    "--calc-extra-ptm": "the scores of complexes always have ipTM and pTM of chains and pairs of chains.",
    "--host-url": "no server is used: give a database with `foldcli fold --db`.",
    "--disable-cluster-profile": "the profiles of the clusters are always used.",
    "--recompile-padding": "nothing to set: kernels are compiled once for all lengths.",
    "--disable-unified-memory": "use --max-memory to limit the GPU memory.",
    "--sort-queries-by": "nothing to set: the longest targets run first, after a few short ones.",
    "--skip-output": "use --no-plots and --no-report.",
    "--max-template-hits": "nothing to set: the networks take at most four templates.",
    "--relax-max-iterations": _RELAX_SETTINGS,
    "--relax-tolerance": _RELAX_SETTINGS,
    "--relax-stiffness": _RELAX_SETTINGS,
    "--relax-max-outer-iterations": _RELAX_SETTINGS,
    "--af3-json": "use `foldcli search --format af3`, which adds alignments to jobs.",
    "--user-agent": "no server is used: give a database with `foldcli fold --db`.",
    "--jobname-prefix": "names come from the headers or file names of the input.",
}
# the options of predictions that most people use
COMMON_OPTIONS = (
    "--out", "--db", "--params", "--num-models", "--num-recycle", "--num-seeds", "--random-seed",
    "--templates", "--no-templates", "--fast", "--evalue", "--max-seqs", "--format", "--device", "--threads",
    "--num-relax", "--reference", "--overwrite", "--dry-run", "--shard", "--quiet",
)  # fmt: skip
PAIRING_REPLACEMENTS = {"--pair-mode": _PAIRED_IN_FILE, "--pair-strategy": _PAIRED_IN_FILE}
SEARCH_REPLACEMENTS = {
    "--coverage": "use --min-coverage.",
    "--sub-mat": "use --matrix with a name, such as BLOSUM62.",
    "--gpu": "use --device cuda.",
    "--gpu-server": "use `foldcli serve` and `foldcli search --server`.",
    "--db-load-mode": "nothing to set: databases are mapped into memory.",
    "--prefilter-mode": "the filter is exact and has no modes.",
    "--use-env": "give further databases with --db, which can be repeated.",
    "--use-templates": "use `foldcli fold`, which searches templates.",
    "-s": "the filter is exact, so there is no sensitivity to choose; --fast searches once.",
}


CACHE_REPLACEMENTS = SEARCH_REPLACEMENTS | {
    "-c": "use --cache for the feature cache, --min-coverage for the coverage of hits."
}


def grouped(title: str, *decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine click options into one decorator, which lists them under a title in the help."""

    def decorate(function: Command) -> Command:
        earlier = set(getattr(function, "__click_params__", []))
        for decorator in reversed(decorators):
            function = decorator(function)
        for parameter in set(getattr(function, "__click_params__", [])) - earlier:
            vars(parameter)[_GROUP] = title
        return function

    return decorate


def _help_all_option() -> click.Option:
    """Return the option that shows the help with all options."""

    def show(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            assert isinstance(ctx.command, GroupedCommand)
            click.echo(ctx.command.get_full_help(ctx), color=ctx.color)
            ctx.exit()

    return click.Option(
        ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=show,
        help="Show this message with all options.",
    )  # fmt: skip


class GroupedCommand(click.Command):
    """A command whose options are in groups, made by `grouped`.

    Args:
        replacements: advice for options that the command does not have, by option.
        common: the options that --help lists; empty for all. Then --help-all lists the others too.
    """

    def __init__(
        self,
        *args: Any,
        replacements: Mapping[str, str] | None = None,
        common: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._replacements, self._common = replacements or {}, common

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, --help-all among them."""
        own = super().get_params(ctx)
        return [*own[:-1], _help_all_option(), *own[-1:]] if self._common else own

    def get_full_help(self, ctx: click.Context) -> str:
        """Return the help with all options."""
        ctx.meta[_HELP_ALL] = True
        return self.get_help(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups, in the order of their declaration; --help is in the last group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        title = "Options"
        shown = {*self._common, "--help", "--help-all"}
        everything = not self._common or _HELP_ALL in ctx.meta
        for parameter in self.get_params(ctx):
            if not everything and shown.isdisjoint(parameter.opts):
                continue
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                # --help has no group, and stays in the last one
                title = vars(parameter).get(_GROUP, title)
                groups.setdefault(title, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises:
            click.UsageError: an argument is invalid; for an option with a replacement, the message names it.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if (replacement := self._replacements.get(error.option_name)) is None:
                raise
            raise click.UsageError(f"{error.option_name}: {replacement}", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        Raises:
            click.UsageError: an option cannot be used; shown with the usage of this command.
        """
        try:
            return super().invoke(ctx)
        except OptionError as error:
            raise click.UsageError(str(error), ctx) from error


def parse_python_values(
    command: click.Command, inputs: Sequence[str], options: Mapping[str, Any], fixed: Mapping[str, Any]
) -> tuple[dict[str, Any], set[str]]:
    """Return the values of all parameters of a command, and the names of the given ones, from Python values.

    Args:
        command: the command.
        inputs: its arguments.
        options: values by option, without dashes, such as num_models=1; None selects the default.
        fixed: values by parameter; `options` cannot have them.

    Raises:
        TypeError: there is no such option.
        OptionError: an option has no such value.
    """
    values = dict(fixed)
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        known = (each for each in command.params if option in each.opts and each.name not in fixed)
        if not isinstance(parameter := next(known, None), click.Option):
            raise TypeError(f"no option {name!r}; `foldcli {command.name} --help-all` lists them")
        if value is not None and (value is not False or parameter.secondary_opts):
            values[str(parameter.name)] = _unparsed(parameter, value)
    try:
        context = command.make_context(command.name, ["--", *inputs], default_map=values)
    except click.UsageError as error:
        raise OptionError(error.format_message()) from error
    return context.params, given_options(context)


def _unparsed(option: click.Option, value: Any) -> Any:
    """Return a Python value as an option's type takes it: numbers are text, so that 0.5 is not cut to 0."""
    if value is True:
        if not (option.is_flag or isinstance(option.flag_value, str)):
            raise OptionError(f"{option.opts[0]} requires a value")
        return option.flag_value if isinstance(option.flag_value, str) else option.flag_value is not False
    is_single = isinstance(value, str | os.PathLike) or not isinstance(value, Iterable)
    values = [str(each) for each in ([value] if is_single else value)]
    return values if option.multiple else ",".join(values)
