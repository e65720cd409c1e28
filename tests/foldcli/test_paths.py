"""Folders that foldcli reads and writes."""

import os
from pathlib import Path

import pytest

from foldcli.errors import ExitCode, NoCacheFolder, exit_code_of, is_bug
from foldcli.paths import cache_dir, check_writable_folder, make_writable_folder


def test_cache_folder_comes_from_the_first_variable_that_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "own"
    monkeypatch.delenv("FOLDCLI_CACHE")
    assert cache_dir() == tmp_path / "xdg" / "foldcli"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "foldcli"


def test_without_a_home_folder_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FOLDCLI_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    # as of a user that the system does not know
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(NoCacheFolder, match="no home folder for the cache: set FOLDCLI_CACHE") as caught:
        cache_dir()
    assert exit_code_of(caught.value) == ExitCode.MISSING and not is_bug(caught.value)


def test_folder_under_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError) as caught:
        make_writable_folder(tmp_path / "file" / "out")
    assert str(tmp_path / "file") in str(caught.value)


def test_check_of_a_folder_creates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "a" / "b", Path("c"), Path("d/e"), Path()):
        check_writable_folder(folder)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "missing")
    for name in ("file", "file/out", "dangling/out"):
        with pytest.raises(OSError) as caught:
            check_writable_folder(tmp_path / name)
        assert str(tmp_path / name.split("/")[0]) in str(caught.value)
