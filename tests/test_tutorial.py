"""The tutorial: its commands are run in order, and their outputs compared with the page."""

import re
import subprocess
from pathlib import Path

import pytest

from model.checkpoints.network_folder import COMPACT_FOLDER

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not COMPACT_FOLDER.exists(), reason="no compact network in the package"),
]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def steps(page: Path) -> list[tuple[str, str | None]]:
    """Return the commands of a page, each with the output below it, or None."""
    commands: list[tuple[str, str | None]] = []
    for language, text in BLOCK.findall(page.read_text()):
        assert language in ("sh", "text"), f"{page.name}: a block of {language or 'no language'}"
        if language == "sh":
            commands.append((text, None))
        else:
            command, output = commands.pop()
            assert output is None, f"{page.name}: two outputs of {command!r}"
            commands.append((command, text))
    return commands


def pattern(output: str) -> str:
    """Return a regular expression for an output in which … stands for anything within a line."""
    return "[^\n]*".join(map(re.escape, output.split("…")))


def test_commands_have_the_documented_output(root: Path, installed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(root / "examples")
    # users install the wheel; without a GPU the run is the same on every machine
    environment = installed | {"CUDA_VISIBLE_DEVICES": ""}
    commands = steps(root / "docs/tutorial.md")
    assert len(commands) >= 10
    for command, output in commands:
        bash = ["bash", "-euo", "pipefail", "-c", command]
        result = subprocess.run(bash, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, f"{command}\n{result.stderr}"
        if output is not None:
            matches = re.fullmatch(pattern(output), result.stdout)
            assert matches, f"{command}\n{result.stdout}\n{result.stderr}"
