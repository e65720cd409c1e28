"""Tests of temporary files: those of ended writers are removed, those of running writers are not."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from features.alphafold2.deterministic import make_features
from features.cache import cache as cache_module
from features.cache import cleanup
from features.cache.cache import FeatureCache, cache_key
from features.cache.cleanup import find_abandoned, remove_abandoned, temporary_prefix
from features.cache.entry import read_entry
from tests.msa.alignments.alignment_builders import single_sequence

KEY = "ab" * 32
context = multiprocessing.get_context("fork")


def write_temporary(root: Path) -> Path:
    path = Path(f"{temporary_prefix(root, KEY)}xyz.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half an entry")
    return path


def write_and_die(root: Path) -> None:
    write_temporary(root)
    os.kill(os.getpid(), signal.SIGKILL)


def make_older(path: Path, seconds: float) -> None:
    status = path.stat()
    os.utime(path, (status.st_atime, status.st_mtime - seconds))


def test_file_of_a_killed_writer_is_removed_and_that_of_a_running_one_is_kept(tmp_path: Path) -> None:
    ours = write_temporary(tmp_path)
    make_older(ours, 1e6)
    writer = context.Process(target=write_and_die, args=(tmp_path,))
    writer.start()
    # its exit code is not read yet, so it is a zombie, which still has its process id
    os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)
    (theirs,) = (path for path in (tmp_path / "tmp").iterdir() if path != ours)
    assert find_abandoned(tmp_path) == [theirs]
    writer.join()
    assert find_abandoned(tmp_path) == [theirs]
    assert remove_abandoned(tmp_path) == [theirs]
    assert list((tmp_path / "tmp").iterdir()) == [ours]


def test_reused_process_id_is_another_writer(tmp_path: Path) -> None:
    ours = write_temporary(tmp_path)
    table, _, start = ours.name.split(".")[1].split("-")
    reused = ours.with_name(ours.name.replace(f"-{start}.", f"-{int(start) - 1}."))
    ours.rename(reused)
    assert find_abandoned(tmp_path) == [reused]
    # a writer with unknown start time counts as running
    unknown = reused.rename(ours.with_name(ours.name.replace(f"-{start}.", "-0.")))
    assert find_abandoned(tmp_path) == []
    # a running process to which no signal may be sent
    unknown.rename(ours.with_name(f"{KEY}.{table}-1-0.xyz.tmp"))
    assert find_abandoned(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [f"tmp/{KEY}.0123456789ab-1-2.xyz.tmp", "tmp/else.tmp", ".failures.jsonl.x.tmp"],
)
def test_only_old_files_of_other_machines_are_removed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    make_older(path, cleanup.ABANDONED_AFTER - 600)
    assert remove_abandoned(tmp_path) == []
    make_older(path, 1200)
    assert find_abandoned(tmp_path) == [path]
    assert remove_abandoned(tmp_path) == [path]
    assert not path.exists()


def test_entries_and_other_files_are_kept(tmp_path: Path) -> None:
    FeatureCache(tmp_path).load_or_make([single_sequence("x", "MKV")])
    for name in ("notes.tmp", "failures.jsonl", "tmp/notes"):
        (tmp_path / name).write_text("")
    before = sorted(tmp_path.rglob("*"))
    for path in before:
        make_older(path, 1e6)
    assert remove_abandoned(tmp_path) == []
    assert sorted(tmp_path.rglob("*")) == before
    assert remove_abandoned(tmp_path / "none") == []


def test_storing_removes_files_of_killed_writers(tmp_path: Path) -> None:
    writer = context.Process(target=write_and_die, args=(tmp_path,))
    writer.start()
    writer.join()
    assert len(list((tmp_path / "tmp").iterdir())) == 1
    FeatureCache(tmp_path).load_or_make([single_sequence("x", "MKV")])
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("removals", [1, 2])
def test_entry_is_written_again_if_its_temporary_file_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removals: int
) -> None:
    alignments = [single_sequence("x", "MKV")]
    key = cache_key(alignments)
    original, removed = cache_module.atomic_write, []

    class Remover:
        """A wrapper of atomic_write that removes the temporary file before it is renamed."""

        def __init__(self, *arguments: object) -> None:
            self.inner = original(*arguments)

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
