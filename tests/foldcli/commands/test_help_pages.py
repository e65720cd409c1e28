"""`foldcli help`: the pages of docs/, from a checkout and from a wheel without one."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from foldcli.cli import COMMANDS


def foldcli(*arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path[0] = {str(path)!r}; from foldcli.__main__ import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd="/", capture_output=True, text=True)


def test_every_page_is_a_topic_with_a_title(root: Path) -> None:
    listed = foldcli("help", path=root)
    assert listed.returncode == 0, listed.stderr
    topics = dict(re.findall(r"^  (\S+) +(\S.*)$", listed.stdout, re.MULTILINE))
    docs = root / "docs"
    pages = {str(page.relative_to(docs).with_suffix("")): page for page in docs.rglob("*.md")}
    del pages["README"]
    assert set(topics) == set(pages) >= {"inputs", "outputs", "completion", "cli", "how-to/resume"}
    for name in ("outputs", "completion"):
        assert foldcli("help", name, path=root).stdout == pages[name].read_text() + "\n"


def test_command_without_a_page_shows_its_help(root: Path) -> None:
    name = next(name for name in COMMANDS if not (root / f"docs/{name}.md").exists())
    shown = foldcli("help", name, path=root)
    assert shown.returncode == 0 and shown.stdout.startswith(f"Usage: foldcli {name} [OPTIONS]")
    wrong = foldcli("help", "no-such", path=root)
    assert wrong.returncode == 2 and "there is no topic 'no-such'" in wrong.stderr


@pytest.mark.slow
def test_wheel_contains_the_pages(root: Path, wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
        pages = [name for name in archive.namelist() if name.startswith("foldcli/docs/")]
    assert pages and all(name.endswith(".md") for name in pages)
    assert foldcli("help", path=tmp_path / "site").stdout == foldcli("help", path=root).stdout
    page = foldcli("help", "how-to/resume", path=tmp_path / "site")
    assert page.stdout == (root / "docs/how-to/resume.md").read_text() + "\n"
