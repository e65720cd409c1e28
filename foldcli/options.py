"""Options that several subcommands share, so that they are named and behave alike everywhere."""

import os
from typing import Any

import click

from foldcli.shard import Shard


class ShardType(click.ParamType):
    """click type of `--shard I/N`."""

    name = "I/N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Shard:
        if isinstance(value, Shard):
            return value
        try:
            return Shard.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def available_cores() -> int:
    """Cores this process may use: the scheduler's affinity mask, not the machine's count."""
    return len(os.sched_getaffinity(0))


threads_option = click.option(
    "--threads",
    type=click.IntRange(1),
    default=available_cores,
    show_default="the cores this process may use",
    help="CPU threads.",
)
shard_option = click.option(
    "--shard",
    type=ShardType(),
    default="1/1",
    show_default=True,
    help="Do every N-th target of the sorted names, from the I-th (1-based).",
)
overwrite_option = click.option("--overwrite", is_flag=True, help="Redo what is already there.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Only warnings and errors on stderr.")
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Say more on stderr.")
