"""The `foldcli` command lines of the documentation: existing commands and options, valid values."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from foldcli.cli import cli

FENCED = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^(?: {4}|\t).*\n)+", re.MULTILINE)
ANY_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
# shell variables used as values of numeric options
NUMBERS = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_CPUS_PER_TASK": "8", "i": "1"}
NUMBERS["shards"] = "4"


def shell(page: Path) -> str:
    """Return a page's shell code: fenced as sh, or indented."""
    text = page.read_text()
    return "\n".join(FENCED.findall(text) + INDENTED.findall(ANY_FENCE.sub("", text)))


def command_lines(code: str) -> Iterator[list[str]]:
    """Yield the arguments of each call of foldcli, with variables replaced and without redirections."""
    for line in re.sub(r"\s*\\\n\s*", " ", code).splitlines():
        # skip synopses such as `foldcli fold [OPTIONS]`
        if not re.search(r"\bfoldcli\s", line) or re.search(r"[\[…]|\.\.\.", line.replace("[cuda]", "")):
            continue
        # remove explanations, which are in a separate column
        line = re.split(r"(?<=\S) {2,}", line)[0]
        line = re.sub(r"\$\(\(.*?\)\)", "1", line)
        line = re.sub(r"\$\{?(\w+)\}?", lambda match: NUMBERS.get(match[1], "value"), line)
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
        lexer.whitespace_split = True
        yield from calls(list(lexer))


def calls(words: list[str]) -> Iterator[list[str]]:
    """Yield the calls of foldcli in the words of one line."""
    while "foldcli" in words:
        words = words[words.index("foldcli") + 1 :]
        end = next((i for i, word in enumerate(words) if re.fullmatch(r"[&|;<>]+", word)), len(words))
        call, words = words[:end], words[end:]
        # remove the number of a redirected stream, as in `2>`
        if words and ">" in words[0] and call and call[-1] == "2":
            call = call[:-1]
        yield call


def parse(arguments: list[str]) -> None:
    """Let click parse the arguments without running the command.

    Raises:
        click.UsageError: there is no such command or option, or a value is invalid.
    """
    command: click.Command = cli
    while isinstance(command, click.Group):
        if not arguments or arguments[0] in ("--help", "--version"):
            return
        name, arguments = arguments[0], arguments[1:]
        group = command
        subcommand = group.get_command(click.Context(group), name)
        if subcommand is None:
            raise click.UsageError(f"no command {name}")
        command = subcommand
    if "--help" not in arguments:
        try:
            command.make_context("foldcli", list(arguments)).close()
        except click.BadParameter as error:
            # the files of the examples do not exist here
            if error.param is None or not isinstance(error.param.type, click.Path):
                raise


def test_command_lines_are_valid(root: Path, page: Path) -> None:
    for arguments in command_lines(shell(page)):
        try:
            parse(arguments)
        except click.UsageError as error:
            raise AssertionError(f"{page.name}: foldcli {shlex.join(arguments)}: {error.message}") from error


def test_how_tos_have_command_lines(root: Path) -> None:
    for page in (root / "docs/how-to").glob("*.md"):
        assert len(list(command_lines(shell(page)))) >= 2, page


def test_command_lines_of_the_batch_script_are_valid(root: Path) -> None:
    code = (root / "examples/slurm/fold_array.sbatch").read_text()
    calls_in_script = list(command_lines(re.sub("^#", "", code, flags=re.MULTILINE)))
    assert any("--shard" in arguments for arguments in calls_in_script)
    for arguments in calls_in_script:
        parse(arguments)


def test_first_command_of_the_readme_is_run_by_ci(root: Path) -> None:
    command = re.search(
        r"^ {4}(pip install \. && foldcli fold .* -o )out$", (root / "README.md").read_text(), re.M
    )
    assert command is not None
    assert command[1] in (root / ".ci/run").read_text()
