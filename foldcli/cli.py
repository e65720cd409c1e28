"""The command group. Subcommands are imported when named, so `--help` needs neither torch nor numba."""

import importlib
import select
import sys
from typing import Any

import click

from foldcli.errors import ReaderGone
from foldcli.version import VERSION

# name → the one line shown by `foldcli --help`, repeated here so that listing imports nothing heavy;
# tests/foldcli/commands/test_help.py compares it with each command's own help.
COMMANDS = {
    "fold": "Take protein sequences to predicted structures: search, cache-features, predict.",
    "createdb": "Build a target database from FASTA files.",
    "search": "Search a target database with protein queries.",
    "serve": "Keep a target database ready for searches by other processes.",
    "cache-features": "Turn alignments into cached model features.",
    "cache": "List, check and prune a feature cache.",
    "predict": "Predict structures from alignments or cached features.",
    "report": "Make the reports of finished targets again.",
    "params": "Fetch, list and verify DeepMind's parameter files.",
    "doctor": "Say what works on this machine, what does not, and what to do.",
    "bench": "Measure this machine, and tune GPU kernels for it.",
    "help": "Read a page of the documentation.",
}


class LazyGroup(click.Group):
    """A click group whose subcommands live in `foldcli.commands.<name>` and load on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"foldcli.commands.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would make exit code 1 of it; a server's socket may be what broke, too
            if _reader_is_gone():
                raise ReaderGone from error
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _reader_is_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, "--version", message="%(version)s")
def cli() -> None:
    """From a protein sequence to a predicted structure, on your own machine.

    \b
    foldcli search → foldcli cache-features → foldcli predict, chained by foldcli fold.
    """
