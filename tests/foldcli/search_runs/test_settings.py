"""Tables of hits: devices as outputs, full disks, and files of killed searches."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foldcli.errors import OptionError
from foldcli.inputs.queries import QuerySources
from foldcli.inputs.shard import Shard
from foldcli.outputs.resumable_table import open_table
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.search_runs.folder import write_alignments
from foldcli.search_runs.settings import SearchRun
from foldcli.search_runs.table import write_table
from msa.alignments.filter_settings import AlignmentFilter
from msa.alignments.m8 import DEFAULT_COLUMNS
from msa.base.errors import MissingError
from msa.base.temporary_names import OLD_SECONDS
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.search_settings import SearchSettings

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"


class _FullDiskSearcher(LocalSearcher):
    """A searcher that replaces the table's file by one on a full disk after the hits of the first query."""

    def search_many(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        for number, result in enumerate(super().search_many(*arguments, **options)):
            if number == 1:
                (table,) = (
                    int(path.name)
                    for path in Path("/proc/self/fd").iterdir()
                    if path.is_symlink() and str(path.readlink()).endswith(".unfinished")
                )
                os.dup2(os.open("/dev/full", os.O_WRONLY), table)
            yield result


def _run(folder: Path, searcher: type[LocalSearcher] = LocalSearcher, overwrite: bool = False) -> SearchRun:
    if not (folder / "db").exists():
        (folder / "q.fasta").write_text("".join(f">q{k}\n{UBIQUITIN}\n" for k in range(3)))
        build_database([folder / "q.fasta"], folder / "db", BuildSettings(threads=1))
    settings = AlignmentSettings(SearchSettings(), AlignmentFilter())

    def open_searcher() -> LocalSearcher:
        return searcher(TargetDatabase.open(folder / "db"), CpuEngine())

    shard = Shard()
    sources = QuerySources([str(folder / "q.fasta")], True, "BLOSUM62")
    return SearchRun(sources, settings, open_searcher, shard, None, overwrite)


def test_devices_and_pipes_are_never_replaced(tmp_path: Path) -> None:
    run = _run(tmp_path, overwrite=True)
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        write_table(run, str(device), DEFAULT_COLUMNS)
        assert stat.S_ISCHR(device.stat().st_mode)
    except PermissionError:
        pass  # only root makes devices
    write_table(run, "/dev/null", DEFAULT_COLUMNS)
    read, write = os.pipe()
    write_table(run, f"/proc/self/fd/{write}", DEFAULT_COLUMNS)
    os.close(write)
    with os.fdopen(read) as stream:
        assert len(stream.readlines()) == 9


def test_files_of_killed_searches_are_removed(tmp_path: Path) -> None:
    run = _run(tmp_path)
    left, other = (tmp_path / f".{name}.0123456789ab-1-2.0.tmp" for name in ("h.m8", "other.m8"))
    for path in (left, other):
        path.touch()
        os.utime(path, (0, path.stat().st_mtime - OLD_SECONDS - 60))
    write_table(run, str(tmp_path / "h.m8"), DEFAULT_COLUMNS)
    assert not left.exists() and other.exists()
    assert len((tmp_path / "h.m8").read_text().splitlines()) == 9
    with pytest.raises(OptionError, match="exists; --overwrite replaces it"):
        write_table(run, str(tmp_path / "h.m8"), DEFAULT_COLUMNS)


def test_alignment_that_does_not_match_its_record_is_replaced(tmp_path: Path) -> None:
    run, out = _run(tmp_path), tmp_path / "out"
    write_alignments(run, out, "a3m")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    inodes = {path: path.stat().st_ino for path in out.iterdir()}
    # as after two runs with different settings at once, one of which was killed
    (out / "q1.a3m").write_text(">q1\nACD\n")
    write_alignments(run, out, "a3m")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert sorted(path.name for path in out.iterdir() if path.stat().st_ino != inodes[path]) == [
        "q1.a3m", "q1.a3m.json",
    ]  # fmt: skip


def test_full_disk_keeps_no_table_and_names_it(tmp_path: Path) -> None:
    run = _run(tmp_path, _FullDiskSearcher)
    with pytest.raises(MissingError, match=r"h\.m8: no space left on the disk; .* bytes are needed"):
        write_table(run, str(tmp_path / "h.m8"), DEFAULT_COLUMNS)
    assert sorted(os.listdir(tmp_path)) == ["db", "q.fasta"]


class _Killed(BaseException):
    """The end of a process."""


class _KilledSearcher(LocalSearcher):
    """A searcher that ends after the hits of two queries."""

    def search_many(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        for number, result in enumerate(super().search_many(*arguments, **options)):
            if number == 2:
                raise _Killed
            yield result


class _CountingSearcher(LocalSearcher):
    """A searcher that counts the queries it searches with."""

    queries = 0

    def search_many(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        type(self).queries += len(arguments[0])
        return super().search_many(*arguments, **options)


@pytest.mark.parametrize(
    ("damage", "searched"), [("nothing", 1), ("last line", 2), ("table", 3), ("columns", 3), ("query", 2)]
)
def test_interrupted_table_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, searched: int
) -> None:
    write_table(_run(tmp_path), str(tmp_path / "whole.m8"), DEFAULT_COLUMNS)
    with pytest.raises(_Killed):
        write_table(_run(tmp_path, _KilledSearcher), str(tmp_path / "h.m8"), DEFAULT_COLUMNS)
    table, index = tmp_path / ".h.m8.unfinished", tmp_path / ".h.m8.unfinished.index"
    assert len(index.read_bytes().splitlines()) == 2 and not (tmp_path / "h.m8").exists()
    columns, expected = DEFAULT_COLUMNS, (tmp_path / "whole.m8").read_text()
    if damage == "last line":
        index.write_bytes(index.read_bytes()[:-9])
    elif damage == "table":
        table.write_bytes(table.read_bytes().replace(b"q0", b"qx", 1))
    elif damage == "columns":
        columns = ("query", "target")
        expected = "".join("\t".join(line.split("\t")[:2]) + "\n" for line in expected.splitlines())
    elif damage == "query":
        queries = tmp_path / "q.fasta"
        queries.write_text(queries.read_text().replace(">q1", ">new"))
        expected = expected.replace("q1\tq", "new\tq")
    monkeypatch.setattr(_CountingSearcher, "queries", 0)
    write_table(_run(tmp_path, _CountingSearcher), str(tmp_path / "h.m8"), columns)
    assert (tmp_path / "h.m8").read_text() == expected
    assert _CountingSearcher.queries == searched
    assert not table.exists() and not index.exists()


def test_table_that_another_process_writes_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with open_table(path, ["a", "b"], resumable=True) as first:
        first.write("1\n", False)
        with open_table(path, ["a", "b"], resumable=True) as second:
            assert second.finished == 0
            second.write("2\n", True)
        assert path.read_text() == "2\n"
    assert path.read_text() == "1\n" and sorted(os.listdir(tmp_path)) == ["t"]


def test_interrupted_table_without_finished_queries_is_removed(tmp_path: Path) -> None:
    with pytest.raises(_Killed), open_table(tmp_path / "t", ["a"], resumable=True):
        raise _Killed
    assert os.listdir(tmp_path) == []
