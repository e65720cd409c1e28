"""Shell completion, through the protocol of each shell and in the shells themselves."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from foldcli.cli import COMMANDS

# like an installed `foldcli`; click derives the name of its variable from sys.argv[0]
PROGRAM = "#!{python}\nimport sys\nsys.argv[0] = 'foldcli'\nfrom foldcli.__main__ import main\nmain()\n"
HEAVY = {"torch", "numba", "numpy"}


@pytest.fixture(scope="module")
def shell_environment(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment with foldcli on the PATH, whether or not the package is installed."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "foldcli"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(root)}


def complete(shell: str, line: str, env: dict[str, str]) -> list[str]:
    """Return the completions of a line with the cursor at its end."""
    words = line.split(" ")
    cursor = {"bash": str(len(words) - 1), "zsh": str(len(words) - 1), "fish": words[-1]}[shell]
    request = {"_FOLDCLI_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": cursor}
    result = subprocess.run(["foldcli"], env=env | request, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    if shell == "zsh":
        # three lines per value: kind, value, help
        return [f"{kind}:{value}" for kind, value in zip(lines[::3], lines[1::3], strict=True)]
    pairs = [each.split("\t")[0].split(",", 1) for each in lines]
    return [f"{kind}:{value}" for kind, value in pairs]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_of_each_shell(shell_environment: dict[str, str], shell: str) -> None:
    assert complete(shell, "foldcli ", shell_environment) == [f"plain:{name}" for name in COMMANDS]
    assert complete(shell, "foldcli fold --layout c", shell_environment) == ["plain:colabfold"]
    assert complete(shell, "foldcli fold ex", shell_environment) == ["file:ex"]


def test_completions_of_options_and_values(shell_environment: dict[str, str]) -> None:
    assert complete("bash", "foldcli fo", shell_environment) == ["plain:fold"]
    assert "plain:--layout" in complete("bash", "foldcli predict --", shell_environment)
    assert complete("bash", "foldcli fold --device cu", shell_environment) == ["plain:cuda"]
    assert complete("bash", "foldcli help out", shell_environment) == ["plain:outputs"]
    # databases and parameters are files
    for line in ("foldcli fold q.fasta --db ex", "foldcli fold --params ex", "foldcli search ex"):
        assert complete("bash", line, shell_environment) == ["file:ex"]
    # parameters also have names
    names = {"": ["alphafold2", "compact", "openfold3", "template"], "com": ["compact"]}
    for start, expected in names.items():
        completions = complete("bash", f"foldcli predict --params {start}", shell_environment)
        assert completions == [f"file:{start}", *(f"plain:{name}" for name in expected)]


def test_completion_loads_nothing_heavy(shell_environment: dict[str, str]) -> None:
    code = (
        "import sys, atexit\n"
        "sys.argv = ['foldcli']\n"
        "atexit.register(lambda: print('loaded', *sys.modules, file=sys.stderr))\n"
        "from foldcli.__main__ import main\n"
        "main()\n"
    )
    request = {"_FOLDCLI_COMPLETE": "bash_complete", "COMP_WORDS": "foldcli fold --", "COMP_CWORD": "2"}
    result = subprocess.run(
        [sys.executable, "-c", code], env=shell_environment | request, capture_output=True, text=True
    )
    assert "plain,--layout" in result.stdout.splitlines()
    loaded = result.stderr.partition("loaded ")[2].split()
    assert "foldcli.commands.fold" in loaded and not HEAVY & set(loaded)


BASH = """{line}
complete -p foldcli
COMP_WORDS=(foldcli fold --lay) COMP_CWORD=2
_foldcli_completion foldcli
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("shell", "line", "script", "expected"),
    [
        ("bash", 'eval "$(_FOLDCLI_COMPLETE=bash_source foldcli)"', BASH,
         r"complete .*-F _foldcli_completion foldcli\n--layout"),
        ("fish --no-config", "_FOLDCLI_COMPLETE=fish_source foldcli | source",
         "{line}; complete -C 'foldcli fold --lay'", r"--layout(\t.*)?"),
        ("zsh -f", 'eval "$(_FOLDCLI_COMPLETE=zsh_source foldcli)"',
         "autoload -U compinit; compinit -u -D; {line}; echo $_comps[foldcli]", "_foldcli_completion"),
    ],
)  # fmt: skip
def test_shell_completes_with_the_documented_line(
    shell: str, line: str, script: str, expected: str, shell_environment: dict[str, str], root: Path
) -> None:
    program, *options = shell.split()
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")
    assert line in (root / "docs/completion.md").read_text()
    command = [program, *options, "-c", script.format(line=line)]
    result = subprocess.run(command, env=shell_environment, capture_output=True, text=True)
    assert re.fullmatch(expected, result.stdout.strip()), result.stdout + result.stderr
