"""The tutorial does what it says: its commands are run in order, and its outputs compared."""

import re
import subprocess
from pathlib import Path

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def steps(page: Path) -> list[tuple[str, str | None]]:
    """Commands of the page, each with what stands under it as its output, if anything."""
    found: list[tuple[str, str | None]] = []
    for language, text in BLOCK.findall(page.read_text()):
        assert language in ("sh", "text"), f"{page.name}: a block of {language or 'no language'}"
        if language == "sh":
            found.append((text, None))
        else:
            command, shown = found.pop()
            assert shown is None, f"{page.name}: two outputs of {command!r}"
            found.append((command, text))
    return found


def pattern(shown: str) -> str:
    """A regular expression for an output in which … stands for anything within a line."""
    return "[^\n]*".join(map(re.escape, shown.split("…")))


def test_every_block_does_what_the_page_says(root: Path, installed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(root / "examples")
    # the wheel is what people have; a GPU would only make the run take another way
    environment = installed | {"CUDA_VISIBLE_DEVICES": ""}
    commands = steps(root / "docs/tutorial.md")
    assert len(commands) >= 10
    for command, shown in commands:
        bash = ["bash", "-euo", "pipefail", "-c", command]
        done = subprocess.run(bash, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        if shown is not None:
            assert re.fullmatch(pattern(shown), done.stdout), f"{command}\n{done.stdout}\n{done.stderr}"
