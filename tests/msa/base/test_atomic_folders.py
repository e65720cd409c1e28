"""Folders appear only when complete, and a build removes the folders of killed builds."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from msa.base import atomic_folders
from msa.base.atomic_folders import publish, restore_replaced, temporary_folder
from msa.base.errors import InputError


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
    with pytest.raises(InputError, match="final: created by another build in the meantime"):
        build(tmp_path / "final")
    assert (tmp_path / "final" / "file").read_text() == "first"
    build(tmp_path / "final", replace=True)
    assert (tmp_path / "final" / "file").read_text() == "content"
    assert os.listdir(tmp_path) == ["final"]


def test_existing_folder_is_restored_if_its_replacement_fails(tmp_path: Path) -> None:
    build(tmp_path / "final")
    with pytest.raises(FileNotFoundError):
        atomic_folders._swap(tmp_path / "absent", tmp_path / "final")
    assert os.listdir(tmp_path) == ["final"] and os.listdir(tmp_path / "final") == ["file"]


@pytest.mark.parametrize("exchanges", [True, False])
def test_folder_is_replaced_with_and_without_an_atomic_exchange(
    tmp_path: Path, exchanges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchanges:
        monkeypatch.setattr(atomic_folders, "_exchange", lambda *_: False)
    build(tmp_path / "final")
    (tmp_path / "final" / "file").write_text("first")
    build(tmp_path / "final", replace=True)
    assert os.listdir(tmp_path) == ["final"]
    assert (tmp_path / "final" / "file").read_text() == "content"
    # a link is replaced, not what it refers to
    (tmp_path / "link").symlink_to("final")
    build(tmp_path / "link", replace=True)
    assert sorted(os.listdir(tmp_path)) == ["final", "link"] and not (tmp_path / "link").is_symlink()


KILLED_IN_PUBLISH = """
import os, pathlib, sys
from msa.base import atomic_folders

final, exchanges, deadly = pathlib.Path(sys.argv[1]), sys.argv[2] == "True", int(sys.argv[3])
if not exchanges:
    atomic_folders._exchange = lambda *_: False
changes = 0
def change(event, arguments):
    global changes
    if event in ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "ctypes.dlsym"):
        changes += 1
        if changes == deadly:
            os.kill(os.getpid(), 9)
sys.addaudithook(change)
with atomic_folders.temporary_folder(final) as folder:
    (folder / "file").write_text("new")
    atomic_folders.publish(folder, final, True)
"""


@pytest.mark.parametrize("exchanges", [True, False])
def test_next_build_cleans_up_after_a_kill_at_any_change(tmp_path: Path, exchanges: bool) -> None:
    final, killed = tmp_path / "final", 0
    for deadly in range(1, 20):
        shutil.rmtree(final, ignore_errors=True)
        build(final)
        (final / "file").write_text("old")
        command = [sys.executable, "-c", KILLED_IN_PUBLISH, final, str(exchanges), str(deadly)]
        result = subprocess.run(command)
        if result.returncode == 0:
            break
        killed += 1
        assert final.exists() or not exchanges, "with an exchange there is a folder at every moment"
        restore_replaced(final)
        assert (final / "file").read_text() in ("old", "new")
        build(final, replace=True)
        assert os.listdir(tmp_path) == ["final"]
    assert 2 <= killed < 19


def test_file_as_parent_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError) as caught:
        build(tmp_path / "file" / "final")
    assert caught.value.filename == str(tmp_path / "file")


def test_folders_of_killed_builds_are_removed_and_those_of_running_builds_kept(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from msa.base.atomic_folders import temporary_folder\n"
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
