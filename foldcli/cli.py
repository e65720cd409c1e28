"""The `foldcli` command group.

A subcommand's module is imported when the subcommand is named, so `foldcli --help` loads neither torch nor
numba.
"""

import difflib
import importlib
import select
import sys
from typing import Any

import click

from foldcli.errors import StdoutClosed
from foldcli.logs import logs_json
from foldcli.version import VERSION

# The line that `foldcli --help` shows for each command, repeated here so that listing them imports nothing
# heavy. tests/foldcli/commands/test_help.py compares it with the command's own help.
COMMANDS = {
    "fold": "Predict structures of proteins and other molecules: search, cache-features, predict.",
    "screen": "Predict many complexes of the same chains, and rank them.",
    "createdb": "Build a target database from FASTA files, or a structure library.",
    "db": "Fetch databases of sequences or structures, and list those that are known.",
    "search": "Search a target database with protein queries.",
    "templates": "Search a structure library for templates, and write tables or AlphaFold 3's entries.",
    "merge-hits": "Merge the hits of searches of all parts of a split database.",
    "library": "Describe, list and verify structure libraries.",
    "serve": "Keep a target database loaded for searches by other processes.",
    "cache-features": "Turn alignments into cached model features.",
    "cache": "List, check and prune a feature cache.",
    "predict": "Predict structures from alignments or cached features.",
    "relax": "Relax structures with the Amber force field.",
    "training-data": "Make training data from structures of your own.",
    "train": "Train a network on experimental chains.",
    "compare": "Compare models with an experimental structure.",
    "report": "Regenerate the reports of finished targets, and merge the tables of array jobs.",
    "params": "Fetch, list and verify parameter files of DeepMind and OpenFold3.",
    "warmup": "Compile the GPU kernels of search and network ahead of the first run.",
    "doctor": "Check what works on this machine and suggest how to fix the rest.",
    "bench": "Measure this machine, and tune GPU kernels for it.",
    "help": "Read a page of the documentation.",
}


# commands by the names of similar programs and commands of ColabFold, MMseqs2, HH-suite and AlphaFold
OTHER_NAMES = {
    "colabfold": "fold",
    "colabfold-batch": "fold",
    "colabfold-relax": "relax",
    "colabfold-search": "search",
    "convertalis": "search",
    "createindex": "createdb",
    "easy-search": "search",
    "gpuserver": "serve",
    "hhblits": "search",
    "hhsearch": "search",
    "jackhmmer": "search",
    "makepaddedseqdb": "createdb",
    "run-alphafold": "fold",
}


class LazyGroup(click.Group):
    """A click group that imports the subcommand NAME from `foldcli.commands.NAME` when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if there is no command of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"foldcli.commands.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name, the command and its arguments.

        Raises:
            click.UsageError: there is no command of that name; the message suggests a similar one.
        """
        name = args[0]
        if name in COMMANDS or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"No such command {name!r}.{suggestion(name)}", ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        Raises:
            StdoutClosed: the reader of standard output has closed it.
            click.Abort: an interruption, with JSON messages.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would exit with 1; the broken pipe may also be the socket of a search server
            if _stdout_is_closed():
                raise StdoutClosed from error
            raise
        except KeyboardInterrupt as error:
            if logs_json():
                # click would write an empty line, which is no JSON
                raise click.Abort from error
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def suggestion(name: str) -> str:
    """Return a question about the command that a wrong name may mean, or "" if none is similar."""
    known = {command: command for command in COMMANDS} | OTHER_NAMES
    word = name.lower().removesuffix(".py").replace("_", "-")
    similar = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean `foldcli {known[similar[0]]}`?" if similar else ""


def _stdout_is_closed() -> bool:
    """Return True if standard output is a pipe whose reader has closed it."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, "--version", message="%(version)s")
def cli() -> None:
    """Predict structures of proteins and other molecules, on your own machine.

    \b
    foldcli search → foldcli cache-features → foldcli predict, chained by foldcli fold.
    """
