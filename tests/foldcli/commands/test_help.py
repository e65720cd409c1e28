"""Help texts, their speed, and usage errors."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from foldcli.cli import COMMANDS, cli
from foldcli.version import VERSION

FOLDCLI = [sys.executable, "-m", "foldcli"]


def test_version_prints_only_the_version() -> None:
    result = subprocess.run([*FOLDCLI, "--version"], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{VERSION}\n", "")


def test_help_loads_nothing_heavy() -> None:
    commands = [["--help"], ["--version"], ["bench", "gapless", "--help"]]
    commands += [[name, "--help"] for name in COMMANDS]
    code = (
        "import sys, runpy, io, contextlib\n"
        f"for arguments in {commands!r}:\n"
        "    sys.argv = ['foldcli', *arguments]\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):\n"
        "        runpy.run_module('foldcli', run_name='__main__')\n"
        "    heavy = {'torch', 'numba', 'numpy', 'Bio', 'gemmi'} & sys.modules.keys()\n"
        "    assert output.getvalue() and not heavy, (arguments, heavy)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", COMMANDS)
def test_listed_summary_equals_the_help_of_the_command(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.help
    assert command.help.strip().splitlines()[0] == COMMANDS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    commands = command.commands.values() if isinstance(command, click.Group) else [command]
    for each in commands:
        assert each.help
        for parameter in each.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{each.name} {parameter.opts}"


def test_reference_page_is_up_to_date(root: Path) -> None:
    expected = subprocess.run(
        [sys.executable, "-c", "import generate_cli; print(generate_cli.page(), end='')"],
        cwd=root / "docs",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (root / "docs" / "cli.md").read_text() == expected, "run python docs/generate_cli.py"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("folld", "fold"),
        ("easy-search", "search"),
        ("easy_search", "search"),
        ("colabfold_batch", "fold"),
        ("colabfold_search", "search"),
        ("run_alphafold.py", "fold"),
        ("predcit", "predict"),
        ("zzz", None),
    ],
)
def test_wrong_command_gets_a_suggestion(name: str, meant: str | None) -> None:
    result = CliRunner().invoke(cli, [name, "q.fasta"])
    question = f" Did you mean `foldcli {meant}`?" if meant else ""
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == f"Error: No such command {name!r}.{question}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["folde"], "No such command 'folde'"),
        (["fold", "--no-such-option"], "No such option"),
        (["fold"], "Missing argument"),
    ],
)
def test_usage_errors_exit_with_2(arguments: list[str], message: str) -> None:
    result = subprocess.run([*FOLDCLI, *arguments], capture_output=True, text=True)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_default_numbers_have_no_parentheses() -> None:
    help_text = " ".join(CliRunner().invoke(cli, ["fold", "--help-all"]).output.split())
    assert "Number of seeds to run. [default: 1; x>=1]" in help_text
    assert "[default: (0: none); 0<=x<1]" in help_text


def test_closed_stdout_is_not_an_error(root: Path) -> None:
    command = [*FOLDCLI, "search", root / "examples/ubiquitin.fasta", root / "examples/demo.fasta", "-o", "-"]
    search = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert search.stdout is not None
    search.stdout.close()
    _, stderr = search.communicate()
    assert search.returncode == 0, stderr
    assert b"rror" not in stderr


@pytest.mark.parametrize(
    ("redirections", "code", "reason"),
    [
        ("> /dev/full", 4, "no space left on the disk"),
        (">&-", 1, "Bad file descriptor"),
        ("> /dev/null 2> /dev/full", 0, ""),
        ("> /dev/null 2>&- <&-", 0, ""),
    ],
)
def test_results_that_are_not_written_are_an_error(
    root: Path, redirections: str, code: int, reason: str
) -> None:
    # their few lines stay in a buffer to the end
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    files = [root / "examples/ubiquitin.fasta", root / "examples/demo.fasta"]
    shell = ["sh", "-c", f'exec "$@" {redirections}', "sh", *FOLDCLI, "search", *files, "-o", "-"]
    result = subprocess.run(shell, capture_output=True, text=True, env=environment)
    assert result.returncode == code, result.stderr
    assert reason in result.stderr and "Traceback" not in result.stderr and "ignored" not in result.stderr
