"""Write docs/cli.md from the commands themselves: `python docs/generate_cli.py`; a test compares it."""

from pathlib import Path

import click

from foldcli.cli import COMMANDS, cli

PAGE = Path(__file__).with_name("cli.md")
INTRODUCTION = """# Command line reference

Made from the commands by `python docs/generate_cli.py`; do not edit by hand.

Everywhere: `-` reads standard input; gzip, bzip2, xz and zstd are recognised by their first bytes; messages
and bars go to stderr, data to stdout only when asked (`-o -`). Settings come from the command line alone;
[variables](exit-codes-and-environment.md#environment-variables) say where things are, above all
`FOLDCLI_CACHE`: the folder for built databases, features and parameters (default `$XDG_CACHE_HOME/foldcli`,
then `~/.cache/foldcli`). Nothing but `params fetch` uses the network.

| exit code | meaning |
|---|---|
| 0 | all done |
| 1 | unexpected error |
| 2 | usage |
| 3 | bad input: file, line and reason are named |
| 4 | something needed is missing (parameters, a database, a driver), and how to get it; `doctor`: broken |
| 5 | some targets failed, listed in `OUT/failures.jsonl`; the others are finished |
| 130 | interrupted; the same command continues |
"""


def page() -> str:
    """The whole page as Markdown."""
    parts = [INTRODUCTION, _section(cli, "foldcli")]
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        parts.append(_section(command, f"foldcli {name}"))
        if isinstance(command, click.Group):
            parts += [_section(each, f"foldcli {name} {own}") for own, each in command.commands.items()]
    return "\n".join(parts)


def _section(command: click.Command, path: str) -> str:
    # a fixed width and name, so that the page does not depend on who makes it
    context = click.Context(command, info_name=path, max_content_width=100, terminal_width=100)
    return f"## {path}\n\n```text\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
