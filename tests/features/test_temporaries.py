"""Temporary files of writers that are gone are removed, and those of living ones are not."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from features import cache as cache_module
from features import temporaries
from features.cache import FeatureCache, cache_key, read_entry
from features.deterministic import make_features
from features.temporaries import abandoned, remove_abandoned, temporary_prefix
from tests.msa.io.alignment_builders import single_sequence

KEY = "ab" * 32
context = multiprocessing.get_context("fork")


def leave_temporary(root: Path) -> Path:
    path = Path(f"{temporary_prefix(root, KEY)}xyz.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half of an ent")
    return path


def leave_and_die(root: Path) -> None:
    leave_temporary(root)
    os.kill(os.getpid(), signal.SIGKILL)


def make_old(path: Path, seconds: float) -> None:
    status = path.stat()
    os.utime(path, (status.st_atime, status.st_mtime - seconds))


def test_a_killed_writers_file_is_removed_at_once_and_a_living_ones_never(tmp_path: Path) -> None:
    ours = leave_temporary(tmp_path)
    make_old(ours, 1e6)
    writer = context.Process(target=leave_and_die, args=(tmp_path,))
    writer.start()
    # its exit code has not been asked for: it is a zombie, which still has its number
    os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)
    (theirs,) = (path for path in (tmp_path / "tmp").iterdir() if path != ours)
    assert abandoned(tmp_path) == [theirs]
    writer.join()
    assert abandoned(tmp_path) == [theirs]
    assert remove_abandoned(tmp_path) == [theirs]
    assert list((tmp_path / "tmp").iterdir()) == [ours]


def test_a_number_given_out_again_is_another_writer(tmp_path: Path) -> None:
    ours = leave_temporary(tmp_path)
    table, _, start = ours.name.split(".")[1].split("-")
    later = ours.with_name(ours.name.replace(f"-{start}.", f"-{int(start) - 1}."))
    ours.rename(later)
    assert abandoned(tmp_path) == [later]
    # who wrote without knowing when it began is believed to live
    unknown = later.rename(ours.with_name(ours.name.replace(f"-{start}.", "-0.")))
    assert abandoned(tmp_path) == []
    # a process that no signal may be sent to, but is there
    unknown.rename(ours.with_name(f"{KEY}.{table}-1-0.xyz.tmp"))
    assert abandoned(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [
        f"tmp/{KEY}.0123456789ab-1-2.xyz.tmp",
        "tmp/else.tmp",
        f"ab/.{KEY}.safetensors.x1.tmp",
        ".failures.jsonl.x.tmp",
    ],
)
def test_of_other_machines_only_old_files_are_removed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    make_old(path, temporaries.ABANDONED_AFTER - 600)
    assert remove_abandoned(tmp_path, everywhere=True) == []
    make_old(path, 1200)
    assert abandoned(tmp_path) == ([path] if name.startswith("tmp") else [])
    assert abandoned(tmp_path, everywhere=True) == [path]
    assert remove_abandoned(tmp_path, everywhere=True) == [path]
    assert not path.exists()


def test_entries_and_other_files_stay(tmp_path: Path) -> None:
    FeatureCache(tmp_path).load_or_make([single_sequence("x", "MKV")])
    for name in ("notes.tmp", "failures.jsonl", "tmp/notes"):
        (tmp_path / name).write_text("")
    before = sorted(tmp_path.rglob("*"))
    for path in before:
        make_old(path, 1e6)
    assert remove_abandoned(tmp_path, everywhere=True) == []
    assert sorted(tmp_path.rglob("*")) == before
    assert remove_abandoned(tmp_path / "none") == []


def test_storing_removes_what_killed_writers_left(tmp_path: Path) -> None:
    writer = context.Process(target=leave_and_die, args=(tmp_path,))
    writer.start()
    writer.join()
    assert len(list((tmp_path / "tmp").iterdir())) == 1
    FeatureCache(tmp_path).load_or_make([single_sequence("x", "MKV")])
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("removals", [1, 2])
def test_an_entry_whose_temporary_file_was_removed_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removals: int
) -> None:
    alignments = [single_sequence("x", "MKV")]
    key = cache_key(alignments)
    plain, removed = cache_module.atomic_write, []

    class Remover:
        """atomic_write, with the file gone before it takes its name."""

        def __init__(self, *arguments: object) -> None:
            self.inner = plain(*arguments)

        def __enter__(self) -> object:
            return self.inner.__enter__()

        def __exit__(self, *error: object) -> object:
            if len(removed) < removals:
                (path,) = (tmp_path / "tmp").iterdir()
                path.unlink()
                removed.append(path)
            return self.inner.__exit__(*error)

    monkeypatch.setattr(cache_module, "atomic_write", Remover)
    store = FeatureCache(tmp_path).store
    if removals == 1:
        read_entry(store(key, make_features(alignments)), key)
    else:
        with pytest.raises(FileNotFoundError, match=key):
            store(key, make_features(alignments))
    assert len(removed) == removals
    assert list((tmp_path / "tmp").iterdir()) == []
