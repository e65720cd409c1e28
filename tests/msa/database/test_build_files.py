"""Folders appear only when complete, and a build removes the folders of killed builds."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from msa.database import build_files
from msa.database.build_files import publish, temporary_folder


def build(final: Path, replace: bool = False) -> None:
    with temporary_folder(final) as folder:
        (folder / "file").write_text("content")
        publish(folder, final, replace)


def test_published_folder_has_its_files_and_permissions(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        build(tmp_path / "new" / "final")
    finally:
        os.umask(old)
    assert os.listdir(tmp_path / "new") == ["final"]
    assert os.listdir(tmp_path / "new" / "final") == ["file"]
    assert (tmp_path / "new" / "final").stat().st_mode & 0o777 == 0o750


def test_unpublished_folder_is_removed(tmp_path: Path) -> None:
    with temporary_folder(tmp_path / "final") as folder:
        (folder / "file").write_text("content")
        assert not (tmp_path / "final").exists()
    assert os.listdir(tmp_path) == []


def test_existing_folder_is_replaced_only_if_requested(tmp_path: Path) -> None:
    build(tmp_path / "final")
    (tmp_path / "final" / "file").write_text("first")
    with pytest.raises(FileExistsError):
        build(tmp_path / "final")
    assert (tmp_path / "final" / "file").read_text() == "first"
    build(tmp_path / "final", replace=True)
    assert (tmp_path / "final" / "file").read_text() == "content"
    assert os.listdir(tmp_path) == ["final"]


def test_existing_folder_is_restored_if_its_replacement_fails(tmp_path: Path) -> None:
    build(tmp_path / "final")
    with pytest.raises(FileNotFoundError):
        build_files._swap(tmp_path / "absent", tmp_path / "final")
    assert os.listdir(tmp_path) == ["final"] and os.listdir(tmp_path / "final") == ["file"]


def test_file_as_parent_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError) as caught:
        build(tmp_path / "file" / "final")
    assert caught.value.filename == str(tmp_path / "file")


def test_folders_of_killed_builds_are_removed_and_those_of_running_builds_kept(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from msa.database.build_files import temporary_folder\n"
        "with temporary_folder(pathlib.Path(sys.argv[1])) as folder:\n"
        "    (folder / 'big').write_text('content')\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    final = tmp_path / "a[b]*"  # a name with wildcards must not match others
    other = tmp_path / "ab"
    owners = []
    for name in (final, other):
        owner = subprocess.Popen(
            [sys.executable, "-c", code, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        owners.append(owner)
    assert len(os.listdir(tmp_path)) == 2
    build(final)
    assert len(os.listdir(tmp_path)) == 3, "both builds are running"
    for owner in owners:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
    build(final, replace=True)
    assert sorted(os.listdir(tmp_path))[1:] == ["a[b]*"]
    assert sorted(os.listdir(tmp_path))[0].startswith(".ab.")
    build(other)
    assert sorted(os.listdir(tmp_path)) == ["a[b]*", "ab"]
